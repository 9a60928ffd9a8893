/* Buffer: growth, the maximum, failing for good, consuming. */
#include "base/buf.h"

#include "unit.h"

static void appends_and_terminates(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 1000);
    tdi_buf_add_cstr(&b, "ab");
    tdi_buf_add_char(&b, 'c');
    tdi_buf_add(&b, "d\0e", 3);
    tdi_buf_add_str(&b, TD_STR_LIT("f"));
    tdi_buf_add_str(&b, TD_STR_NONE);
    tdi_buf_printf(&b, "%d%s", 12, "x");
    assert_false(b.failed);
    assert_int_equal(b.len, 10);
    assert_memory_equal(b.data, "abcd\0ef12x", 11);
    tdi_buf_release(&b);
    assert_null(b.data);
    tdi_buf_release(&b);
}

static void empty_is_not_absent(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 10);
    assert_str(tdi_buf_str(&b), "");
    tdi_buf_add(&b, NULL, 0);
    assert_false(b.failed);
    assert_string_equal(b.data, "");
    tdi_buf_release(&b);
}

static void maximum_fits_exactly(void **state)
{
    (void)state;
    for (size_t max = 1; max < 300; max++) {
        struct tdi_buf b;
        tdi_buf_init(&b, max);
        for (size_t i = 0; i < max; i++) {
            tdi_buf_add_char(&b, (char)i);
            assert_false(b.failed);
            assert_true(b.cap <= max + 1 || b.cap <= 64);
        }
        tdi_buf_add_char(&b, 'x');
        assert_true(b.failed);
        assert_int_equal(b.len, max);
        assert_int_equal(b.data[max], '\0');
        tdi_buf_release(&b);
    }
}

static void failed_ignores_everything(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 5);
    tdi_buf_add_cstr(&b, "abc");
    tdi_buf_add_cstr(&b, "def");
    assert_true(b.failed);
    tdi_buf_add_char(&b, 'd');
    tdi_buf_printf(&b, "%d", 1);
    tdi_buf_add(&b, "", 0);
    assert_str(tdi_buf_str(&b), "abc");
    assert_string_equal(b.data, "abc");
    tdi_buf_clear(&b);
    assert_false(b.failed);
    assert_string_equal(b.data, "");
    tdi_buf_add_cstr(&b, "12345");
    assert_false(b.failed);
    assert_str(tdi_buf_str(&b), "12345");
    tdi_buf_release(&b);
}

static void printf_stops_at_the_maximum(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 300);
    tdi_buf_printf(&b, "%0300d", 7);
    assert_false(b.failed);
    assert_int_equal(b.len, 300);
    assert_int_equal(b.data[299], '7');
    tdi_buf_clear(&b);
    tdi_buf_printf(&b, "%0301d", 7);
    assert_true(b.failed);
    assert_int_equal(b.len, 0);
    tdi_buf_release(&b);
}

static void nothing_fits_into_zero(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 0);
    tdi_buf_add_char(&b, 'x');
    assert_true(b.failed);
    assert_str(tdi_buf_str(&b), "");
    tdi_buf_release(&b);
}

static void huge_lengths_are_refused(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, SIZE_MAX - 1);
    tdi_buf_add_char(&b, 'x');
    tdi_buf_add(&b, "", SIZE_MAX);
    assert_true(b.failed);
    tdi_buf_clear(&b);
    tdi_buf_release(&b);
    tdi_buf_init(&b, SIZE_MAX);
    tdi_buf_add_char(&b, 'x');
    assert_true(b.failed);
    tdi_buf_release(&b);
}

static void consume_drops_from_the_front(void **state)
{
    (void)state;
    struct tdi_buf b;
    tdi_buf_init(&b, 100);
    tdi_buf_consume(&b, 3);
    tdi_buf_add_cstr(&b, "abcdef");
    tdi_buf_consume(&b, 0);
    tdi_buf_consume(&b, 2);
    assert_str(tdi_buf_str(&b), "cdef");
    assert_string_equal(b.data, "cdef");
    tdi_buf_consume(&b, 4);
    assert_string_equal(b.data, "");
    tdi_buf_add_cstr(&b, "xy");
    tdi_buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    tdi_buf_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_and_terminates),
        cmocka_unit_test(empty_is_not_absent),
        cmocka_unit_test(maximum_fits_exactly),
        cmocka_unit_test(failed_ignores_everything),
        cmocka_unit_test(printf_stops_at_the_maximum),
        cmocka_unit_test(nothing_fits_into_zero),
        cmocka_unit_test(huge_lengths_are_refused),
        cmocka_unit_test(consume_drops_from_the_front),
    };
    return cmocka_run_group_tests_name("base/buf", tests, NULL, NULL);
}
