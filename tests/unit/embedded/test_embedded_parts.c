/* The pure parts of the embedded broker: frames of the socket, the dedupe window, the registry. */
#include <string.h>

#include "../../conformance/broker_rig.h"
#include "base/buf.h"
#include "broker/embedded/dedupe.h"
#include "broker/embedded/frame.h"

/* ---- frames ---- */

static struct tdd_emb_frame sample_publish(void)
{
    return (struct tdd_emb_frame){.token = UINT64_C(0x0102030405060708),
                                  .epoch = 7,
                                  .replay = true,
                                  .published_at = TD_TIME_NONE,
                                  .topic = TD_STR_LIT("orders"),
                                  .envelope = TD_STR_LIT("{\"id\":\"1\"}"),
                                  .body = {.data = "a\0b", .len = 3}};
}

static void frames_come_back_as_they_were(void **state)
{
    struct tdi_buf b;
    struct tdd_emb_frame f = sample_publish();
    struct tdd_emb_frame g;
    size_t used = 0;
    (void)state;
    tdi_buf_init(&b, 4096);
    tdd_emb_frame_publish(&b, &f);
    assert_int_equal(tdd_emb_frame_parse(b.data, b.len, TDD_EMB_FRAME_MAX, &g, &used),
                     TDD_EMB_FRAME_GOOD);
    assert_int_equal(used, b.len);
    assert_int_equal(g.kind, TDD_EMB_FRAME_PUBLISH);
    assert_true(g.token == f.token && g.epoch == 7 && g.replay);
    assert_true(g.published_at == TD_TIME_NONE);
    assert_true(tdi_str_eq(g.topic, f.topic));
    assert_true(tdi_str_eq(g.envelope, f.envelope));
    assert_int_equal(g.body.len, 3);
    assert_memory_equal(g.body.data, "a\0b", 3);
    /* No body and a body of no bytes are two things. */
    f.body = TD_BYTES_NONE;
    tdi_buf_clear(&b);
    tdd_emb_frame_publish(&b, &f);
    assert_int_equal(tdd_emb_frame_parse(b.data, b.len, TDD_EMB_FRAME_MAX, &g, &used),
                     TDD_EMB_FRAME_GOOD);
    assert_null(g.body.data);
    f.body = (struct td_bytes){.data = "", .len = 0};
    tdi_buf_clear(&b);
    tdd_emb_frame_publish(&b, &f);
    assert_int_equal(tdd_emb_frame_parse(b.data, b.len, TDD_EMB_FRAME_MAX, &g, &used),
                     TDD_EMB_FRAME_GOOD);
    assert_non_null(g.body.data);
    struct td_published a = {.token = 9,
                             .result = TD_PUBLISH_REFUSED,
                             .code = TD_ERR_CLOSED,
                             .class_ = TD_CLASS_FATAL,
                             .evidence = UINT64_MAX};
    tdi_buf_clear(&b);
    tdd_emb_frame_answer(&b, &a);
    tdd_emb_frame_refuse(&b, TD_ERR_BUSY, TD_STR_LIT("too many"));
    assert_int_equal(tdd_emb_frame_parse(b.data, b.len, 1024, &g, &used), TDD_EMB_FRAME_GOOD);
    assert_true(g.answer.token == 9 && g.answer.evidence == UINT64_MAX);
    assert_int_equal(g.answer.result, TD_PUBLISH_REFUSED);
    assert_int_equal(g.answer.code, TD_ERR_CLOSED);
    assert_int_equal(g.answer.class_, TD_CLASS_FATAL);
    assert_false(g.answer.duplicate);
    tdi_buf_consume(&b, used);
    assert_int_equal(tdd_emb_frame_parse(b.data, b.len, 1024, &g, &used), TDD_EMB_FRAME_GOOD);
    assert_int_equal(g.code, TD_ERR_BUSY);
    assert_true(tdi_str_is(g.text, "too many"));
    tdi_buf_release(&b);
}

static void half_a_frame_waits_for_more(void **state)
{
    struct tdi_buf b;
    struct tdd_emb_frame f = sample_publish();
    struct tdd_emb_frame g;
    size_t used = 0;
    (void)state;
    tdi_buf_init(&b, 4096);
    tdd_emb_frame_publish(&b, &f);
    for (size_t len = 0; len < b.len; len++) {
        assert_int_equal(tdd_emb_frame_parse(b.data, len, TDD_EMB_FRAME_MAX, &g, &used),
                         TDD_EMB_FRAME_MORE);
    }
    tdi_buf_release(&b);
}

