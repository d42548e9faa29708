/* Intercepts the file system calls of a program: records changes that a power cut could undo, and simulates a full disk.
 *
 * Loaded with LD_PRELOAD. TESTKIT_FAULTS names a folder with a control page, a journal and a folder of unlinked files;
 * TESTKIT_FAULTS_ROOT names the watched folder. Child processes are watched as well.
 * Direct system calls, which a few libraries use to rename temporary files, are not intercepted. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* Shared with the test process; see faults.rs for the offsets. */
struct control {
    uint64_t ready;
    uint64_t power_is_cut;     /* no process may write any more */
    int64_t calls_until_cut;   /* calls until the power is cut; -1 for never */
    int64_t space;             /* bytes until the disk is full; -1 for unlimited */
    uint64_t calls;            /* number of calls that change or sync something */
    uint64_t refused;          /* number of calls that failed with ENOSPC */
    uint64_t first_pid;        /* the process that was started first */
    uint64_t journal;          /* whether a journal is written */
    uint64_t unlinked_count;   /* number of files in the folder of unlinked files */
    uint64_t full;             /* whether every write fails with ENOSPC */
    char full_path_filter[48]; /* restricts `full` to paths that contain this; empty for all */
    pthread_mutex_t mutex;
};

enum { WRITE = 1, TRUNCATE, SYNC, SYNC_FOLDER, SYNC_ALL, CREATE, MKDIR, RMDIR, UNLINK, RENAME, LINK };

struct entry {
    uint32_t kind, data_length;
    uint64_t file, folder, target, from, length, size, unlinked;
    uint32_t name_length, new_name_length;
};

static struct control *control;
static int journal = -1;
static char folder[PATH_MAX], root[PATH_MAX], preload[PATH_MAX + 32], faults[PATH_MAX + 32], watched[PATH_MAX + 32];
static size_t root_length;

#define REAL(result, name, ...)                                        \
    static result (*real)(__VA_ARGS__);                                \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int plain_openat(int at, const char *path, int flags, mode_t mode) {
    REAL(int, "openat", int, const char *, int, ...);
    return real(at, path, flags, mode);
}

static ssize_t plain_writev(int file, const struct iovec *pieces, int count) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return real(file, pieces, count);
}

static int plain_linkat(int at, const char *path, int to, const char *new, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    return real(at, path, to, new, flags);
}

static int plain_unlinkat(int at, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    return real(at, path, flags);
}

/* Moves a descriptor to a high number that the program does not use. */
static int move_to_high_fd(int file) {
    if (file < 0) return -1;
    int moved = fcntl(file, F_DUPFD_CLOEXEC, 500);
    close(file);
    return moved;
}

__attribute__((constructor)) static void begin(void) {
    const char *in = getenv("TESTKIT_FAULTS"), *of = getenv("TESTKIT_FAULTS_ROOT"), *with = getenv("LD_PRELOAD");
    if (!in || !of || !with || strlen(in) > PATH_MAX - 64) return;
    snprintf(folder, sizeof folder, "%s", in);
    snprintf(root, sizeof root, "%s", of);
    root_length = strlen(root);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", with);
    snprintf(faults, sizeof faults, "TESTKIT_FAULTS=%s", in);
    snprintf(watched, sizeof watched, "TESTKIT_FAULTS_ROOT=%s", of);
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/control", folder);
    int file = move_to_high_fd(plain_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
    if (file < 0) return;
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) return;
    struct control *found = page;
    /* The first process initializes the page; no other runs yet. */
    if (!found->ready) {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&found->mutex, &attributes);
        found->first_pid = (uint64_t)getpid();
        found->ready = 1;
    }
    /* Held until this process exits; the test takes the lock to wait for the last process. */
    snprintf(path, sizeof path, "%s/alive", folder);
    flock(move_to_high_fd(plain_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0)), LOCK_SH);
    if (found->journal) {
        snprintf(path, sizeof path, "%s/journal", folder);
        journal = move_to_high_fd(plain_openat(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0));
    }
    control = found;
}

