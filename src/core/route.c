/*
 * Routing patterns over dotted words, the same on every broker: `*` is exactly one word, `#` is any
 * number of words, none included. No recursion, no allocation.
 *
 * Must not know: topics, queues, brokers.
 */
#include "core/route.h"

#include "base/str.h"

#include <string.h>

#define PATTERN_BYTES_MAX 255
#define PATTERN_WORDS_MAX ((PATTERN_BYTES_MAX + 1) / 2) /* "a.b.c": one byte a word, one a dot */

/* The words of a text, one after the other. An empty text has none, "a." has two. */
struct words {
    struct td_str text;
    size_t at; /* of the word to come; beyond the text when there is none */
};

static struct words words_of(struct td_str text)
{
    return (struct words){.text = text, .at = text.len == 0 ? 1 : 0};
}

static bool next_word(struct words *w, struct td_str *ret)
{
    if (w->at > w->text.len) {
        return false;
    }
    const char *start = w->text.data + w->at;
    size_t rest = w->text.len - w->at;
    const char *dot = rest > 0 ? memchr(start, '.', rest) : NULL;
    *ret = (struct td_str){.data = start, .len = dot ? (size_t)(dot - start) : rest};
    w->at += ret->len + 1;
    return true;
}

static bool is_sign(struct td_str word, char sign)
{
    return word.len == 1 && word.data[0] == sign;
}

static bool same_bytes(struct td_str a, struct td_str b)
{
    return a.len == b.len && memcmp(a.data, b.data, a.len) == 0;
}

static const char *word_fault(struct td_str word)
{
    if (word.len == 0) {
        return "a word of the pattern is empty";
    }
    for (size_t i = 0; i < word.len; i++) {
        unsigned char c = (unsigned char)word.data[i];
        if (c <= ' ' || c == 0x7f) {
            return "the pattern holds a space or control character";
        }
        if ((c == '*' || c == '#') && word.len > 1) {
            return "* and # stand for whole words: write order.*, not order*";
        }
    }
    return NULL;
}

bool tdi_pattern_valid(struct td_str pattern, const char **ret_why)
{
    const char *why = NULL;
    if (pattern.len == 0) {
        why = "the pattern is empty";
    } else if (pattern.len > PATTERN_BYTES_MAX) {
        why = "the pattern is longer than 255 bytes";
    } else if (!tdi_utf8_valid(pattern)) {
        why = "the pattern is not UTF-8";
    } else {
        struct words w = words_of(pattern);
        struct td_str word;
        while (!why && next_word(&w, &word)) {
            why = word_fault(word);
        }
    }
    if (why && ret_why) {
        *ret_why = why;
    }
    return !why;
}

bool tdi_pattern_match(struct td_str pattern, struct td_str type)
{
    struct words p = words_of(pattern);
    struct words t = words_of(type);
    /* The last `#` seen, and the words that it has not taken yet. Earlier ones never need to take
     * more: what follows them up to the last one is matched already. */
    struct words after_hash = {0};
    struct words hash_rest = {0};
    bool hash = false;
    struct td_str word;
    for (;;) {
        struct td_str type_word;
        bool more = next_word(&p, &word);
        if (more && is_sign(word, '#')) {
            hash = true;
            after_hash = p;
            hash_rest = t;
            continue;
        }
        if (!next_word(&t, &type_word)) {
            return !more;
        }
        if (more && (is_sign(word, '*') || same_bytes(word, type_word))) {
            continue;
        }
        if (!hash || !next_word(&hash_rest, &word)) {
            return false;
        }
        p = after_hash;
        t = hash_rest;
    }
}

bool tdi_patterns_match(const struct td_str *patterns, size_t count, struct td_str type)
{
    for (size_t i = 0; i < count; i++) {
        if (tdi_pattern_match(patterns[i], type)) {
            return true;
        }
    }
    return count == 0;
}

static size_t split(struct td_str pattern, struct td_str words[PATTERN_WORDS_MAX])
{
    struct words w = words_of(pattern);
    size_t count = 0;
    while (count < PATTERN_WORDS_MAX && next_word(&w, &words[count])) {
        count++;
    }
    return count;
}

/* Can one word be both? */
static bool words_meet(struct td_str a, struct td_str b)
{
    return is_sign(a, '*') || is_sign(b, '*') || same_bytes(a, b);
}

bool tdi_patterns_overlap(struct td_str a, struct td_str b)
{
    struct td_str aw[PATTERN_WORDS_MAX];
    struct td_str bw[PATTERN_WORDS_MAX];
    if (a.len > PATTERN_BYTES_MAX || b.len > PATTERN_BYTES_MAX) {
        return true; /* not a valid pattern; the careful answer */
    }
    size_t an = split(a, aw);
    size_t bn = split(b, bw);
    /* below[j]: can the words of a from i + 1 on and those of b from j on meet? row[j]: from i on */
    bool below[PATTERN_WORDS_MAX + 1] = {false};
    for (size_t i = an + 1; i-- > 0;) {
        bool row[PATTERN_WORDS_MAX + 1] = {false};
        for (size_t j = bn + 1; j-- > 0;) {
            bool a_hash = i < an && is_sign(aw[i], '#');
            bool b_hash = j < bn && is_sign(bw[j], '#');
            if (i == an && j == bn) {
                row[j] = true;
            } else if (a_hash || b_hash) {
                /* A # takes nothing more, or one more of the other's. */
                row[j] = (i < an && below[j]) || (j < bn && row[j + 1]);
            } else {
                row[j] = i < an && j < bn && words_meet(aw[i], bw[j]) && below[j + 1];
            }
        }
        memcpy(below, row, sizeof(row));
    }
    return below[0];
}
