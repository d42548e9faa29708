/* Stands between a program and its disk: notes what a loss of power could take away, and plays a disk that is full.
 *
 * Loaded before other libraries. TESTKIT_FAULTS names a folder with a control page, a journal and a folder for graves;
 * TESTKIT_FAULTS_ROOT names the folder that is watched. All programs that are started from here are watched as well.
 * What is called without libc, as a few libraries do for renames of temporary files, is not seen. */

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

/* What the other side reads and writes, too; see faults.rs for the offsets. */
struct control {
    uint64_t ready;
    uint64_t dead;    /* the power is gone: nobody writes any more */
    int64_t cut;      /* so many calls until then; -1 for never */
    int64_t room;     /* so many bytes until the disk is full; -1 for no end */
    uint64_t calls;   /* how many calls there were */
    uint64_t refused; /* how many of them found no room */
    uint64_t server;  /* the first program */
    uint64_t journal; /* whether to keep one */
    uint64_t graves;  /* how many there are */
    uint64_t full;    /* whether nothing at all can be written */
    char only[48];    /* if there is a word here, only to files with that word in their paths */
    pthread_mutex_t turn;
};

enum { WRITE = 1, TRUNCATE, SYNC, SYNC_FOLDER, SYNC_ALL, CREATE, MKDIR, RMDIR, UNLINK, RENAME, LINK };

struct entry {
    uint32_t kind, data_length;
    uint64_t file, folder, target, from, length, size, grave;
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

/* Opens a file where others will not step on its number. */
static int high(int file) {
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
    int file = high(plain_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0));
    if (file < 0) return;
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (page == MAP_FAILED) return;
    struct control *found = page;
    /* The first program is alone yet. */
    if (!found->ready) {
        pthread_mutexattr_t how;
        pthread_mutexattr_init(&how);
        pthread_mutexattr_setpshared(&how, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&how, PTHREAD_MUTEX_ROBUST);
        pthread_mutex_init(&found->turn, &how);
        found->server = (uint64_t)getpid();
        found->ready = 1;
    }
    /* For as long as this program lives: whoever waits for the last one asks for the lock. */
    snprintf(path, sizeof path, "%s/alive", folder);
    flock(high(plain_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0)), LOCK_SH);
    if (found->journal) {
        snprintf(path, sizeof path, "%s/journal", folder);
        journal = high(plain_openat(AT_FDCWD, path, O_WRONLY | O_APPEND | O_CLOEXEC, 0));
    }
    control = found;
}

static void die(void) {
    for (;;) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

/* One call at a time, in all programs, so that the power goes between two of them. Without a journal nobody waits. */
static void lock(void) {
    if (!control->journal) return;
    if (pthread_mutex_lock(&control->turn) == EOWNERDEAD) pthread_mutex_consistent(&control->turn);
    if (control->dead) die();
    control->calls++;
    if (control->cut >= 0 && control->cut-- == 0) {
        control->dead = 1;
        kill((pid_t)control->server, SIGKILL);
        die();
    }
}

static void unlock(void) {
    int said = errno;
    if (control->journal) pthread_mutex_unlock(&control->turn);
    errno = said;
}

static void note(struct entry entry, const char *name, const char *new_name, const void *data) {
    if (journal < 0) return;
    int said = errno;
    entry.name_length = name ? strlen(name) : 0;
    entry.new_name_length = new_name ? strlen(new_name) : 0;
    struct iovec pieces[] = {
        {&entry, sizeof entry},
        {(void *)name, entry.name_length},
        {(void *)new_name, entry.new_name_length},
        {(void *)data, entry.data_length},
    };
    ssize_t whole = sizeof entry + entry.name_length + entry.new_name_length + entry.data_length;
    /* Without its journal the experiment means nothing. */
    if (plain_writev(journal, pieces, 4) != whole) abort();
    errno = said;
}

/* Whether the disk is full for what this thread is about to change. */
static _Thread_local int refuses;

/* How many of so many bytes there is room for. */
static int64_t take(int64_t wanted) {
    if (refuses) {
        __atomic_fetch_add(&control->refused, 1, __ATOMIC_SEQ_CST);
        return 0;
    }
    for (;;) {
        int64_t room = __atomic_load_n(&control->room, __ATOMIC_SEQ_CST);
        if (room < 0) return wanted;
        int64_t given = room < wanted ? room : wanted;
        if (__atomic_compare_exchange_n(&control->room, &room, room - given, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            if (given < wanted) __atomic_fetch_add(&control->refused, 1, __ATOMIC_SEQ_CST);
            return given;
        }
    }
}

static int below(const char *path) {
    return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* Whether an open file is one that is watched. */
static int watches(int file, struct stat *found, mode_t kind) {
    if (!control || fstat(file, found) || (found->st_mode & S_IFMT) != kind) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    refuses = control->full && (!control->only[0] || strstr(path, control->only));
    return below(path);
}

/* Where a path leads: its folder and the name in there. */
struct place {
    char folder[PATH_MAX];
    const char *name;
    uint64_t number;
};

/* Finds the place of a path; whether that is watched. */
static int find(int at, const char *path, struct place *place) {
    if (!control || !path) return 0;
    char whole[2 * PATH_MAX];
    if (path[0] == '/') {
        snprintf(whole, sizeof whole, "%s", path);
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
        snprintf(whole, sizeof whole, "%s/%s", start, path);
    }
    for (size_t length = strlen(whole); length > 1 && whole[length - 1] == '/'; length--) whole[length - 1] = 0;
    char *last = strrchr(whole, '/');
    if (!last || !last[1]) return 0;
    static _Thread_local char name[NAME_MAX + 1], second[NAME_MAX + 1];
    static _Thread_local int which;
    char *kept = (which = !which) ? name : second;
    snprintf(kept, NAME_MAX + 1, "%s", last + 1);
    *last = 0;
    if (!realpath(whole[0] ? whole : "/", place->folder)) return 0;
    place->name = kept;
    struct stat found;
    if (stat(place->folder, &found)) return 0;
    place->number = found.st_ino;
    /* Files and folders are made all the same where only some cannot be written to. */
    refuses = control->full && !control->only[0];
    return below(place->folder);
}

/* What is in a part of a file. */
static void *content(int file, off_t from, size_t length) {
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
