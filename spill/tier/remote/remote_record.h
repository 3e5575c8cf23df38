/* remote_record.h - the objects that record a region which the remote tier keeps: their names, and what is in them.
 *
 *   names/TENANT/NAME/EPOCH   the record of a region
 *   batches/HOST/BATCH        the records of this batch count; without it none of them does
 *
 * TENANT is HOST.UID, or the configured name of a tenant whose regions several hosts have. NAME is the SHA-256 of the
 * region's name, so that the bucket does not show names. EPOCH is a number that rises, in 16 hexadecimal digits: no
 * name of an object is ever used again, because a deletion may be carried out late. Pure. thread: any. */
#ifndef SW_SPILL_REMOTE_RECORD_H
#define SW_SPILL_REMOTE_RECORD_H

#include "spill/tier/remote/object.h"

enum { SW_REMOTE_HOST_BYTES = 33, SW_REMOTE_TENANTS = 64, SW_REMOTE_REGION_BYTES = 64 };

/* Which users' regions are shared with other hosts. */
struct sw_remote_tenants {
    unsigned n;
    struct sw_remote_tenant {
        uint32_t uid;
        char name[SW_REMOTE_HOST_BYTES];
    } at[SW_REMOTE_TENANTS];
};
/* Reads "UID=NAME UID=NAME ..."; "none" and "": there are none. errors: -SW_ECONFIG. */
int sw_remote_tenants_read(struct sw_remote_tenants *ret, const char *text, struct sw_err *err);
/* Returns the name of a user's shared tenant; NULL: its regions are of this host only. */
const char *sw_remote_tenants_find(const struct sw_remote_tenants *tenants, uint32_t uid);

/* The beginning of a record; the caller's content follows. */
struct sw_remote_record {
    char magic[8];
    uint32_t version, uid;
    uint64_t number, batch; /* batch 0: it counts alone */
    char host[SW_REMOTE_HOST_BYTES + 7];
    char name[SW_REMOTE_REGION_BYTES];
};
void sw_remote_record_init(struct sw_remote_record *ret, const char *host, uint32_t uid, const char *name);
/* Returns the record at the beginning of a body that was decrypted. errors: -SW_EVERSION (of a later version),
 * -SW_EFRAME; *ret is unchanged then. */
int sw_remote_record_read(const void *body, size_t bytes, const struct sw_remote_record **ret, struct sw_err *err);

/* Writes the folder of all epochs of a name, with a slash at its end. tenant NULL: it is the host's own. */
void sw_remote_record_folder(char ret[SW_OBJECT_NAME_BYTES], const struct sw_remote_record *record, const char *tenant);
/* Appends 16 digits to a folder, the epoch or the batch. */
void sw_remote_record_number(char name[SW_OBJECT_NAME_BYTES], uint64_t number);
/* Reads them at the end of an object's name; 0: there are none. */
uint64_t sw_remote_record_read_number(const char *name);
/* Whose record an object is, judged by its name; SHARED: its content says. */
enum sw_remote_record_of { SW_RECORD_OURS, SW_RECORD_SHARED, SW_RECORD_FOREIGN };
enum sw_remote_record_of sw_remote_record_of(const char *name, const char *host);

#endif
