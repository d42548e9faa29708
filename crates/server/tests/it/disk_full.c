/* A disk that is full while a file says so. GABLE_FULL_FLAG names that file, GABLE_FULL_BELOW the folder that is on the
   disk. If the file holds a word, only writes to paths with that word fail, and making files and folders goes on. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* Whether the disk is full; tells the word, too. */
static int is_full(char *word, size_t size) {
    const char *flag = getenv("GABLE_FULL_FLAG");
    if (!flag) return 0;
    int file = REAL(open)(flag, O_RDONLY);
    if (file < 0) return 0;
    ssize_t length = read(file, word, size - 1);
    close(file);
    word[length > 0 ? length : 0] = 0;
    return 1;
}

static int is_below(const char *path) {
    const char *folder = getenv("GABLE_FULL_BELOW");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static int fails_at(const char *path, int makes) {
    int before = errno;
    char word[64];
    int fails = is_below(path) && is_full(word, sizeof word) && (!word[0] || (!makes && strstr(path, word)));
    errno = before;
    return fails;
}

static int fails_in(int file) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int before = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length <= 0) return 0;
    path[length] = 0;
    return fails_at(path, 0);
}

static int fails_at_folder(int folder, const char *path) {
    char link[64], whole[8192];
    if (path[0] == '/' || folder == AT_FDCWD) return fails_at(path, 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, whole, 4096);
    if (length <= 0) return 0;
    snprintf(whole + length, sizeof whole - length, "/%s", path);
    return fails_at(whole, 1);
}

#define NO_ROOM (errno = ENOSPC, -1)

ssize_t write(int file, const void *bytes, size_t count) {
    return fails_in(file) ? NO_ROOM : REAL(write)(file, bytes, count);
}
ssize_t pwrite(int file, const void *bytes, size_t count, off_t at) {
    return fails_in(file) ? NO_ROOM : REAL(pwrite)(file, bytes, count, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    return fails_in(file) ? NO_ROOM : REAL(pwrite64)(file, bytes, count, at);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
    return fails_in(file) ? NO_ROOM : REAL(writev)(file, parts, count);
}
int fallocate(int file, int mode, off_t at, off_t count) {
    return fails_in(file) ? NO_ROOM : REAL(fallocate)(file, mode, at, count);
}
int fallocate64(int file, int mode, off64_t at, off64_t count) {
    return fails_in(file) ? NO_ROOM : REAL(fallocate64)(file, mode, at, count);
}
int posix_fallocate(int file, off_t at, off_t count) {
    return fails_in(file) ? ENOSPC : REAL(posix_fallocate)(file, at, count);
}
int ftruncate(int file, off_t size) {
    struct stat found;
    int grows = fstat(file, &found) == 0 && size > found.st_size;
    return grows && fails_in(file) ? NO_ROOM : REAL(ftruncate)(file, size);
}
int ftruncate64(int file, off64_t size) {
    struct stat found;
    int grows = fstat(file, &found) == 0 && size > found.st_size;
    return grows && fails_in(file) ? NO_ROOM : REAL(ftruncate64)(file, size);
}
int mkdir(const char *path, mode_t mode) {
    return fails_at(path, 1) ? NO_ROOM : REAL(mkdir)(path, mode);
}

static int makes(int flags, const char *path) {
    int before = errno;
    int there = access(path, F_OK) == 0;
    errno = before;
    return (flags & O_CREAT) && !there;
}

static mode_t mode_of(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(name)                                                       \
    int name(const char *path, int flags, ...) {                         \
        va_list more;                                                    \
        va_start(more, flags);                                           \
        mode_t mode = mode_of(flags, more);                              \
        va_end(more);                                                    \
        if (makes(flags, path) && fails_at(path, 1)) return NO_ROOM;     \
        return REAL(name)(path, flags, mode);                            \
    }
OPEN(open)
OPEN(open64)

#define OPEN_AT(name)                                                            \
    int name(int folder, const char *path, int flags, ...) {                     \
        va_list more;                                                            \
        va_start(more, flags);                                                   \
        mode_t mode = mode_of(flags, more);                                      \
        va_end(more);                                                            \
        int before = errno;                                                      \
        int there = faccessat(folder, path, F_OK, 0) == 0;                       \
        errno = before;                                                          \
        if ((flags & O_CREAT) && !there && fails_at_folder(folder, path)) return NO_ROOM; \
        return REAL(name)(folder, path, flags, mode);                            \
    }
OPEN_AT(openat)
OPEN_AT(openat64)
