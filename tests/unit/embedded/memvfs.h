/*
 * A file system in memory for SQLite that loses power: what was written and not synced is lost, or
 * only some sectors of it survive. It can also fail syncs and be full. Any thread.
 */
#ifndef MEMVFS_H
#define MEMVFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MEMVFS_NAME "tidings-test-memory"

void memvfs_register(void);
/* Forget all files and faults; all connections are closed. */
void memvfs_reset(void);

/* From now on every call of an open file fails, as after a power cut. */
void memvfs_power_off(void);
/* Back, with what was synced; keep: percentage of the unsynced sectors that survive as well. */
void memvfs_power_on(uint64_t seed, unsigned keep);

void memvfs_fail_sync(bool on);
/* Syncs succeed and do nothing: the negative control. */
void memvfs_lie_sync(bool on);
/* Total size of all files at most; 0: no limit. */
void memvfs_limit(size_t bytes);
size_t memvfs_size(void);
size_t memvfs_syncs(void);
/* Power goes off by itself at the n-th write or sync from now; 0: never. */
void memvfs_cut_after(size_t calls);
bool memvfs_is_off(void);

#endif
