/* spillway_errors.h - the list of all errors that Spillway can report.
 *
 * X(name, code, text): `name` becomes SW_E<name> inside the project and SPILLWAY_E<name> for clients. The wire carries
 * the string "E<name>", never the number. Codes below 200 are the errno values of the same meaning; all others start at
 * 1000. Functions return the negative code. The file is installed beside spillway.h and must not include others. */
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
    X(STATE,     1019, "region is in the wrong state for this operation") \
    X(TENANTBYTES,    1020, "tenant's limit of stored bytes reached") \
    X(TENANTREGIONS,  1021, "tenant's limit of regions reached") \
    X(TENANTSESSIONS, 1022, "tenant's limit of sessions reached") \
    X(TENANTOPS,      1023, "tenant's limit of operations in flight reached") \
    X(TENANTMEMORY,   1025, "tenant's limit of service memory reached") \
    X(DRAINING,  1024, "service is draining and accepts no new spills") \
    X(RESTARTED, 1030, "service was restarted during the operation") \
    X(UNMAPPED,  1040, "user namespace does not map this user") \
    X(UNTRUSTED, 1041, "socket is served by a user that is not trusted") \
    X(NOPROC,    1042, "/proc is not mounted") \
    X(UNALLOCATED, 1043, "shared memory has an unallocated page that the service would have to pay for") \
    X(DURABILITY, 1044, "the durability asked for cannot be reached") \
    X(NOSERVICE, 1050, "no service listens on the socket")
/* clang-format on */

#endif