static void die(void) {
    for (;;) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

/* Serializes calls across all processes, so that the power is cut between two of them; only with a journal. */
static void lock(void) {
    if (!control->journal) return;
    if (pthread_mutex_lock(&control->mutex) == EOWNERDEAD) pthread_mutex_consistent(&control->mutex);
    if (control->power_is_cut) die();
    control->calls++;
    if (control->calls_until_cut >= 0 && control->calls_until_cut-- == 0) {
        control->power_is_cut = 1;
        kill((pid_t)control->first_pid, SIGKILL);
        die();
    }
}

static void unlock(void) {
    int saved_errno = errno;
    if (control->journal) pthread_mutex_unlock(&control->mutex);
    errno = saved_errno;
}

static void append_entry(struct entry entry, const char *name, const char *new_name, const void *data) {
    if (journal < 0) return;
    int saved_errno = errno;
    entry.name_length = name ? strlen(name) : 0;
    entry.new_name_length = new_name ? strlen(new_name) : 0;
    struct iovec pieces[] = {
        {&entry, sizeof entry},
        {(void *)name, entry.name_length},
        {(void *)new_name, entry.new_name_length},
        {(void *)data, entry.data_length},
    };
    ssize_t total = sizeof entry + entry.name_length + entry.new_name_length + entry.data_length;
    /* Without a complete journal the test result is meaningless. */
    if (plain_writev(journal, pieces, 4) != total) abort();
    errno = saved_errno;
}

/* Whether the disk is full for the file that this thread is about to change. */
static _Thread_local int disk_is_full;

/* Reserves up to the requested number of bytes; returns how many were free. */
static int64_t take_space(int64_t requested) {
    if (disk_is_full) {
        __atomic_fetch_add(&control->refused, 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    for (;;) {
        int64_t space = __atomic_load_n(&control->space, __ATOMIC_SEQ_CST);
        if (space < 0) return requested;
        int64_t taken = space < requested ? space : requested;
        if (__atomic_compare_exchange_n(&control->space, &space, space - taken, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            if (taken < requested) __atomic_fetch_add(&control->refused, 1, __ATOMIC_SEQ_CST);
            return taken;
        }
    }
}

static int is_below_root(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* Returns whether an open file of this kind is below the watched folder. */
static int is_watched(int file, struct stat *found, mode_t kind) {
    if (!control || fstat(file, found) || (found->st_mode & S_IFMT) != kind) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    disk_is_full = control->full && (!control->full_path_filter[0] || strstr(path, control->full_path_filter));
    return is_below_root(path);
}

/* A resolved path: its folder and the name in it. */
struct location {
    char folder[PATH_MAX];
    const char *name;
    uint64_t inode;
};

/* Resolves a path; returns whether it is below the watched folder. */
static int locate(int at, const char *path, struct location *location) {
    if (!control || !path) return 0;
    char full_path[2 * PATH_MAX];
    if (path[0] == '/') {
        snprintf(full_path, sizeof full_path, "%s", path);
    } else {
        char start[PATH_MAX];
        if (at == AT_FDCWD) {
            if (!getcwd(start, sizeof start)) return 0;
        } else {
            char link[64];
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t length = readlink(link, start, sizeof start - 1);
            if (length < 0) return 0;
            start[length] = 0;
        }
        snprintf(full_path, sizeof full_path, "%s/%s", start, path);
    }
    for (size_t length = strlen(full_path); length > 1 && full_path[length - 1] == '/'; length--) full_path[length - 1] = 0;
    char *last = strrchr(full_path, '/');
    if (!last || !last[1]) return 0;
    static _Thread_local char name[NAME_MAX + 1], second[NAME_MAX + 1];
    static _Thread_local int which;
    char *stored_name = (which = !which) ? name : second;
    snprintf(stored_name, NAME_MAX + 1, "%s", last + 1);
    *last = 0;
    if (!realpath(full_path[0] ? full_path : "/", location->folder)) return 0;
    location->name = stored_name;
    struct stat found;
    if (stat(location->folder, &found)) return 0;
    location->inode = found.st_ino;
    /* With a filter, files and folders can still be created; only writes fail. */
    disk_is_full = control->full && !control->full_path_filter[0];
    return is_below_root(location->folder);
}

/* Reads a range of a file. */
static void *read_content(int file, off_t from, size_t length) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    int reading = plain_openat(AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    char *bytes = malloc(length ? length : 1);
    if (reading < 0 || !bytes) abort();
    for (size_t done = 0; done < length;) {
        ssize_t got = pread(reading, bytes + done, length - done, from + (off_t)done);
        if (got <= 0) abort();
        done += (size_t)got;
    }
    close(reading);
    return bytes;
}
