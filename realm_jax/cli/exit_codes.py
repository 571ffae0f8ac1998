"""How `realm` ends, as a number."""

DONE = 0
PROBLEM = 1  # a RealmError, or a check that found damage
USAGE = 2  # the command line itself cannot be understood
STOPPED = 75  # stopped by a signal; the same command goes on there
PEER_GONE = 76  # another process of this job is gone; the same command on all of them goes on
