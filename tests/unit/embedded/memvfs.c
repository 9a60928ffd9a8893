/* See memvfs.h. One global file system, one mutex: it is a test. */
#include "memvfs.h"

#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 16
#define SECTOR 512
#define SHM_REGIONS_MAX 64

struct image {
    unsigned char *data;
    size_t size, cap;
};

struct node {
    char name[512];
    bool exists;
    struct image now;     /* as the program sees it */
    struct image durable; /* as the disk has it */
    unsigned char *dirty; /* a byte a sector of `now` */
    size_t dirty_cap;
    unsigned opens;
    /* Locks of the database file, and of the shared memory. */
    unsigned shared;
    bool reserved, pending, exclusive;
    void *shm[SHM_REGIONS_MAX];
    unsigned shm_shared[SQLITE_SHM_NLOCK];
    bool shm_exclusive[SQLITE_SHM_NLOCK];
    unsigned shm_users;
};

struct mem_file {
    sqlite3_file base;
    struct node *node;
    int lock;
    unsigned shm_shared, shm_exclusive; /* masks of ours */
    bool shm_mapped;
    bool delete_on_close;
    uint64_t epoch; /* of the power */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct node nodes[FILES_MAX];
static uint64_t power_epoch = 1;
static bool power_off, fail_sync, lie_sync;
static size_t size_limit, sync_count, cut_after;

static bool dead(const struct mem_file *f)
{
    return power_off || f->epoch != power_epoch;
}

/* Counts a write or a sync; the cut comes before it. */
static void tick(void)
{
    if (cut_after > 0 && --cut_after == 0) {
        power_off = true;
    }
}

static size_t total_size(void)
{
    size_t total = 0;
    for (size_t i = 0; i < FILES_MAX; i++) {
        total += nodes[i].exists ? nodes[i].now.size : 0;
    }
    return total;
}

static void reserve(struct image *m, size_t size)
{
    if (size > m->cap) {
        size_t cap = m->cap > 0 ? m->cap : 4096;
        while (cap < size) {
            cap *= 2;
        }
        m->data = realloc(m->data, cap);
        if (m->data == NULL) {
            abort();
        }
        memset(m->data + m->cap, 0, cap - m->cap);
        m->cap = cap;
    }
}

static void image_resize(struct image *m, size_t size)
{
    reserve(m, size);
    if (size < m->size) {
        memset(m->data + size, 0, m->size - size);
    }
    m->size = size;
}

static void mark_dirty(struct node *n, size_t from, size_t len)
{
    size_t last = (from + len) / SECTOR + 1;
    if (last > n->dirty_cap) {
        size_t cap = last * 2;
        n->dirty = realloc(n->dirty, cap);
        if (n->dirty == NULL) {
            abort();
        }
        memset(n->dirty + n->dirty_cap, 0, cap - n->dirty_cap);
        n->dirty_cap = cap;
    }
    for (size_t s = from / SECTOR; s <= (from + len - 1) / SECTOR; s++) {
        n->dirty[s] = 1;
    }
}

/* Sectors that were written since the last sync go to the disk: all, or by chance. */
static void flush(struct node *n, unsigned keep, uint64_t *seed)
{
    if (keep == 100) {
        image_resize(&n->durable, n->now.size);
    }
    for (size_t s = 0; s < n->dirty_cap; s++) {
        size_t at = s * SECTOR;
        if (n->dirty[s] == 0 || at >= n->now.size) {
            continue;
        }
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        if (keep < 100 && (*seed >> 33) % 100 >= keep) {
            continue;
        }
        size_t len = n->now.size - at < SECTOR ? n->now.size - at : SECTOR;
        if (n->durable.size < at + len) {
            image_resize(&n->durable, at + len);
        }
        memcpy(n->durable.data + at, n->now.data + at, len);
    }
    if (n->dirty_cap > 0) {
        memset(n->dirty, 0, n->dirty_cap);
    }
}

/* ---- files ---- */

static int mem_close(sqlite3_file *file)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)pthread_mutex_lock(&lock);
    if (--f->node->opens == 0) {
        f->node->shared = 0;
        f->node->reserved = f->node->pending = f->node->exclusive = false;
    }
    if (f->delete_on_close) {
        f->node->exists = false;
        image_resize(&f->node->now, 0);
    }
    (void)pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static int mem_read(sqlite3_file *file, void *to, int amount, sqlite3_int64 offset)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)pthread_mutex_lock(&lock);
    size_t at = (size_t)offset;
    size_t want = (size_t)amount;
    size_t have = at < f->node->now.size ? f->node->now.size - at : 0;
    if (dead(f)) {
        rc = SQLITE_IOERR_READ;
    } else {
        size_t n = have < want ? have : want;
        if (n > 0) {
            memcpy(to, f->node->now.data + at, n);
        }
        if (n < want) {
            memset((char *)to + n, 0, want - n);
            rc = SQLITE_IOERR_SHORT_READ;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int mem_write(sqlite3_file *file, const void *from, int amount, sqlite3_int64 offset)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)pthread_mutex_lock(&lock);
    size_t end = (size_t)offset + (size_t)amount;
    size_t size = f->node->now.size;
    tick();
    if (dead(f)) {
        rc = SQLITE_IOERR_WRITE;
    } else if (size_limit > 0 && end > size && total_size() + (end - size) > size_limit) {
        rc = SQLITE_FULL;
    } else {
        if (end > size) {
            image_resize(&f->node->now, end);
        }
        memcpy(f->node->now.data + offset, from, (size_t)amount);
        mark_dirty(f->node, (size_t)offset, (size_t)amount);
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int mem_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)pthread_mutex_lock(&lock);
    bool bad = dead(f);
    if (!bad) {
        /* What comes into the place of the cut part is new. */
        if (f->node->now.size > (size_t)size) {
            mark_dirty(f->node, (size_t)size, f->node->now.size - (size_t)size);
        }
        image_resize(&f->node->now, (size_t)size);
    }
    (void)pthread_mutex_unlock(&lock);
    return bad ? SQLITE_IOERR_TRUNCATE : SQLITE_OK;
}