static void wrong_frames_are_seen_early(void **state)
{
    static const struct {
        const char *data;
        size_t len;
    } bad[] = {
        {"\0\0\0\0\1", 5},            /* no kind */
        {"\0\0\0\1\0", 5},            /* kind 0 */
        {"\0\0\0\1\6", 5},            /* kind 6 */
        {"\xff\xff\xff\xff\3", 5},    /* too long */
        {"\0\0\x08\0\1", 5},          /* a hello of 2 KiB */
        {"GET / HTTP/1.1\r\n", 16},   /* another protocol */
        {"\0\0\0\7\1TdBx\0\1", 11},   /* wrong magic */
        {"\0\0\0\10\1TdBr\0\1x", 12}, /* bytes too many */
        {"\0\0\0\3\3ab", 7},          /* a publish that ends in its token */
        {"\0\0\0\x1c\3"
         "tttttttt"
         "eeee"
         "\0"
         "pppppppp"
         "\0\1"
         "\0\0\0\0",
         32}, /* topic beyond */
        {"\0\0\0\x1c\3"
         "tttttttt"
         "eeee"
         "\4"
         "pppppppp"
         "\0\0"
         "\0\0\0\0",
         32}, /* unknown flag */
        {"\0\0\0\x1d\3"
         "tttttttt"
         "eeee"
         "\2"
         "pppppppp"
         "\0\0"
         "\0\0\0\0"
         "b",
         33}, /* tombstone
                                                                                     with a body */
        {"\0\0\0\x16\4"
         "tttttttt"
         "\3\0\0\0\0"
         "eeeeeeee",
         26}, /* no result */
        {"\0\0\0\x16\4"
         "tttttttt"
         "\0\0\0\xff\0"
         "eeeeeeee",
         26}, /* no code */
    };
    struct tdd_emb_frame g;
    size_t used = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (tdd_emb_frame_parse(bad[i].data, bad[i].len, TDD_EMB_FRAME_MAX, &g, &used) !=
            TDD_EMB_FRAME_BAD) {
            fail_msg("frame %zu is taken", i);
        }
    }
}

static void random_bytes_are_never_read_beyond(void **state)
{
    struct tdi_random r;
    (void)state;
    tdi_random_seed(&r, 5);
    size_t good = 0;
    for (size_t round = 0; round < 20000; round++) {
        unsigned char data[64];
        struct tdd_emb_frame g;
        size_t used = 0;
        size_t len = (size_t)tdi_random_below(&r, sizeof(data) + 1);
        for (size_t i = 0; i < len; i++) {
            data[i] = (unsigned char)tdi_random_below(&r, 256);
        }
        if (len > 5) {
            memset(data, 0, 3);
            data[3] = (unsigned char)tdi_random_below(&r, len - 3);
            data[4] = (unsigned char)(tdi_random_below(&r, 5) + 1);
        }
        if (tdd_emb_frame_parse(data, len, TDD_EMB_FRAME_MAX, &g, &used) == TDD_EMB_FRAME_GOOD) {
            assert_true(used <= len);
            good++;
        }
    }
    assert_true(good > 0);
}

/* ---- the dedupe window ---- */

static const uint64_t key[2] = {1, 2};

static struct tdd_emb_hash hash_of(uint64_t n)
{
    return tdd_emb_dedupe_hash(key, TD_STR_LIT("shop"), TD_STR_LIT("orders"),
                               (struct td_str){.data = (const char *)&n, .len = sizeof(n)});
}

static void identities_do_not_run_together(void **state)
{
    (void)state;
    struct tdd_emb_hash x =
        tdd_emb_dedupe_hash(key, TD_STR_LIT("a"), TD_STR_LIT("bc"), TD_STR_LIT("d"));
    struct tdd_emb_hash y =
        tdd_emb_dedupe_hash(key, TD_STR_LIT("ab"), TD_STR_LIT("c"), TD_STR_LIT("d"));
    struct tdd_emb_hash z =
        tdd_emb_dedupe_hash(key, TD_STR_LIT("a"), TD_STR_LIT("b"), TD_STR_LIT("cd"));
    static const uint64_t other[2] = {1, 3};
    struct tdd_emb_hash w =
        tdd_emb_dedupe_hash(other, TD_STR_LIT("a"), TD_STR_LIT("bc"), TD_STR_LIT("d"));
    assert_true(x.a != y.a && x.a != z.a && y.a != z.a && x.a != w.a);
}

static void staged_ids_are_kept_or_forgotten(void **state)
{
    struct tdd_emb_dedupe d;
    (void)state;
    tdd_emb_dedupe_init(&d, 0);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_FRESH);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_SEEN);
    tdd_emb_dedupe_undo(&d);
    assert_int_equal(d.order_count, 0);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_FRESH);
    tdd_emb_dedupe_keep(&d, 1, 0);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_SEEN);
    tdd_emb_dedupe_undo(&d);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_SEEN);
    tdd_emb_dedupe_release(&d);
}

