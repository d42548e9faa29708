/* The intercepted calls; this is the second half of shim.c. */

/* Writes at an offset, or at the current position if it is negative, as one journal entry. */
static ssize_t write_pieces(int file, const struct iovec *pieces, int count, off_t at, struct stat *found,
                   ssize_t (*real)(int, const struct iovec *, int, off_t)) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += pieces[i].iov_len;
    lock();
    fstat(file, found);
    off_t from = at;
    if (fcntl(file, F_GETFL) & O_APPEND) from = found->st_size;
    else if (at < 0) from = lseek(file, 0, SEEK_CUR);
    off_t end = from + (off_t)length;
    if (disk_is_full) {
        /* Not even existing bytes can be overwritten. */
        length = (size_t)take_space(end - from);
    } else if (end > found->st_size) {
        int64_t more = end - (from > found->st_size ? from : found->st_size), taken = take_space(more);
        length -= (size_t)(more - taken);
    }
    if (end > from && length == 0) {
        unlock();
        errno = ENOSPC;
        return -1;
    }
    off_t old_end = from + (off_t)length < found->st_size ? from + (off_t)length : found->st_size;
    size_t old = journal >= 0 && old_end > from ? (size_t)(old_end - from) : 0;
    void *before = old ? read_content(file, from, old) : 0;
    struct iovec part[count ? count : 1];
    size_t left = length;
    for (int i = 0; i < count; i++) {
        part[i] = pieces[i];
        if (part[i].iov_len > left) part[i].iov_len = left;
        left -= part[i].iov_len;
    }
    ssize_t done = real(file, part, count, at);
    if (done > 0) {
        append_entry((struct entry){.kind = WRITE, .file = found->st_ino, .from = (uint64_t)from, .length = (uint64_t)done,
                            .size = (uint64_t)found->st_size, .data_length = (uint32_t)old}, 0, 0, before);
    }
    int saved_errno = errno;
    free(before);
    errno = saved_errno;
    unlock();
    return done;
}

static ssize_t at_position(int file, const struct iovec *pieces, int count, off_t at) {
    (void)at;
    return plain_writev(file, pieces, count);
}

static ssize_t at_offset(int file, const struct iovec *pieces, int count, off_t at) {
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    return real(file, pieces, count, at);
}

ssize_t write(int file, const void *bytes, size_t length) {
    REAL(ssize_t, "write", int, const void *, size_t);
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return real(file, bytes, length);
    struct iovec one = {(void *)bytes, length};
    return write_pieces(file, &one, 1, -1, &found, at_position);
}

ssize_t writev(int file, const struct iovec *pieces, int count) {
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return plain_writev(file, pieces, count);
    return write_pieces(file, pieces, count, -1, &found, at_position);
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return real(file, bytes, length, at);
    struct iovec one = {(void *)bytes, length};
    return write_pieces(file, &one, 1, at, &found, at_offset);
}

ssize_t pwritev64(int file, const struct iovec *pieces, int count, off_t at) {
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return at_offset(file, pieces, count, at);
    return write_pieces(file, pieces, count, at, &found, at_offset);
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) { return pwrite64(file, bytes, length, at); }
ssize_t pwritev(int file, const struct iovec *pieces, int count, off_t at) {
    return pwritev64(file, pieces, count, at);
}

/* Copies inside the kernel are refused, so that callers fall back to read and write. */
ssize_t copy_file_range(int from, off_t *at, int to, off_t *offset, size_t length, unsigned flags) {
    REAL(ssize_t, "copy_file_range", int, off_t *, int, off_t *, size_t, unsigned);
    struct stat found;
    if (!is_watched(to, &found, S_IFREG)) return real(from, at, to, offset, length, flags);
    errno = EXDEV;
    return -1;
}

ssize_t sendfile64(int to, int from, off_t *at, size_t length) {
    REAL(ssize_t, "sendfile64", int, int, off_t *, size_t);
    struct stat found;
    if (!is_watched(to, &found, S_IFREG)) return real(to, from, at, length);
    errno = EINVAL;
    return -1;
}

ssize_t sendfile(int to, int from, off_t *at, size_t length) { return sendfile64(to, from, at, length); }

ssize_t splice(int from, off_t *at, int to, off_t *offset, size_t length, unsigned flags) {
    REAL(ssize_t, "splice", int, off_t *, int, off_t *, size_t, unsigned);
    struct stat found;
    if (!is_watched(to, &found, S_IFREG)) return real(from, at, to, offset, length, flags);
    errno = EINVAL;
    return -1;
}

/* Records that the length of a file is about to change. */
static void note_truncate(int file, const struct stat *found, off_t length) {
    if (journal < 0 || length == found->st_size) return;
    size_t lost = length < found->st_size ? (size_t)(found->st_size - length) : 0;
    void *before = lost ? read_content(file, length, lost) : 0;
    append_entry((struct entry){.kind = TRUNCATE, .file = found->st_ino, .from = (uint64_t)length,
                        .size = (uint64_t)found->st_size, .data_length = (uint32_t)lost}, 0, 0, before);
    free(before);
}

