/* spillway_errors.h - every error Spillway can report, once.
 *
 * X(name, code, text): `name` becomes SW_E<name> inside the project and SPILLWAY_E<name> for clients; the wire carries
 * the string "E<name>", never the number. Codes below 200 are the errno value of the same meaning; others start at
 * 1000. Functions return the negative code. Installed beside spillway.h; must stay free of other includes. */
#ifndef SPILLWAY_ERROR_LIST_H
#define SPILLWAY_ERROR_LIST_H

/* clang-format off */
#define SPILLWAY_ERROR_LIST(X) \
    X(INVAL,     22,   "invalid argument") \
    X(NOMEM,     12,   "out of memory") \
    X(IO,        5,    "input/output error") \
    X(AGAIN,     11,   "not finished yet") \
    X(ACCES,     13,   "not permitted") \
    X(BUSY,      16,   "in use by another operation") \
    X(NOENT,     2,    "no such object") \
    X(EXIST,     17,   "already exists") \
    X(NOTSUP,    95,   "not supported") \
    X(CANCELED,  125,  "canceled") \
    X(CONN,      104,  "connection lost") \
    X(TIMEDOUT,  110,  "no answer in time") \
    X(NOSPACE,   1000, "tier is full") \
    X(LIMIT,     1001, "configured limit reached") \
    X(STALE,     1002, "id belongs to an object that no longer exists") \
    X(RANGE,     1003, "offset and length exceed the object") \
    X(TOOSMALL,  1004, "buffer too small") \
    X(PROTO,     1005, "malformed message") \
    X(VERSION,   1006, "unsupported version") \
    X(FDS,       1007, "wrong number or kind of descriptors") \
    X(IMPORT,    1008, "memory handle could not be opened") \
    X(UNSEALED,  1009, "shared memory is not sealed against shrinking") \
    X(MEMKIND,   1010, "memory of this kind cannot be shared") \
    X(DEVICE,    1011, "no such device") \
    X(GPU,       1012, "GPU call failed") \
    X(GPULOST,   1013, "GPU context is unusable") \
    X(FRAME,     1014, "stored frame is damaged") \
    X(CHECKSUM,  1015, "checksum mismatch") \
    X(LOST,      1016, "region's bytes are lost") \
    X(CONFIG,    1017, "invalid configuration") \
    X(SHUTDOWN,  1018, "service is stopping") \
    X(STATE,     1019, "region is not in the state that this needs") \
    X(TENANTBYTES,    1020, "tenant has as many bytes stored as it may") \
    X(TENANTREGIONS,  1021, "tenant has as many regions as it may") \
    X(TENANTSESSIONS, 1022, "tenant has as many sessions as it may") \
    X(TENANTOPS,      1023, "tenant has as many operations in flight as it may") \
    X(TENANTMEMORY,   1025, "service keeps as much memory for the tenant as it may") \
    X(DRAINING,  1024, "service is being drained: it takes no new spills") \
    X(RESTARTED, 1030, "service was restarted meanwhile") \
    X(UNMAPPED,  1040, "user namespace does not map this user") \
    X(UNTRUSTED, 1041, "socket is served by a user that is not trusted") \
    X(NOPROC,    1042, "/proc is not mounted") \
    X(UNALLOCATED, 1043, "shared memory has no page where one would have to be made at the service's expense") \
    X(NOSERVICE, 1050, "no service there")
/* clang-format on */

#endif
