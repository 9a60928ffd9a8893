/* Routing patterns of dotted words: `*` is one word, `#` any number, none included. Pure. */
#ifndef TDI_CORE_ROUTE_H
#define TDI_CORE_ROUTE_H

#include "tidings/types.h"

/* 1..255 bytes, words divided by dots, wildcards only as whole words; *ret_why static. */
bool tdi_pattern_valid(struct td_str pattern, const char **ret_why);
bool tdi_pattern_match(struct td_str pattern, struct td_str type);
/* No patterns: everything matches. */
bool tdi_patterns_match(const struct td_str *patterns, size_t count, struct td_str type);
/* Could one type match both? (Two topics with overlapping types are a mistake.) */
bool tdi_patterns_overlap(struct td_str a, struct td_str b);

#endif
