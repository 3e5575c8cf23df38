/* dictionary.c - the dictionaries that plans borrow.
 *
 * Plans are plain data: runs, slots and the planner copy them freely. So nothing counts who uses a dictionary. When one
 * is added, which happens once for each plan that took milliseconds to make, those that no plan has any more are freed.
 */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"

struct dictionary {
    struct sw_list node;
    struct sw_frame_dictionary content;
};

static struct dictionary *of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct dictionary, node);
}

static bool is_used(const struct sw_mover *m, const struct sw_frame_dictionary *dictionary) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].dictionary == dictionary)
            return true;
    for (const struct sw_list *node = m->runs.next; node != &m->runs; node = node->next) {
        const struct sw_run *run = SW_CONTAINER_OF(node, const struct sw_run, node);
        if (run->course.plan && run->course.plan->dictionary == dictionary)
            return true;
    }
    return sw_plan_cache_has_dictionary(&m->planner.plans, dictionary);
}

static void free_unused(struct sw_mover *m) {
    for (struct sw_list *node = m->dictionaries.next, *next; node != &m->dictionaries; node = next) {
        next = node->next;
        if (is_used(m, &of(node)->content))
            continue;
        sw_list_remove(node);
        sw_free(of(node));
    }
}

int sw_mover_keep_dictionary(struct sw_mover *m, struct sw_plan *plan, struct sw_err *err) {
    if (!plan->dictionary)
        return 0;
    free_unused(m);
    struct dictionary *d = sw_alloc(sizeof *d);
    if (!d) {
        sw_plan_init_raw(plan);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a dictionary");
    }
    d->content = *plan->dictionary;
    plan->dictionary = &d->content;
    sw_list_append(&m->dictionaries, &d->node);
    return 0;
}

void sw_mover_free_dictionaries(struct sw_mover *m) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&m->dictionaries)))
        sw_free(of(node));
}