static int mem_sync(sqlite3_file *file, int flags)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)flags;
    (void)pthread_mutex_lock(&lock);
    tick();
    sync_count++;
    if (dead(f) || fail_sync) {
        rc = SQLITE_IOERR_FSYNC;
    } else if (!lie_sync) {
        uint64_t seed = 1;
        flush(f->node, 100, &seed);
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int mem_file_size(sqlite3_file *file, sqlite3_int64 *ret)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)pthread_mutex_lock(&lock);
    bool bad = dead(f);
    *ret = (sqlite3_int64)f->node->now.size;
    (void)pthread_mutex_unlock(&lock);
    return bad ? SQLITE_IOERR_FSTAT : SQLITE_OK;
}

static int mem_lock(sqlite3_file *file, int level)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)pthread_mutex_lock(&lock);
    struct node *n = f->node;
    if (level > f->lock && level == SQLITE_LOCK_SHARED) {
        rc = n->pending || n->exclusive ? SQLITE_BUSY : SQLITE_OK;
        n->shared += rc == SQLITE_OK ? 1 : 0;
    } else if (level > f->lock && level == SQLITE_LOCK_RESERVED) {
        rc = n->reserved ? SQLITE_BUSY : SQLITE_OK;
        n->reserved = true;
    } else if (level > f->lock) {
        rc = n->shared > 1 ? SQLITE_BUSY : SQLITE_OK;
        n->exclusive = rc == SQLITE_OK;
    }
    if (rc == SQLITE_OK && level > f->lock) {
        f->lock = level;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int mem_unlock(sqlite3_file *file, int level)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)pthread_mutex_lock(&lock);
    struct node *n = f->node;
    if (level < f->lock) {
        n->exclusive = f->lock == SQLITE_LOCK_EXCLUSIVE ? false : n->exclusive;
        n->reserved = f->lock >= SQLITE_LOCK_RESERVED ? false : n->reserved;
        if (level == SQLITE_LOCK_NONE && n->shared > 0) {
            n->shared--;
        }
        f->lock = level;
    }
    (void)pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static int mem_check_reserved(sqlite3_file *file, int *ret)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)pthread_mutex_lock(&lock);
    *ret = f->node->reserved;
    (void)pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static int mem_control(sqlite3_file *file, int op, void *arg)
{
    (void)file;
    (void)op;
    (void)arg;
    return SQLITE_NOTFOUND;
}

static int mem_sector(sqlite3_file *file)
{
    (void)file;
    return SECTOR;
}

static int mem_traits(sqlite3_file *file)
{
    (void)file;
    return 0;
}

/* ---- shared memory ---- */

