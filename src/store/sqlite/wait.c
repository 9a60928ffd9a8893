/*
 * The waker: sleeps until the WAL file was written to, the deadline, or an interrupt.
 *
 * Must not know: what was written; it reads no data, a wake-up is only a hint.
 * Invariant: an interrupt that comes before the call is not lost.
 */
#include "store/sqlite/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES_MAX 4096

enum td_err tdd_wait_open(struct tdd_sqlite *s, struct td_error *err)
{
    s->inotify_fd = -1;
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->wake_fd < 0) {
        s->fds_open = false;
        return tdd_fail(TD_ERR_UNAVAILABLE, "open", err, "cannot make an eventfd: %s",
                        strerrordesc_np(errno));
    }
    s->fds_open = true;
    return TD_OK;
}

void tdd_wait_close(struct tdd_sqlite *s)
{
    if (s->fds_open) {
        (void)close(s->wake_fd);
        if (s->inotify_fd >= 0) {
            (void)close(s->inotify_fd);
        }
        s->fds_open = false;
    }
}

void tdd_wait_interrupt(struct tdd_sqlite *s)
{
    uint64_t one = 1;
    if (s->fds_open) {
        /* Fails only when it is set already. */
        ssize_t n = write(s->wake_fd, &one, sizeof(one));
        (void)n;
    }
}

/* The WAL exists as long as our connection is open, and is never replaced meanwhile. Without a
 * watch (limits of the system, a VFS without files) the deadline alone ends the wait. */
static void watch_wal(struct tdd_sqlite *s)
{
    char path[PATH_BYTES_MAX];
    const char *file = sqlite3_db_filename(s->db.handle, "main");
    int len = snprintf(path, sizeof(path), "%s-wal", file != NULL ? file : "");
    if (!s->real_files || len <= 4 || len >= PATH_BYTES_MAX) {
        return;
    }
    s->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (s->inotify_fd >= 0 && inotify_add_watch(s->inotify_fd, path, IN_MODIFY) < 0) {
        (void)close(s->inotify_fd);
        s->inotify_fd = -1;
    }
}

static void drain(int fd)
{
    char events[4096];
    while (read(fd, events, sizeof(events)) > 0) {
    }
}

enum td_err tdd_wait(struct td_store *store, td_time_us deadline_us, bool *ret_woken,
                     struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    if (s->inotify_fd < 0) {
        watch_wal(s);
        if (s->inotify_fd >= 0) {
            /* What was committed before the watch has left no event. */
            *ret_woken = true;
            return TD_OK;
        }
    }
    struct pollfd fds[2] = {
        {.fd = s->wake_fd, .events = POLLIN},
        {.fd = s->inotify_fd, .events = POLLIN}, /* poll passes over a negative one */
    };
    td_time_us left = deadline_us == TD_TIME_NONE ? INT64_MAX : deadline_us - tdd_mono(s);
    left = left > 0 ? left : 0;
    struct timespec timeout = {.tv_sec = (time_t)(left / TD_SECOND_US),
                               .tv_nsec = (long)(left % TD_SECOND_US) * 1000};
    int n = ppoll(fds, 2, deadline_us == TD_TIME_NONE ? NULL : &timeout, NULL);
    if (n < 0 && errno != EINTR) {
        return tdd_fail(TD_ERR_UNAVAILABLE, "wait", err, "cannot wait: %s", strerrordesc_np(errno));
    }
    if (n > 0 && fds[0].revents != 0) {
        drain(s->wake_fd);
        __atomic_store_n(&s->db.interrupted, 0, __ATOMIC_RELEASE);
        return tdd_fail(TD_ERR_INTERRUPTED, "wait", err, "the wait was interrupted");
    }
    bool woken = n > 0 && fds[1].revents != 0;
    if (woken) {
        drain(s->inotify_fd);
    }
    *ret_woken = woken;
    return TD_OK;
}
