# SPDX-License-Identifier: Apache-2.0
"""The errors of Spillway, one class for each name of spillway_errors.h.

    try:
        region = spillway.wait(connection.spill(array))
    except spillway.ENOSPACE as error:
        print(error.name, error.scope, error)  # the last has text and hint

ETIMEDOUT and EAGAIN are also a TimeoutError, EINVAL is a ValueError, and ENOMEM a MemoryError.
"""

from __future__ import annotations


class SpillwayError(Exception):
    """An error of the library or the service.

    name: such as "ENOSPACE". code: its number, positive. text: what failed, and why. hint: what to do about it.
    scope: the largest thing that is unusable now: "request", "region", "session" (close the connection), "device" or
    "daemon". cuda: the CUDA driver's code, or 0.
    """

    code: int = 0
    hint: str = ""

    def __init__(self, text: str = "", scope: str = "request", cuda: int = 0, hint: str | None = None):
        super().__init__(text)
        self.text = text
        self.scope = scope
        self.cuda = cuda
        if hint is not None:
            self.hint = hint

    @property
    def name(self) -> str:
        return type(self).__name__

    def __str__(self) -> str:
        return self.text + (f" [{self.hint}]" if self.hint else "")

    def __init_subclass__(cls) -> None:
        cls.__module__ = "spillway"  # where programs find it


class EINVAL(SpillwayError, ValueError):
    """Invalid argument."""

    code = 22


class ENOMEM(SpillwayError, MemoryError):
    """Out of memory."""

    code = 12
    hint = "if the GPU is full, call Connection.prepare() before it is"


class EIO(SpillwayError):
    """Input/output error."""

    code = 5


class EAGAIN(SpillwayError, TimeoutError):
    """Not finished yet."""

    code = 11
    hint = "the call goes on: wait again, or cancel it"


class EACCES(SpillwayError):
    """Not permitted."""

    code = 13
    hint = "join the socket's group (usermod -aG spillway USER, then log in again), or use spillway.start()"


class EBUSY(SpillwayError):
    """In use by another operation."""

    code = 16
    hint = "wait for the other operation, then try again"


class ENOENT(SpillwayError):
    """No such object."""

    code = 2


class EEXIST(SpillwayError):
    """Already exists."""

    code = 17
    hint = "drop the region that has the name, or choose another name"


class ENOTSUP(SpillwayError):
    """Not supported."""

    code = 95


class ECANCELED(SpillwayError):
    """Canceled."""

    code = 125


class ECONN(SpillwayError):
    """Connection lost."""

    code = 104
    hint = "its regions are gone, unless they are durable: close the connection and open another one"


class ETIMEDOUT(SpillwayError, TimeoutError):
    """No answer in time."""

    code = 110


class ENOSPACE(SpillwayError):
    """Tier is full."""

    code = 1000
    hint = "drop regions, or give the service more: host_tier_bytes, nvme_tier_directory"


class ELIMIT(SpillwayError):
    """Configured limit reached."""

    code = 1001


class ESTALE(SpillwayError):
    """Id belongs to an object that no longer exists."""

    code = 1002
    hint = "it was restored without keep=True, or dropped"


class ERANGE(SpillwayError):
    """Offset and length exceed the object."""

    code = 1003


class ETOOSMALL(SpillwayError):
    """Buffer too small."""

    code = 1004
    hint = "restore into memory of at least the spilled length"


class EPROTO(SpillwayError):
    """Malformed message."""

    code = 1005


class EVERSION(SpillwayError):
    """Unsupported version."""

    code = 1006


class EFDS(SpillwayError):
    """Wrong number or kind of descriptors."""

    code = 1007


class EIMPORT(SpillwayError):
    """Memory handle could not be opened."""

    code = 1008


class EUNSEALED(SpillwayError):
    """Shared memory is not sealed against shrinking."""

    code = 1009
    hint = "make the memfd with MFD_ALLOW_SEALING"


class EMEMKIND(SpillwayError):
    """Memory of this kind cannot be shared."""

    code = 1010
    hint = "`python -m spillway doctor` tells whether this build knows GPU memory"


class EDEVICE(SpillwayError):
    """No such device."""

    code = 1011
    hint = "the service does not use this GPU: see its log, and CUDA_VISIBLE_DEVICES"


class EGPU(SpillwayError):
    """GPU call failed."""

    code = 1012


class EGPULOST(SpillwayError):
    """GPU context is unusable."""

    code = 1013


class EFRAME(SpillwayError):
    """Stored frame is damaged."""

    code = 1014


class ECHECKSUM(SpillwayError):
    """Checksum mismatch."""

    code = 1015


class ELOST(SpillwayError):
    """Region's bytes are lost."""

    code = 1016


class ECONFIG(SpillwayError):
    """Invalid configuration."""

    code = 1017


class ESHUTDOWN(SpillwayError):
    """Service is stopping."""

    code = 1018


class ESTATE(SpillwayError):
    """Region is in the wrong state for this operation."""

    code = 1019


class ETENANTBYTES(SpillwayError):
    """Tenant's limit of stored bytes reached."""

    code = 1020
    hint = "drop regions, or ask the operator for a higher tenant_bytes"


class ETENANTREGIONS(SpillwayError):
    """Tenant's limit of regions reached."""

    code = 1021
    hint = "drop regions, or ask the operator for a higher tenant_regions or tenant_durable_regions"


class ETENANTSESSIONS(SpillwayError):
    """Tenant's limit of sessions reached."""

    code = 1022
    hint = "close connections: one Connection serves all threads of a process"


class ETENANTOPS(SpillwayError):
    """Tenant's limit of operations in flight reached."""

    code = 1023
    hint = "wait for tickets before you start more"


class ETENANTMEMORY(SpillwayError):
    """Tenant's limit of service memory reached."""

    code = 1025
    hint = "drop regions, or ask the operator for a higher tenant_bookkeeping_bytes"


class EDRAINING(SpillwayError):
    """Service is draining and accepts no new spills."""

    code = 1024


class ERESTARTED(SpillwayError):
    """Service was restarted during the operation."""

    code = 1030
    hint = "with scope request: repeat the call; nothing was lost"


class EUNMAPPED(SpillwayError):
    """User namespace does not map this user."""

    code = 1040


class EUNTRUSTED(SpillwayError):
    """Socket is served by a user that is not trusted."""

    code = 1041
    hint = "if that user is right, name it: SPILLWAY_SERVICE_UID"


class ENOPROC(SpillwayError):
    """/proc is not mounted."""

    code = 1042


class EUNALLOCATED(SpillwayError):
    """Shared memory has an unallocated page that the service would have to pay for."""

    code = 1043


class EDURABILITY(SpillwayError):
    """The durability asked for cannot be reached."""

    code = 1044


class ENOSERVICE(SpillwayError):
    """No service listens on the socket."""

    code = 1050
    hint = "call spillway.start() for a private one, or start spillwayd"
