/* Delays every sync by two milliseconds, like a disk without a volatile write cache. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static void delay(void) {
    struct timespec duration = {0, 2000000};
    nanosleep(&duration, 0);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    delay();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    delay();
    return real(file);
}