static void ids_live_for_the_window(void **state)
{
    struct tdd_emb_dedupe d;
    (void)state;
    tdd_emb_dedupe_init(&d, 0);
    d.now_row = d.keep_row = 1;
    for (uint64_t i = 0; i < 5; i++) {
        assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(i)), TDD_EMB_FRESH);
        /* A commit each 5 minutes; generations end at 10 and 20. */
        tdd_emb_dedupe_keep(&d, (int64_t)i + 1, (td_time_us)i * TDD_EMB_DEDUPE_WINDOW_US / 2);
    }
    /* Ids 3 and 4 are of the last generation, 0 to 2 of the one before, which is gone. */
    for (uint64_t i = 3; i < 5; i++) {
        assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(i)), TDD_EMB_SEEN);
    }
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(i)), TDD_EMB_FRESH);
    }
    assert_int_equal(d.keep_row, 4); /* rows before it are of no generation */
    tdd_emb_dedupe_release(&d);
}

static void no_more_than_the_cap_are_kept(void **state)
{
    struct tdd_emb_dedupe d;
    (void)state;
    tdd_emb_dedupe_init(&d, 0);
    d.generation_max = 1000;
    for (uint64_t i = 0; i < 10000; i++) {
        assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(i)), TDD_EMB_FRESH);
        tdd_emb_dedupe_keep(&d, (int64_t)i, 0);
        assert_true(d.now.count + d.before.count <= 2000);
    }
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(9999)), TDD_EMB_SEEN);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(9001)), TDD_EMB_SEEN);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(1)), TDD_EMB_FRESH);
    tdd_emb_dedupe_release(&d);
}

static void the_window_is_loaded_at_open(void **state)
{
    struct tdd_emb_dedupe d;
    struct tdd_emb_hash ids[3] = {hash_of(1), hash_of(2), hash_of(3)};
    (void)state;
    tdd_emb_dedupe_init(&d, 0);
    assert_true(tdd_emb_dedupe_load(&d, (struct td_bytes){ids, sizeof(ids) - 5}, 1, 0));
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(2)), TDD_EMB_SEEN);
    assert_int_equal(tdd_emb_dedupe_stage(&d, hash_of(3)), TDD_EMB_FRESH); /* was cut */
    tdd_emb_dedupe_release(&d);
}

/* ---- the registry ---- */

static void registered_drivers_are_complete(void **state)
{
    struct td_error err = {0};
    (void)state;
    const struct td_broker_driver *first = tdi_broker_driver_at(0);
    assert_non_null(first);
    for (size_t i = 0; tdi_broker_driver_at(i) != NULL; i++) {
        const struct td_broker_driver *d = tdi_broker_driver_at(i);
        assert_int_equal(tdi_broker_driver_check(d, &err), TD_OK);
        assert_ptr_equal(tdi_broker_driver(tdi_str(d->name)), d);
    }
    assert_null(tdi_broker_driver(TD_STR_LIT("carrier-pigeon")));
    struct td_broker_driver bad = *first;
    bad.ack = NULL;
    assert_int_equal(tdi_broker_driver_check(&bad, &err), TD_ERR_INTERNAL);
    bad = *first;
    bad.instance_close = NULL;
    assert_int_equal(tdi_broker_driver_check(&bad, &err), TD_ERR_INTERNAL);
    bad = *first;
    bad.abi++;
    assert_int_equal(tdi_broker_driver_check(&bad, &err), TD_ERR_INTERNAL);
    bad = *first;
    bad.struct_size--;
    assert_int_equal(tdi_broker_driver_check(&bad, &err), TD_ERR_INTERNAL);
    struct td_broker_options o = {.clock = tdi_clock_system()};
    struct td_broker *b = NULL;
    assert_int_equal(tdi_broker_open(&bad, &o, &b, &err), TD_ERR_INTERNAL);
    assert_null(b);
    tdi_broker_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_come_back_as_they_were),
        cmocka_unit_test(half_a_frame_waits_for_more),
        cmocka_unit_test(wrong_frames_are_seen_early),
        cmocka_unit_test(random_bytes_are_never_read_beyond),
        cmocka_unit_test(identities_do_not_run_together),
        cmocka_unit_test(staged_ids_are_kept_or_forgotten),
        cmocka_unit_test(ids_live_for_the_window),
        cmocka_unit_test(no_more_than_the_cap_are_kept),
        cmocka_unit_test(the_window_is_loaded_at_open),
        cmocka_unit_test(registered_drivers_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
