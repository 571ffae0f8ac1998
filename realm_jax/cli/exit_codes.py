"""Exit codes of `realm`."""

DONE = 0
ERROR = 1  # a RealmError, or a check that found damage
USAGE = 2  # invalid command line
STOPPED = 75  # stopped by a signal, progress saved; the same command resumes
PEER_GONE = 76  # another process of this job was lost; the same command on all hosts resumes
READER_GONE = 141  # 128 + SIGPIPE, as in other programs
