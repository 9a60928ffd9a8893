/* SQLite in the conformance suite: a file in a folder of its own. */
#include "store_rig.h"

#include <dirent.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/sqlite/driver.h"

static void rig_make(struct store_world *w)
{
    (void)snprintf(w->folder, sizeof(w->folder), "/tmp/tidings-store-XXXXXX");
    assert_non_null(mkdtemp(w->folder));
    (void)snprintf(w->location, sizeof(w->location), "%s/shop.db", w->folder);
}

static void rig_remove(struct store_world *w)
{
    (void)sqlite3_close(w->app_connection);
    DIR *folder = opendir(w->folder);
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder)) {
        char path[600];
        (void)snprintf(path, sizeof(path), "%s/%s", w->folder, e->d_name);
        (void)unlink(path);
    }
    (void)closedir(folder);
    (void)rmdir(w->folder);
}

static sqlite3 *connection(struct store_world *w)
{
    if (w->app_connection == NULL) {
        sqlite3 *handle = NULL;
        assert_int_equal(sqlite3_open(w->location, &handle), SQLITE_OK);
        (void)sqlite3_busy_timeout(handle, 5000);
        (void)sqlite3_exec(handle, "PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL);
        w->app_connection = handle;
    }
    return w->app_connection;
}

static void rig_app(struct store_world *w, const char *sql)
{
    char *why = NULL;
    if (sqlite3_exec(connection(w), sql, NULL, NULL, &why) != SQLITE_OK) {
        print_error("%s: %s\n", sql, why);
        sqlite3_free(why);
        fail();
    }
}

static const char *rig_ask(struct store_world *w, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    w->text[0] = '\0';
    if (sqlite3_prepare_v2(connection(w), sql, -1, &stmt, NULL) != SQLITE_OK) {
        print_error("%s: %s\n", sql, sqlite3_errmsg(connection(w)));
        fail();
    }
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(stmt, 0);
        (void)snprintf(w->text, sizeof(w->text), "%s", text != NULL ? (const char *)text : "NULL");
    }
    (void)sqlite3_finalize(stmt);
    return w->text;
}

const struct store_rig store_rig_sqlite = {
    .name = "sqlite",
    .driver = &tdd_sqlite_store,
    .make = rig_make,
    .remove = rig_remove,
    .app = rig_app,
    .ask = rig_ask,
};
