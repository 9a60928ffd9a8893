/* Messages for the tests of src/core. */
#ifndef TESTS_UNIT_CORE_MESSAGES_H
#define TESTS_UNIT_CORE_MESSAGES_H

#include "tidings/message.h"

/* Only what is required; everything else is absent. */
static inline struct td_message small_message(void)
{
    return (struct td_message){
        .id = TD_STR_LIT("m-1"),
        .source = TD_STR_LIT("shop"),
        .type = TD_STR_LIT("order.paid"),
        .time = TD_TIME_NONE,
        .sequence = TD_NUMBER_NONE,
        .aggregate_version = TD_NUMBER_NONE,
        .deliver_at = TD_TIME_NONE,
        .expires_at = TD_TIME_NONE,
        .published_at = TD_TIME_NONE,
    };
}

/* Every attribute of the envelope and three headers. */
static inline struct td_message full_message(void)
{
    static const struct td_header headers[] = {
        {{"x-b", 3}, {"2", 1}},
        {{"x-a", 3}, {"\"quoted\" \\ \xc3\xa4\n", 14}},
        {{"x-b", 3}, {"", 0}},
    };
    struct td_message m = small_message();
    m.topic = TD_STR_LIT("orders");
    m.key = TD_STR_LIT("user/7 \xe2\x82\xac");
    m.time = INT64_C(1764454988123456);
    m.sequence = INT64_C(4711);
    m.content_type = TD_STR_LIT("application/json; charset=utf-8");
    m.data_schema = TD_STR_LIT("https://schema.example/order/3");
    m.traceparent = TD_STR_LIT("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    m.tracestate = TD_STR_LIT("vendor=t61rcWkgMzE");
    m.baggage = TD_STR_LIT("userId=alice,serverNode=DF%2028");
    m.correlation_id = TD_STR_LIT("c-1");
    m.causation_id = TD_STR_LIT("m-0");
    m.aggregate_type = TD_STR_LIT("order");
    m.aggregate_version = 12;
    m.tenant = TD_STR_LIT("acme");
    m.deliver_at = INT64_C(1764454999000000);
    m.expires_at = INT64_C(1764541388000000);
    m.data_ref = TD_STR_LIT("s3://bucket/object");
    m.published_at = INT64_C(1764454988200000);
    m.headers = headers;
    m.headers_count = 3;
    m.body = (struct td_bytes){.data = "{\"a\":1}", .len = 7};
    return m;
}

#endif
