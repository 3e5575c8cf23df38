/* names.h - durable regions: their names, and the tenant owners that they go to. thread: loop. */
#ifndef SW_SPILL_NAMES_H
#define SW_SPILL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct sw_owner;
struct sw_region;

/* Durable regions have a name and outlive their owner: they end by sw_engine_drop() only. When their owner is closed
 * they go to its tenant owner, an owner that has the same quota, is closed after it, and has no operations of its own;
 * so a tenant has one tenant owner for all its sessions. With a catalogue they survive the process like an owner with a
 * name, and are found with their session, or with a new tenant owner for their uid. */
void sw_owner_become_tenant_owner(struct sw_owner *owner, uint32_t uid);
/* For as long as the owner lives; a second time only the same. */
void sw_owner_set_tenant_owner(struct sw_owner *owner, struct sw_owner *tenant_owner);
/* Whether a tenant owner has durable regions, its own or those of whose tenant owner it is. */
bool sw_owner_has_names(const struct sw_owner *tenant_owner);

/* ---- not for other rooms ---- */

/* NULL: the tenant owner has no durable region of this name. */
struct sw_region *sw_name_find(const struct sw_owner *tenant_owner, const char *name);
/* Those behind `after`, in the order of their names, at most `max`. Returns how many. */
unsigned sw_names_after(const struct sw_owner *tenant_owner, const char *after, const struct sw_region **ret,
                        unsigned max);
/* Gives a region a name, copied. errors: -SW_ENOMEM. */
int sw_region_set_name(struct sw_region *region, const char *name);
void sw_region_unname(struct sw_region *region);
/* To another owner of its tenant: what counts for the quota stays the same. No operation is on it. */
void sw_region_give(struct sw_region *region, struct sw_owner *to);

#endif
