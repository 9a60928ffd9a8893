/*
 * Who lives: a file beside the database of which every lease has one byte, locked by its owner as
 * long as the owner's session exists. The system drops the lock with the process, however it ends.
 *
 * Must not know: what a lease is for.
 * Invariant: open file description locks, so that two sessions of one process exclude each other
 * too, and closing some other descriptor of the file drops nothing.
 */
#include "store/sqlite/internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

static bool owner_file(struct tdd_sqlite *s)
{
    char path[PATH_BYTES_MAX];
    if (s->owner_fd >= 0) {
        return true;
    }
    const char *file = sqlite3_db_filename(s->db.handle, "main");
    if (!s->real_files || file == NULL || file[0] == '\0') {
        return false;
    }
    int len = snprintf(path, sizeof(path), "%s-tidings-owner", file);
    struct stat st;
    if (len < 0 || len >= PATH_BYTES_MAX || stat(file, &st) != 0) {
        return false;
    }
    if (s->db.options.read_only) {
        s->owner_fd = open(path, O_RDONLY | O_CLOEXEC);
    } else {
        /* Whoever may write the database may own its leases. */
        s->owner_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, st.st_mode & 0666);
    }
    return s->owner_fd >= 0;
}

static struct flock byte_of(int64_t slot, short type)
{
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)slot, .l_len = 1, .l_pid = 0};
}

enum tdd_lock tdd_owner_lock(struct tdd_sqlite *s, int64_t slot)
{
    struct flock lock = byte_of(slot, F_WRLCK);
    if (!owner_file(s)) {
        return TDD_LOCK_NONE;
    }
    return fcntl(s->owner_fd, F_OFD_SETLK, &lock) == 0 ? TDD_LOCK_OURS : TDD_LOCK_OTHERS;
}

enum tdd_lock tdd_owner_probe(struct tdd_sqlite *s, int64_t slot)
{
    struct flock lock = byte_of(slot, F_WRLCK);
    if (!owner_file(s) || fcntl(s->owner_fd, F_OFD_GETLK, &lock) != 0) {
        return TDD_LOCK_NONE;
    }
    return lock.l_type == F_UNLCK ? TDD_LOCK_OURS : TDD_LOCK_OTHERS;
}

void tdd_owner_unlock(struct tdd_sqlite *s, int64_t slot)
{
    struct flock lock = byte_of(slot, F_UNLCK);
    if (s->owner_fd >= 0) {
        (void)fcntl(s->owner_fd, F_OFD_SETLK, &lock);
    }
}

void tdd_owner_close(struct tdd_sqlite *s)
{
    if (s->owner_fd > 0) {
        (void)close(s->owner_fd);
    }
    s->owner_fd = -1;
}
