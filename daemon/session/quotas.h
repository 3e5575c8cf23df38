/* quotas.h - applies limits that have changed to all tenants (config/quotas.h). thread: loop. */
#ifndef SW_DAEMON_QUOTAS_H
#define SW_DAEMON_QUOTAS_H

struct sw_service;

/* Finds each tenant's row of `quotas` again, by its uid and by the groups of its sessions, and sets its limits.
 * Regions, sessions and operations beyond a lower limit stay. */
void sw_quotas_apply(struct sw_service *service);

#endif
