/* Preloaded: file locks of any kind fail on files below $NO_FLOCK, as on some network mounts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int refused(int fd) {
  char link[64], path[4096];
  const char *root = getenv("NO_FLOCK");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (!root || size < 0) return 0;
  path[size] = 0;
  return strncmp(path, root, strlen(root)) == 0;
}

int flock(int fd, int operation) {
  if (refused(fd)) { errno = ENOLCK; return -1; }
  return ((int (*)(int, int))dlsym(RTLD_NEXT, "flock"))(fd, operation);
}

#define FCNTL(name)                                                               \
  int name(int fd, int command, ...) {                                            \
    va_list arguments;                                                            \
    va_start(arguments, command);                                                 \
    void *argument = va_arg(arguments, void *);                                   \
    va_end(arguments);                                                            \
    int locks = command == F_SETLK || command == F_SETLKW ||                      \
                command == F_OFD_SETLK || command == F_OFD_SETLKW;                \
    if (locks && refused(fd)) { errno = ENOLCK; return -1; }                      \
    return ((int (*)(int, int, ...))dlsym(RTLD_NEXT, #name))(fd, command, argument); \
  }

FCNTL(fcntl)
FCNTL(fcntl64)
