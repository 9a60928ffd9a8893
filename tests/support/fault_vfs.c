/* Forwarding all of a file's methods, with faults before some. */
#include "fault_vfs.h"

#include <string.h>

struct fault_file {
    sqlite3_file base;
    int flags;
    sqlite3_file *real; /* behind this struct */
};

static struct fault_vfs state;
static sqlite3_vfs vfs;
static sqlite3_vfs *real_vfs;

static sqlite3_file *real_of(sqlite3_file *f)
{
    return ((struct fault_file *)f)->real;
}

static int on_close(sqlite3_file *f)
{
    sqlite3_file *r = real_of(f);
    return r->pMethods != NULL ? r->pMethods->xClose(r) : SQLITE_OK;
}

static int on_read(sqlite3_file *f, void *data, int len, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), data, len, at);
}

static int on_write(sqlite3_file *f, const void *data, int len, sqlite3_int64 at)
{
    if (state.writes_until_full == 0) {
        return SQLITE_FULL;
    }
    if (state.writes_until_full > 0) {
        state.writes_until_full--;
    }
    return real_of(f)->pMethods->xWrite(real_of(f), data, len, at);
}

static int on_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    return real_of(f)->pMethods->xTruncate(real_of(f), size);
}

static int on_sync(sqlite3_file *f, int flags)
{
    if (state.fail_syncs) {
        return SQLITE_IOERR_FSYNC;
    }
    state.main_syncs += (((struct fault_file *)f)->flags & SQLITE_OPEN_MAIN_DB) != 0;
    state.wal_syncs += (((struct fault_file *)f)->flags & SQLITE_OPEN_WAL) != 0;
    return real_of(f)->pMethods->xSync(real_of(f), flags);
}

static int on_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), size);
}

static int on_lock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xLock(real_of(f), level);
}

static int on_unlock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}

static int on_reserved(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}

static int on_control(sqlite3_file *f, int op, void *arg)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, arg);
}

static int on_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}

static int on_characteristics(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}

static int on_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, out);
}

static int on_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}

static void on_shm_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}

static int on_shm_unmap(sqlite3_file *f, int del)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), del);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2,
    .xClose = on_close,
    .xRead = on_read,
    .xWrite = on_write,
    .xTruncate = on_truncate,
    .xSync = on_sync,
    .xFileSize = on_size,
    .xLock = on_lock,
    .xUnlock = on_unlock,
    .xCheckReservedLock = on_reserved,
    .xFileControl = on_control,
    .xSectorSize = on_sector,
    .xDeviceCharacteristics = on_characteristics,
    .xShmMap = on_shm_map,
    .xShmLock = on_shm_lock,
    .xShmBarrier = on_shm_barrier,
    .xShmUnmap = on_shm_unmap,
};

static int on_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    struct fault_file *file = (struct fault_file *)f;
    (void)v;
    file->real = (sqlite3_file *)(file + 1);
    file->flags = flags;
    memset(file->real, 0, (size_t)real_vfs->szOsFile);
    int rc = real_vfs->xOpen(real_vfs, name, file->real, flags, out);
    file->base.pMethods = file->real->pMethods != NULL ? &methods : NULL;
    return rc;
}

struct fault_vfs *fault_vfs_use(void)
{
    if (real_vfs == NULL) {
        real_vfs = sqlite3_vfs_find(NULL);
        vfs = *real_vfs;
        vfs.zName = "fault";
        vfs.pNext = NULL;
        vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
        vfs.xOpen = on_open;
        (void)sqlite3_vfs_register(&vfs, 0);
    }
    state = (struct fault_vfs){.writes_until_full = -1};
    return &state;
}