int ftruncate64(int file, off_t length) {
    REAL(int, "ftruncate64", int, off_t);
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return real(file, length);
    lock();
    fstat(file, &found);
    if (disk_is_full && length > found.st_size) {
        take_space(length - found.st_size);
        unlock();
        errno = ENOSPC;
        return -1;
    }
    note_truncate(file, &found, length);
    int done = real(file, length);
    unlock();
    return done;
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

int posix_fallocate64(int file, off_t from, off_t length) {
    REAL(int, "posix_fallocate64", int, off_t, off_t);
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return real(file, from, length);
    lock();
    fstat(file, &found);
    off_t more = from + length - found.st_size;
    int done = more > 0 && take_space(more) < more ? ENOSPC : 0;
    if (!done) {
        if (more > 0) note_truncate(file, &found, from + length);
        done = real(file, from, length);
    }
    unlock();
    return done;
}

int posix_fallocate(int file, off_t from, off_t length) { return posix_fallocate64(file, from, length); }

int fallocate64(int file, int mode, off_t from, off_t length) {
    REAL(int, "fallocate64", int, int, off_t, off_t);
    struct stat found;
    if (!is_watched(file, &found, S_IFREG)) return real(file, mode, from, length);
    errno = EOPNOTSUPP;
    return -1;
}

int fallocate(int file, int mode, off_t from, off_t length) { return fallocate64(file, mode, from, length); }

/* With a journal, a sync is only recorded. */
static int sync_file(int file, int (*real)(int)) {
    struct stat found;
    int is_file = is_watched(file, &found, S_IFREG);
    if (!is_file && !is_watched(file, &found, S_IFDIR)) return real(file);
    if (journal < 0) return real(file);
    lock();
    append_entry((struct entry){.kind = is_file ? SYNC : SYNC_FOLDER, .file = found.st_ino}, 0, 0, 0);
    unlock();
    return 0;
}

int fsync(int file) {
    REAL(int, "fsync", int);
    return sync_file(file, real);
}

int fdatasync(int file) {
    REAL(int, "fdatasync", int);
    return sync_file(file, real);
}

int syncfs(int file) {
    REAL(int, "syncfs", int);
    if (journal < 0) return real(file);
    lock();
    append_entry((struct entry){.kind = SYNC_ALL}, 0, 0, 0);
    unlock();
    return 0;
}

void sync(void) { syncfs(0); }

static int open_file(int at, const char *path, int flags, mode_t mode) {
    struct location location;
    int changes = (flags & (O_CREAT | O_TRUNC)) && (flags & O_TMPFILE) != O_TMPFILE;
    if (!changes || !locate(at, path, &location)) return plain_openat(at, path, flags, mode);
    lock();
    struct stat before, after;
    int existed = fstatat(at, path, &before, 0) == 0;
    if (!existed && take_space(1) < 1) {
        unlock();
        errno = ENOSPC;
        return -1;
    }
    int truncates = existed && (flags & O_TRUNC) && S_ISREG(before.st_mode);
    int file = plain_openat(at, path, truncates ? flags & ~O_TRUNC : flags, mode);
    if (file >= 0 && truncates) {
        REAL(int, "ftruncate64", int, off_t);
        note_truncate(file, &before, 0);
        real(file, 0);
    }
    if (file >= 0 && !existed && fstat(file, &after) == 0) {
        append_entry((struct entry){.kind = CREATE, .file = after.st_ino, .folder = location.inode}, location.name, 0, 0);
    }
    unlock();
    return file;
}

#define MODE(flags, mode)                                  \
    mode_t mode = 0;                                       \
    if ((flags) & O_CREAT || ((flags) & O_TMPFILE) == O_TMPFILE) { \
        va_list rest;                                      \
        va_start(rest, flags);                             \
        mode = va_arg(rest, mode_t);                       \
        va_end(rest);                                      \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_file(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}

int openat(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_file(at, path, flags, mode);
}

int openat64(int at, const char *path, int flags, ...) {
    MODE(flags, mode)
    return open_file(at, path, flags | O_LARGEFILE, mode);
}

int creat64(const char *path, mode_t mode) { return open_file(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat(const char *path, mode_t mode) { return creat64(path, mode); }

int mkdirat(int at, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    struct location location;
    if (!locate(at, path, &location)) return real(at, path, mode);
    lock();
    struct stat made;
    if (fstatat(at, path, &made, AT_SYMLINK_NOFOLLOW) && take_space(4096) < 4096) {
        unlock();
        errno = ENOSPC;
        return -1;
    }
    int done = real(at, path, mode);
    if (!done && fstatat(at, path, &made, AT_SYMLINK_NOFOLLOW) == 0) {
        append_entry((struct entry){.kind = MKDIR, .file = made.st_ino, .folder = location.inode}, location.name, 0, 0);
    }
    unlock();
    return done;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Links a file that is about to lose its name into the folder of unlinked files; returns its number there. */
static uint64_t keep_unlinked(int at, const char *path) {
    if (journal < 0) return 0;
    char target[PATH_MAX + 32];
    uint64_t number = ++control->unlinked_count;
    snprintf(target, sizeof target, "%s/unlinked/%llu", folder, (unsigned long long)number);
    if (plain_linkat(at, path, AT_FDCWD, target, 0)) abort();
    return number;
}

int unlinkat(int at, const char *path, int flags) {
    struct location location;
    struct stat found;
    if (!locate(at, path, &location)) return plain_unlinkat(at, path, flags);
    lock();
    int is_folder = (flags & AT_REMOVEDIR) != 0;
    int there = fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
    uint64_t unlinked = there && !is_folder && !S_ISDIR(found.st_mode) ? keep_unlinked(at, path) : 0;
    int done = plain_unlinkat(at, path, flags);
    if (!done && there) {
        append_entry((struct entry){.kind = is_folder ? RMDIR : UNLINK, .file = found.st_ino, .folder = location.inode,
                            .unlinked = unlinked}, location.name, 0, 0);
    }
    unlock();
    return done;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int remove(const char *path) {
    struct stat found;
    return unlinkat(AT_FDCWD, path, lstat(path, &found) == 0 && S_ISDIR(found.st_mode) ? AT_REMOVEDIR : 0);
}

int renameat2(int at, const char *path, int to, const char *new, unsigned flags) {
    REAL(int, "renameat2", int, const char *, int, const char *, unsigned);
    struct location from, there;
    if (!locate(at, path, &from) || !locate(to, new, &there)) return real(at, path, to, new, flags);
    lock();
    struct stat found, replaced;
    int known = fstatat(at, path, &found, AT_SYMLINK_NOFOLLOW) == 0;
    int replaces = fstatat(to, new, &replaced, AT_SYMLINK_NOFOLLOW) == 0;
    int same = known && replaces && found.st_ino == replaced.st_ino;
    uint64_t unlinked = replaces && !same && !S_ISDIR(replaced.st_mode) ? keep_unlinked(to, new) : 0;
    int done = real(at, path, to, new, flags);
    if (!done && known && !same) {
        append_entry((struct entry){.kind = RENAME, .file = found.st_ino, .folder = from.inode, .target = there.inode,
                            .unlinked = unlinked}, from.name, there.name, 0);
    }
    unlock();
    return done;
}

int renameat(int at, const char *path, int to, const char *new) { return renameat2(at, path, to, new, 0); }
int rename(const char *path, const char *new) { return renameat2(AT_FDCWD, path, AT_FDCWD, new, 0); }

int linkat(int at, const char *path, int to, const char *new, int flags) {
    struct location there;
    if (!locate(to, new, &there)) return plain_linkat(at, path, to, new, flags);
    lock();
    struct stat found;
    int known = fstatat(at, path, &found, 0) == 0;
    if (take_space(1) < 1) {
        unlock();
        errno = ENOSPC;
        return -1;
    }
    int done = plain_linkat(at, path, to, new, flags);
    if (!done && known) {
        append_entry((struct entry){.kind = LINK, .file = found.st_ino, .folder = there.inode}, there.name, 0, 0);
    }
    unlock();
    return done;
}

int link(const char *path, const char *new) { return linkat(AT_FDCWD, path, AT_FDCWD, new, 0); }

/* Adds our variables to the environment of a child process, which may have its own. */
static char **environment(char *const variables[]) {
    if (!control) return (char **)variables;
    size_t count = 0;
    while (variables && variables[count]) count++;
    char **all = malloc((count + 4) * sizeof *all);
    if (!all) abort();
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        int ours = !strncmp(variables[i], "LD_PRELOAD=", 11) || !strncmp(variables[i], "TESTKIT_FAULTS", 14);
        if (!ours) all[length++] = variables[i];
    }
    all[length++] = preload;
    all[length++] = faults;
    all[length++] = watched;
    all[length] = 0;
    return all;
}

extern char **environ;

int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const arguments[], char *const variables[]) {
    REAL(int, "posix_spawn", pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
         char *const[], char *const[]);
    char **all = environment(variables);
    int done = real(child, path, actions, attributes, arguments, all);
    if (all != variables) free(all);
    return done;
}

int posix_spawnp(pid_t *child, const char *name, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[], char *const variables[]) {
    REAL(int, "posix_spawnp", pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
         char *const[], char *const[]);
    char **all = environment(variables);
    int done = real(child, name, actions, attributes, arguments, all);
    if (all != variables) free(all);
    return done;
}

int execve(const char *path, char *const arguments[], char *const variables[]) {
    REAL(int, "execve", const char *, char *const[], char *const[]);
    return real(path, arguments, environment(variables));
}

int execvpe(const char *name, char *const arguments[], char *const variables[]) {
    REAL(int, "execvpe", const char *, char *const[], char *const[]);
    return real(name, arguments, environment(variables));
}

int execv(const char *path, char *const arguments[]) { return execve(path, arguments, environ); }
int execvp(const char *name, char *const arguments[]) { return execvpe(name, arguments, environ); }
