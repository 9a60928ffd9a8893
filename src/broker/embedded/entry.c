/* Messages in memory and lists of them. Lock held, but for tdd_emb_entry_new. */
#include <stdlib.h>

#include "broker/embedded/internal.h"

struct tdd_emb_entry *tdd_emb_entry_new(size_t envelope_len, size_t body_len)
{
    struct tdd_emb_entry *e = malloc(sizeof(*e) + envelope_len + body_len);
    if (e == NULL) {
        return NULL;
    }
    *e = (struct tdd_emb_entry){.refs = 1, .envelope_len = envelope_len, .body_len = body_len};
    return e;
}

void tdd_emb_entry_unref(struct tdd_emb_entry *e)
{
    TDI_ASSERT(e->refs > 0);
    if (--e->refs == 0) {
        free(e);
    }
}

void tdd_emb_list_add(struct tdd_emb_list *l, struct tdd_emb_entry *e)
{
    e->next = NULL;
    if (l->last != NULL) {
        l->last->next = e;
    } else {
        l->first = e;
    }
    l->last = e;
    l->count++;
}

struct tdd_emb_entry *tdd_emb_list_take(struct tdd_emb_list *l)
{
    struct tdd_emb_entry *e = l->first;
    if (e != NULL) {
        l->first = e->next;
        if (l->first == NULL) {
            l->last = NULL;
        }
        l->count--;
        e->next = NULL;
    }
    return e;
}