static int mem_shm_map(sqlite3_file *file, int region, int size, int extend, void volatile **ret)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    *ret = NULL;
    (void)pthread_mutex_lock(&lock);
    struct node *n = f->node;
    if (dead(f) || region >= SHM_REGIONS_MAX) {
        rc = SQLITE_IOERR_SHMMAP;
    } else {
        n->shm_users += f->shm_mapped ? 0 : 1;
        f->shm_mapped = true;
        if (n->shm[region] == NULL && extend != 0) {
            n->shm[region] = calloc(1, (size_t)size);
        }
        *ret = n->shm[region];
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static bool shm_free(const struct mem_file *f, int i, int flags)
{
    const struct node *n = f->node;
    unsigned bit = 1u << i;
    if ((flags & SQLITE_SHM_SHARED) != 0) {
        return !n->shm_exclusive[i] || (f->shm_exclusive & bit) != 0;
    }
    unsigned others = n->shm_shared[i] - ((f->shm_shared & bit) != 0 ? 1 : 0);
    return others == 0 && (!n->shm_exclusive[i] || (f->shm_exclusive & bit) != 0);
}

static void shm_set(struct mem_file *f, int i, int flags)
{
    struct node *n = f->node;
    unsigned bit = 1u << i;
    bool on = (flags & SQLITE_SHM_LOCK) != 0;
    if ((flags & SQLITE_SHM_SHARED) != 0) {
        bool had = (f->shm_shared & bit) != 0;
        if (on != had) {
            n->shm_shared[i] += on ? 1u : (unsigned)-1;
        }
        f->shm_shared = on ? f->shm_shared | bit : f->shm_shared & ~bit;
    } else {
        n->shm_exclusive[i] = on;
        f->shm_exclusive = on ? f->shm_exclusive | bit : f->shm_exclusive & ~bit;
    }
}

static int mem_shm_lock(sqlite3_file *file, int offset, int count, int flags)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)pthread_mutex_lock(&lock);
    for (int i = offset; i < offset + count && (flags & SQLITE_SHM_LOCK) != 0; i++) {
        rc = shm_free(f, i, flags) ? rc : SQLITE_BUSY;
    }
    for (int i = offset; i < offset + count && rc == SQLITE_OK; i++) {
        shm_set(f, i, flags);
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static void mem_shm_barrier(sqlite3_file *file)
{
    (void)file;
    (void)pthread_mutex_lock(&lock);
    (void)pthread_mutex_unlock(&lock);
}

static void shm_drop(struct node *n)
{
    for (size_t i = 0; i < SHM_REGIONS_MAX; i++) {
        free(n->shm[i]);
        n->shm[i] = NULL;
    }
    memset(n->shm_shared, 0, sizeof(n->shm_shared));
    memset(n->shm_exclusive, 0, sizeof(n->shm_exclusive));
}

static int mem_shm_unmap(sqlite3_file *file, int delete)
{
    struct mem_file *f = (struct mem_file *)file;
    (void)delete;
    (void)pthread_mutex_lock(&lock);
    if (f->shm_mapped && --f->node->shm_users == 0) {
        shm_drop(f->node);
    }
    f->shm_mapped = false;
    (void)pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = mem_close,
    .xRead = mem_read,
    .xWrite = mem_write,
    .xTruncate = mem_truncate,
    .xSync = mem_sync,
    .xFileSize = mem_file_size,
    .xLock = mem_lock,
    .xUnlock = mem_unlock,
    .xCheckReservedLock = mem_check_reserved,
    .xFileControl = mem_control,
    .xSectorSize = mem_sector,
    .xDeviceCharacteristics = mem_traits,
    .xShmMap = mem_shm_map,
    .xShmLock = mem_shm_lock,
    .xShmBarrier = mem_shm_barrier,
    .xShmUnmap = mem_shm_unmap,
};

/* ---- the file system ---- */

static struct node *find(const char *name)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (nodes[i].exists && strcmp(nodes[i].name, name) == 0) {
            return &nodes[i];
        }
    }
    return NULL;
}

static struct node *create(const char *name)
{
    for (size_t i = 0; i < FILES_MAX; i++) {
        if (!nodes[i].exists && nodes[i].opens == 0) {
            nodes[i].exists = true;
            (void)snprintf(nodes[i].name, sizeof(nodes[i].name), "%s", name);
            image_resize(&nodes[i].now, 0);
            image_resize(&nodes[i].durable, 0);
            return &nodes[i];
        }
    }
    return NULL;
}

