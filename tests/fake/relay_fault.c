/* Virtual time and planned faults of the fakes. See relay_fault.h. */
#include "relay_fault.h"

#include <string.h>

/* ---- virtual time ----------------------------------------------------------------------- */

static td_time_us time_wall(void *ctx)
{
    const struct relay_time *t = ctx;
    return t->wall;
}

static td_time_us time_mono(void *ctx)
{
    const struct relay_time *t = ctx;
    return t->mono;
}

struct td_clock relay_time_clock(struct relay_time *t)
{
    return (struct td_clock){.wall = time_wall, .mono = time_mono, .ctx = t};
}

void relay_time_pass(struct relay_time *t, td_time_us us)
{
    if (us > 0) {
        t->mono += us;
        t->wall += us;
    }
}

/* ---- faults ----------------------------------------------------------------------------- */

void relay_plan(struct relay_faults *f, int call, int nth, enum td_err code,
                enum td_err_class class_, bool done)
{
    for (size_t i = 0; i < RELAY_PLANS_MAX; i++) {
        if (f->plans[i].nth == 0) {
            f->plans[i] = (struct relay_plan){call, nth, code, class_, done};
            return;
        }
    }
}

bool relay_fails(struct relay_faults *f, int call, struct relay_plan *ret)
{
    bool hit = false;

    for (size_t i = 0; i < RELAY_PLANS_MAX; i++) {
        struct relay_plan *p = &f->plans[i];
        if (p->nth > 0 && p->call == call && --p->nth == 0) {
            *ret = *p;
            hit = true;
        }
    }
    if (hit) {
        return true;
    }
    return f->choose != NULL && f->choose(f->ctx, call, ret);
}

enum td_err relay_failure(const struct relay_plan *p, struct td_error *err)
{
    memset(err, 0, sizeof(*err));
    td_error_set(err, p->code, "planned: %s", td_err_name(p->code));
    err->class_ = p->class_;
    return p->code;
}
