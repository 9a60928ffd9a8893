/*
 * Names of outcomes, dead-letter codes and verdicts: one table each, so that what is written can be
 * read back. The names are stored and shown; they never change.
 *
 * Must not know: where they are stored.
 */
#include "core/deadletter.h"

#include "base/str.h"
#include "tidings/handler.h"

/* X(enumerator, name) */
#define OUTCOMES(X)                                                                                \
    X(NONE, "none")                                                                                \
    X(EFFECT, "effect")                                                                            \
    X(RETRY, "retry")                                                                              \
    X(BLOCKED, "blocked")                                                                          \
    X(DEAD, "dead")                                                                                \
    X(DISCARDED, "discarded")                                                                      \
    X(DROPPED, "dropped")

/* X(enumerator, name, sentence for help) */
#define DEAD_CODES(X)                                                                              \
    X(NONE, "", "No dead letter.")                                                                 \
    X(EXHAUSTED, "exhausted", "All attempts failed.")                                              \
    X(REJECTED, "rejected", "The handler refused the message for good.")                           \
    X(EXPIRED, "expired", "The time to live had passed before the message was handled.")           \
    X(SCHEMA, "schema", "The body does not have the form that the handler needs.")                 \
    X(POISON, "poison", "Every attempt ended without an answer: the process or worker died.")      \
    X(UNROUTABLE, "unroutable", "No topic of the catalogue or no queue takes the message.")        \
    X(TOO_LARGE, "too-large", "The message is larger than the topic or the broker allows.")        \
    X(DENIED, "denied", "The broker does not permit publishing it.")                               \
    X(INVALID, "invalid", "The row or delivery is not a valid message.")                           \
    X(NOT_DUE, "not-due", "Its time of delivery is too far away.")                                 \
    X(NO_ID, "no-id", "The message has no id, so that a second copy could not be told.")           \
    X(STALE, "stale",                                                                              \
      "Published longer ago than the inbox remembers: it may have taken effect "                   \
      "before.")

#define NAME(code, name) [TD_OUTCOME_##code] = (name),
static const char *const outcome_names[] = {OUTCOMES(NAME)};
#undef NAME

#define NAME(code, name, text) [TD_DEAD_##code] = {(name), (text)},
static const struct {
    const char *name;
    const char *text;
} dead_codes[] = {DEAD_CODES(NAME)};
#undef NAME

static const char *const verdict_names[] = {
    [TD_VERDICT_OK] = "ok",
    [TD_VERDICT_RETRY] = "retry",
    [TD_VERDICT_DEAD] = "dead",
    [TD_VERDICT_DROP] = "drop",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *tdi_outcome_name(enum td_outcome o)
{
    return (size_t)o < COUNT(outcome_names) ? outcome_names[o] : "unknown";
}

bool tdi_outcome_parse(struct td_str s, enum td_outcome *ret)
{
    for (size_t i = 0; i < COUNT(outcome_names); i++) {
        if (tdi_str_is(s, outcome_names[i])) {
            *ret = (enum td_outcome)i;
            return true;
        }
    }
    return false;
}

const char *tdi_dead_code_name(enum td_dead_code c)
{
    return (size_t)c < COUNT(dead_codes) ? dead_codes[c].name : "unknown";
}

bool tdi_dead_code_parse(struct td_str s, enum td_dead_code *ret)
{
    if (s.len == 0) { /* absent too: a NULL column is "no code" */
        *ret = TD_DEAD_NONE;
        return true;
    }
    for (size_t i = 0; i < COUNT(dead_codes); i++) {
        if (tdi_str_is(s, dead_codes[i].name)) {
            *ret = (enum td_dead_code)i;
            return true;
        }
    }
    return false;
}

const char *tdi_dead_code_text(enum td_dead_code c)
{
    return (size_t)c < COUNT(dead_codes) ? dead_codes[c].text : "unknown";
}

const char *tdi_verdict_name(int verdict_kind)
{
    return verdict_kind >= 0 && (size_t)verdict_kind < COUNT(verdict_names)
               ? verdict_names[verdict_kind]
               : "unknown";
}

bool tdi_outcome_unfinished(enum td_outcome o)
{
    return o == TD_OUTCOME_RETRY || o == TD_OUTCOME_BLOCKED || o == TD_OUTCOME_DEAD;
}