static int vfs_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
                    int *ret_flags)
{
    struct mem_file *f = (struct mem_file *)file;
    int rc = SQLITE_OK;
    (void)vfs;
    memset(f, 0, sizeof(*f));
    (void)pthread_mutex_lock(&lock);
    const char *wanted = name != NULL ? name : "(temporary)";
    struct node *n = name != NULL ? find(wanted) : NULL;
    if (n == NULL && (flags & SQLITE_OPEN_CREATE) != 0 && !power_off) {
        n = create(wanted);
    }
    if (n == NULL || power_off) {
        rc = SQLITE_CANTOPEN;
    } else {
        n->opens++;
        *f = (struct mem_file){.base = {.pMethods = &methods},
                               .node = n,
                               .delete_on_close = (flags & SQLITE_OPEN_DELETEONCLOSE) != 0,
                               .epoch = power_epoch};
        if (ret_flags != NULL) {
            *ret_flags = flags;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *name, int sync_dir)
{
    (void)vfs;
    (void)sync_dir;
    (void)pthread_mutex_lock(&lock);
    struct node *n = find(name);
    int rc = power_off ? SQLITE_IOERR_DELETE : n == NULL ? SQLITE_IOERR_DELETE_NOENT : SQLITE_OK;
    if (rc == SQLITE_OK) {
        n->exists = false;
    }
    (void)pthread_mutex_unlock(&lock);
    return rc;
}

static int vfs_access(sqlite3_vfs *vfs, const char *name, int flags, int *ret)
{
    (void)vfs;
    (void)flags;
    (void)pthread_mutex_lock(&lock);
    const struct node *n = find(name);
    *ret = n != NULL && (flags != SQLITE_ACCESS_EXISTS || n->now.size > 0);
    (void)pthread_mutex_unlock(&lock);
    return SQLITE_OK;
}

static int vfs_full(sqlite3_vfs *vfs, const char *name, int size, char *ret)
{
    (void)vfs;
    return snprintf(ret, (size_t)size, "%s", name) < size ? SQLITE_OK : SQLITE_CANTOPEN;
}

static int vfs_random(sqlite3_vfs *vfs, int size, char *ret)
{
    static uint64_t state = 88172645463325252u;
    (void)vfs;
    (void)pthread_mutex_lock(&lock);
    for (int i = 0; i < size; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        ret[i] = (char)(unsigned char)(state & 0xff);
    }
    (void)pthread_mutex_unlock(&lock);
    return size;
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    (void)vfs;
    return us;
}

static int vfs_time(sqlite3_vfs *vfs, sqlite3_int64 *ret)
{
    (void)vfs;
    *ret = INT64_C(210866760000000);
    return SQLITE_OK;
}

static int vfs_error(sqlite3_vfs *vfs, int size, char *ret)
{
    (void)vfs;
    if (size > 0) {
        ret[0] = '\0';
    }
    return 0;
}

void memvfs_register(void)
{
    static sqlite3_vfs vfs = {
        .iVersion = 2,
        .szOsFile = sizeof(struct mem_file),
        .mxPathname = 500,
        .zName = MEMVFS_NAME,
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full,
        .xRandomness = vfs_random,
        .xSleep = vfs_sleep,
        .xGetLastError = vfs_error,
        .xCurrentTimeInt64 = vfs_time,
    };
    (void)sqlite3_vfs_register(&vfs, 0);
}

void memvfs_reset(void)
{
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < FILES_MAX; i++) {
        free(nodes[i].now.data);
        free(nodes[i].durable.data);
        free(nodes[i].dirty);
        shm_drop(&nodes[i]);
        memset(&nodes[i], 0, sizeof(nodes[i]));
    }
    power_off = fail_sync = lie_sync = false;
    size_limit = sync_count = cut_after = 0;
    power_epoch++;
    (void)pthread_mutex_unlock(&lock);
}

void memvfs_power_off(void)
{
    (void)pthread_mutex_lock(&lock);
    power_off = true;
    (void)pthread_mutex_unlock(&lock);
}

void memvfs_power_on(uint64_t seed, unsigned keep)
{
    (void)pthread_mutex_lock(&lock);
    for (size_t i = 0; i < FILES_MAX; i++) {
        struct node *n = &nodes[i];
        if (n->exists) {
            flush(n, keep < 100 ? keep : 99, &seed);
            image_resize(&n->now, n->durable.size);
            if (n->durable.size > 0) {
                memcpy(n->now.data, n->durable.data, n->durable.size);
            }
        }
    }
    power_off = false;
    cut_after = 0;
    power_epoch++;
    (void)pthread_mutex_unlock(&lock);
}

static void set(bool *flag, bool on)
{
    (void)pthread_mutex_lock(&lock);
    *flag = on;
    (void)pthread_mutex_unlock(&lock);
}

void memvfs_fail_sync(bool on)
{
    set(&fail_sync, on);
}

void memvfs_lie_sync(bool on)
{
    set(&lie_sync, on);
}

void memvfs_limit(size_t bytes)
{
    (void)pthread_mutex_lock(&lock);
    size_limit = bytes;
    (void)pthread_mutex_unlock(&lock);
}

size_t memvfs_size(void)
{
    (void)pthread_mutex_lock(&lock);
    size_t total = total_size();
    (void)pthread_mutex_unlock(&lock);
    return total;
}

size_t memvfs_syncs(void)
{
    (void)pthread_mutex_lock(&lock);
    size_t n = sync_count;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

void memvfs_cut_after(size_t calls)
{
    (void)pthread_mutex_lock(&lock);
    cut_after = calls;
    (void)pthread_mutex_unlock(&lock);
}

bool memvfs_is_off(void)
{
    (void)pthread_mutex_lock(&lock);
    bool off = power_off;
    (void)pthread_mutex_unlock(&lock);
    return off;
}
