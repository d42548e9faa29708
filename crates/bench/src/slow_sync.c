/* Makes every sync of a file take two milliseconds longer, as on a disk that cannot lie about its cache. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>

static void linger(void) {
    struct timespec pause = {0, 2000000};
    nanosleep(&pause, 0);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    linger();
    return real(file);
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    linger();
    return real(file);
}
