/*
 * A SQLite VFS over the default one that counts syncs and fails on demand.
 *
 * Must not know: whose files they are.
 */
#ifndef TESTS_FAULT_VFS_H
#define TESTS_FAULT_VFS_H

#include <sqlite3.h>

struct fault_vfs {
    int writes_until_full; /* writes that still succeed, then SQLITE_FULL; -1: no limit */
    int fail_syncs;        /* xSync gives SQLITE_IOERR_FSYNC */
    int main_syncs;        /* so many so far */
    int wal_syncs;
};

/* Registers the VFS "fault" once; its one state is returned, set back to "no faults". */
struct fault_vfs *fault_vfs_use(void);

#endif
