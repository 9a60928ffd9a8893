/*
 * SQLSTATE (ISO/IEC 9075-2, and PostgreSQL's appendix A) to a verdict. The longest match wins; an
 * override of the consumer wins over the table at the same length.
 */
#include "handler/sql/classify.h"

#include <string.h>

struct rule {
    const char *prefix;
    enum td_verdict_kind kind;
    bool broken;
    bool uncharged;
};

/* What will fail again in the same way is dead at once; what somebody else may mend is tried again. */
static const struct rule rules[] = {
    {"22", TD_VERDICT_DEAD, false, false},     /* data exception */
    {"23", TD_VERDICT_DEAD, false, false},     /* integrity constraint */
    {"23503", TD_VERDICT_RETRY, false, false}, /* foreign key: the parent may still come */
    {"40", TD_VERDICT_RETRY, false, true},     /* deadlock, serialization: nobody's fault */
    {"08", TD_VERDICT_RETRY, true, false},     /* connection */
    {"57", TD_VERDICT_RETRY, true, false},     /* operator intervention */
    {"42", TD_VERDICT_RETRY, false, false},    /* a table that a deployment has not made yet */
    {"", TD_VERDICT_RETRY, false, false},
};

static bool is_prefix(const char *prefix, size_t len, const char *sqlstate)
{
    return len <= strlen(sqlstate) && memcmp(prefix, sqlstate, len) == 0;
}

struct td_verdict tdd_sql_classify(const char *sqlstate, const struct td_classify *overrides,
                                   size_t overrides_count)
{
    struct td_verdict v = {.kind = TD_VERDICT_RETRY};
    size_t best = 0;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        size_t len = strlen(rules[i].prefix);
        if (len >= best && is_prefix(rules[i].prefix, len, sqlstate)) {
            best = len;
            v.kind = rules[i].kind;
            v.broken = rules[i].broken;
            v.uncharged = rules[i].uncharged;
        }
    }
    for (size_t i = 0; i < overrides_count; i++) {
        const struct td_classify *o = &overrides[i];
        if (o->match.len >= best && is_prefix(o->match.data, o->match.len, sqlstate)) {
            best = o->match.len;
            v.kind = o->verdict;
        }
    }
    if (v.kind != TD_VERDICT_RETRY) {
        v.broken = false;
        v.uncharged = false;
    }
    v.code = v.kind == TD_VERDICT_DEAD ? TD_DEAD_REJECTED : TD_DEAD_NONE;
    return v;
}
