/*
 * The tables: which version a database has, whose it is, and making them.
 *
 * Must not know: what the tables are used for.
 * Invariants: migrations are numbered from 1 without gaps and run in one transaction; each leaves a
 * row "migration N" with the checksum of its text in tidings_schema, so a changed text is seen.
 */
#include "store/sqlite/internal.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/str.h"
#include "base/uuid.h"

#define SCHEMA_SQL_BYTES_MAX (256 * 1024)
#define CHECKSUM_BYTES 41
#define NOW_SQL "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"

extern const char tdi_embed_sqlite_0001[];
extern const size_t tdi_embed_sqlite_0001_len;

static const char *const migrations[] = {
    tdi_embed_sqlite_0001,
};

#define MIGRATIONS_COUNT ((int32_t)(sizeof(migrations) / sizeof(migrations[0])))

int32_t tdd_schema_wanted(void)
{
    return MIGRATIONS_COUNT;
}

/* Hexadecimal SHA-1 of the text of migration `number` (1..). */
static void checksum_of(int32_t number, char out[CHECKSUM_BYTES])
{
    const char *text = migrations[number - 1];
    unsigned char digest[20];
    struct tdi_sha1 sha;
    tdi_sha1_init(&sha);
    tdi_sha1_add(&sha, text, strlen(text));
    tdi_sha1_end(&sha, digest);
    for (size_t i = 0; i < sizeof(digest); i++) {
        (void)snprintf(out + 2 * i, 3, "%02x", digest[i]);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum td_err table_exists(struct tdd_sqlite *s, bool *ret, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    enum td_err rc = tdd_stmt(s, TDD_SQL_SCHEMA_EXISTS, &stmt, "open", err);
    if (rc == TD_OK) {
        rc = tdd_step(s, stmt, ret, "open", err);
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static enum td_err take_row(struct tdd_sqlite *s, struct td_str name, struct td_str value,
                            struct td_error *err)
{
    static const char prefix[] = "migration ";
    if (tdi_str_is(name, "service")) {
        (void)snprintf(s->service, sizeof(s->service), "%.*s", (int)value.len, value.data);
    } else if (tdi_str_is(name, "identity")) {
        (void)snprintf(s->identity, sizeof(s->identity), "%.*s", (int)value.len, value.data);
    } else if (tdi_str_starts(name, prefix)) {
        int64_t number = 0;
        struct td_str digits = {name.data + sizeof(prefix) - 1, name.len - (sizeof(prefix) - 1)};
        if (!tdi_str_to_i64(digits, &number) || number < 1 || number > INT32_MAX) {
            return tdd_fail(TD_ERR_FOREIGN, "open", err,
                            "%s: the table tidings_schema is not one of Tidings", s->db.path);
        }
        char sum[CHECKSUM_BYTES];
        if (number <= MIGRATIONS_COUNT) {
            checksum_of((int32_t)number, sum);
            if (!tdi_str_is(value, sum)) {
                return tdd_fail(TD_ERR_SCHEMA, "open", err,
                                "%s: its tables were made by another build of Tidings "
                                "(migration %d differs); use the one that made them",
                                s->db.path, (int)number);
            }
        }
        s->schema = (int32_t)number > s->schema ? (int32_t)number : s->schema;
    }
    return TD_OK;
}

static enum td_err read_rows(struct tdd_sqlite *s, struct td_error *err)
{
    sqlite3_stmt *stmt = NULL;
    s->schema = 0;
    s->service[0] = '\0';
    s->identity[0] = '\0';
    bool row = false;
    enum td_err rc = table_exists(s, &row, err);
    if (rc != TD_OK || !row) {
        return rc;
    }
    rc = tdi_db_statement(&s->db, TDD_SQL_SCHEMA_READ, tdd_sql_text[TDD_SQL_SCHEMA_READ], &stmt,
                          err);
    if (rc == TD_ERR_STATEMENT) {
        return tdd_fail(TD_ERR_FOREIGN, "open", err,
                        "%s: it has a table tidings_schema that is not one of Tidings", s->db.path);
    }
    while (rc == TD_OK) {
        rc = tdd_step(s, stmt, &row, "open", err);
        if (rc != TD_OK || !row) {
            break;
        }
        rc = take_row(s, tdi_column_str(stmt, 0), tdi_column_str(stmt, 1), err);
    }
    if (stmt != NULL) {
        (void)sqlite3_reset(stmt);
    }
    return rc;
}

static enum td_err check_service(struct tdd_sqlite *s, struct td_error *err)
{
    if (s->wanted[0] != '\0' && s->service[0] != '\0' && strcmp(s->wanted, s->service) != 0) {
        return tdd_fail(TD_ERR_FOREIGN, "open", err,
                        "%s: its tables belong to the service '%s', the configuration says '%s'",
                        s->db.path, s->service, s->wanted);
    }
    return TD_OK;
}

enum td_err tdd_schema_load(struct tdd_sqlite *s, const struct td_store_options *o,
                            struct td_error *err)
{
    enum td_err rc = read_rows(s, err);
    if (rc == TD_OK) {
        rc = check_service(s, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    if (s->schema > MIGRATIONS_COUNT) {
        return tdd_fail(TD_ERR_SCHEMA, "open", err,
                        "%s: its tables are of schema %d, newer than this version of Tidings knows "
                        "(%d); upgrade tidings",
                        s->db.path, (int)s->schema, (int)MIGRATIONS_COUNT);
    }
    if (s->schema == MIGRATIONS_COUNT || o->schema_any) {
        return TD_OK;
    }
    if (s->schema == 0) {
        return tdd_fail(TD_ERR_SCHEMA, "open", err,
                        "%s: it has no tables of Tidings; run tidings init", s->db.path);
    }
    return tdd_fail(TD_ERR_SCHEMA, "open", err,
                    "%s: its tables are of schema %d, this version needs %d; run tidings init",
                    s->db.path, (int)s->schema, (int)MIGRATIONS_COUNT);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void add_quoted(struct tdi_buf *b, const char *text)
{
    tdi_buf_add_char(b, '\'');
    for (const char *p = text; *p != '\0'; p++) {
        if (*p == '\'') {
            tdi_buf_add_char(b, '\'');
        }
        tdi_buf_add_char(b, *p);
    }
    tdi_buf_add_char(b, '\'');
}

/* What brings a database of schema `from` up to date. identity NULL: made by the database. */
static void build_sql(struct tdi_buf *b, int32_t from, const char *service, const char *identity)
{
    for (int32_t n = from + 1; n <= MIGRATIONS_COUNT; n++) {
        char sum[CHECKSUM_BYTES];
        checksum_of(n, sum);
        tdi_buf_add_cstr(b, migrations[n - 1]);
        tdi_buf_printf(b,
                       "\nINSERT INTO tidings_schema(name, value, at) VALUES ('migration %d', "
                       "'%s', " NOW_SQL ");\n",
                       (int)n, sum);
    }
    tdi_buf_add_cstr(b, "INSERT INTO tidings_schema(name, value, at) VALUES ('service', ");
    add_quoted(b, service);
    tdi_buf_add_cstr(b, ", " NOW_SQL ") ON CONFLICT(name) DO NOTHING;\n"
                        "INSERT INTO tidings_schema(name, value, at) VALUES ('identity', ");
    if (identity != NULL) {
        add_quoted(b, identity);
    } else {
        tdi_buf_add_cstr(b, "lower(hex(randomblob(16)))");
    }
    tdi_buf_add_cstr(b, ", " NOW_SQL ") ON CONFLICT(name) DO NOTHING;\n");
}

static enum td_err migrate_in_tx(struct tdd_sqlite *s, struct td_error *err)
{
    /* Somebody else may have done it between open and here. */
    enum td_err rc = read_rows(s, err);
    if (rc == TD_OK) {
        rc = check_service(s, err);
    }
    if (rc != TD_OK) {
        return rc;
    }
    char identity[TDI_UUID_TEXT_LEN + 1];
    if (s->random != NULL) {
        tdi_uuid7(s->random, tdd_now(s), identity);
    }
    struct tdi_buf sql;
    tdi_buf_init(&sql, SCHEMA_SQL_BYTES_MAX);
    build_sql(&sql, s->schema, s->wanted, s->random != NULL ? identity : NULL);
    if (sql.failed) {
        rc = tdd_nomem("migrate", err);
    } else {
        rc = tdi_db_exec(&s->db, sql.data, "migrate", err);
    }
    tdi_buf_release(&sql);
    if (rc == TD_ERR_STATEMENT) {
        rc =
            tdd_fail(TD_ERR_FOREIGN, "migrate", err, "%s: the tables of Tidings cannot be made: %s",
                     s->db.path, sqlite3_errmsg(s->db.handle));
    }
    return rc == TD_OK ? read_rows(s, err) : rc;
}

enum td_err tdd_migrate(struct td_store *store, struct td_error *err)
{
    struct tdd_sqlite *s = tdd_session(store);
    if (s->wanted[0] == '\0') {
        return tdd_fail(TD_ERR_USAGE, "migrate", err, "the tables need the name of the service");
    }
    enum td_err rc = tdd_tx_begin(s, "migrate", err);
    if (rc != TD_OK) {
        return rc;
    }
    return tdd_tx_end(s, migrate_in_tx(s, err), true, err);
}

enum td_err tdd_schema_sql(const struct td_store_options *o, struct tdi_arena *a,
                           struct td_str *ret_sql, struct td_error *err)
{
    char service[TDD_SERVICE_BYTES_MAX + 1];
    if (o->service.len == 0 || o->service.len > TDD_SERVICE_BYTES_MAX) {
        return tdd_fail(TD_ERR_USAGE, "schema_sql", err,
                        "the tables need the name of the service, of at most %d bytes",
                        TDD_SERVICE_BYTES_MAX);
    }
    (void)snprintf(service, sizeof(service), "%.*s", (int)o->service.len, o->service.data);
    struct tdi_buf sql;
    tdi_buf_init(&sql, SCHEMA_SQL_BYTES_MAX);
    tdi_buf_add_cstr(&sql, "PRAGMA journal_mode=WAL;\nBEGIN IMMEDIATE;\n");
    build_sql(&sql, 0, service, NULL);
    tdi_buf_add_cstr(&sql, "COMMIT;\n");
    enum td_err rc = TD_OK;
    if (sql.failed || !tdi_arena_str(a, tdi_buf_str(&sql), ret_sql)) {
        rc = tdd_nomem("schema_sql", err);
    }
    tdi_buf_release(&sql);
    return rc;
}
