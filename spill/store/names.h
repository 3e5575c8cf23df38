/* names.h - durable regions: their names, and the tenant owners that keep them.
 *
 * A durable region has a name and outlives its owner; only sw_engine_drop() ends it. When its owner is closed, it goes
 * to the *tenant owner*: an owner with the same quota and without operations, which is closed last. A tenant has one
 * tenant owner for all its sessions. With a catalogue durable regions survive the process, like an owner with a record.
 * A successor finds them with their session, or with a new tenant owner for their uid. thread: loop. */
#ifndef SW_SPILL_NAMES_H
#define SW_SPILL_NAMES_H

#include <stdint.h>

struct sw_owner;
struct sw_region;

/* Makes a new owner the tenant owner of a uid. */
void sw_owner_become_tenant_owner(struct sw_owner *owner, uint32_t uid);
/* Sets an owner's tenant owner, for as long as the owner lives. A second call must name the same one. */
void sw_owner_set_tenant_owner(struct sw_owner *owner, struct sw_owner *tenant_owner);
/* Returns how many durable regions a tenant has, of its tenant owner and of its other owners. */
unsigned sw_owner_n_names(const struct sw_owner *tenant_owner);

/* ---- not for other rooms ---- */

/* Finds a tenant's durable region. NULL: there is none of this name. */
struct sw_region *sw_name_find(const struct sw_owner *tenant_owner, const char *name);
/* Gets at most `max` of a tenant's durable regions, in the order of their names, after the name `after`. Returns how
 * many. */
unsigned sw_names_after(const struct sw_owner *tenant_owner, const char *after, const struct sw_region **ret,
                        unsigned max);
/* Makes a region durable under a name, which is copied. errors: -SW_ENOMEM. */
int sw_region_set_name(struct sw_region *region, const char *name);
void sw_region_unname(struct sw_region *region);
/* Gives a region to another owner of its tenant. The tenant's quota does not change. The region must have no operation.
 */
void sw_region_give(struct sw_region *region, struct sw_owner *to);

#endif
