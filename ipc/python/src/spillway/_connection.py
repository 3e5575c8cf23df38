# SPDX-License-Identifier: Apache-2.0
"""Connections, regions and tickets."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from . import _frameworks as frameworks
from . import _memory as memory
from ._cdef import CONSTANTS
from ._content import content_of
from ._library import DEFAULT_SOCKET, ffi, library, library_version, program, sized, text
from ._memory import Content
from ._session import Session
from ._ticket import Region, Ticket, result_of, sum_of
from .errors import EINVAL, ESTALE, EVERSION, SpillwayError

MAX_BUFFERS = CONSTANTS["MAX_BUFFERS"]
_EMPTY = ffi.new("char[1]")  # an address for buffers of no bytes
_DROPS_AT_ONCE = 4096


def _ms(seconds: float | None) -> int:
    """Returns milliseconds, at least one; None is -1, no limit."""
    return -1 if seconds is None else max(1, round(seconds * 1000))


@dataclass(frozen=True)
class Named:
    """A durable region, as Connection.list() shows it."""

    name: str
    raw_bytes: int
    stored_bytes: int
    state: str
    tier: str
    durability: str = "service"  # that it has reached: service, host or remote


_DURABILITIES = ("service", "host", "remote")


_PREFERENCES = ("none", "time", "room")


def _choice(name: str, value: str | None, choices: tuple[str, ...]) -> int:
    if value is not None and value not in choices:
        raise EINVAL(f"{name}={value!r}, must be one of {', '.join(choices)}")
    return choices.index(value) if value else 0


def _asked(durability: str | None, prefer: str | None) -> dict[str, int]:
    return {
        "durability": _choice("durability", durability, _DURABILITIES),
        "prefer": _choice("prefer", prefer, _PREFERENCES),
    }


@dataclass(frozen=True)
class Status:
    """The service: its version, its first GPU's name or "host", and its use of memory."""

    version: str
    device: str
    n_gpus: int
    sessions: int
    regions: int
    tier_capacity_bytes: int
    tier_used_bytes: int
    nvme_capacity_bytes: int
    nvme_used_bytes: int
    scratch_bytes: int


class _Call:
    """The structs of a call while the library copies them: a request for each part of 64 buffers of each region."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keep: list[Any] = []  # what the structs point to

    def add(self, content: Content, lengths: Sequence[int], stream: Any, **fields: Any) -> int:
        """Adds the requests of one region, whose buffers have these lengths. Returns how many these are."""
        number = content.stream() if stream is None else frameworks.stream_pointer(stream)
        groups = [content.buffers[i : i + MAX_BUFFERS] for i in range(0, len(content.buffers), MAX_BUFFERS)]
        regions = fields.pop("regions", None)
        for i, group in enumerate(groups):
            at = i * MAX_BUFFERS
            if not any(lengths[at : at + len(group)]):
                group = group[:1]  # a region of no bytes has one buffer
            buffers = ffi.new("struct spillway_buffer[]", len(group))
            for struct, found in zip(buffers, group):
                struct.data = ffi.cast("void *", found.address) if found.nbytes else _EMPTY
                struct.bytes, struct.type = found.nbytes, found.type
            self.keep.append(buffers)
            self.requests.append(
                {
                    **fields,
                    "buffers": buffers,
                    "n_buffers": len(group),
                    "stream": ffi.cast("struct CUstream_st *", number),
                    **({"region": regions[i]} if regions else {}),
                }
            )
        return len(groups)

    def structs(self) -> Any:
        array = ffi.new("struct spillway_request[]", self.requests)
        for struct in array:
            struct.size = ffi.sizeof("struct spillway_request")
        return array


_paths: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # what structs point to


def open_options(
    socket: str | os.PathLike[str] | None,
    codec: str | None,
    connect_timeout: float | None,
    call_timeout: float | None = 30,
    reconnect_timeout: float | None = None,
    server_uid: int | None = None,
) -> Any:
    """Makes a struct spillway_options of what Connection() takes."""
    if codec not in (None, "client", "service"):
        raise EINVAL(f"codec={codec!r}, must be 'client' or 'service'")
    options = sized("spillway_options")
    path = os.fspath(socket) if socket else os.environ.get("SPILLWAY_SOCKET") or DEFAULT_SOCKET
    o = options[0]
    o.socket_path = _paths[options] = ffi.new("char[]", os.fsencode(path))
    o.connect_ms, o.call_ms = _ms(connect_timeout), _ms(call_timeout)
    o.reconnect_ms = _ms(reconnect_timeout)
    o.flags = CONSTANTS[f"CODEC_{codec.upper()}"] if codec else 0
    if server_uid is not None:
        o.flags |= CONSTANTS["SERVED_BY"]
        o.server_uid = server_uid
    return options


def open_error(error: SpillwayError, socket: str) -> SpillwayError:
    """Names both versions if they do not fit."""
    if not isinstance(error, EVERSION):
        return error
    service = _version_of_service(socket) or "another version"
    return EVERSION(
        f"this is libspillway {library_version()}, and the service on {socket} is {service}: {error.text}",
        error.scope,
        hint="update the service first; or install the package spillway-gpu of the service's version",
    )


class Connection:
    """A connection to the service. Any thread may use it, and it is a context manager.

    socket: the service's socket; None: $SPILLWAY_SOCKET, else /run/spillway/data.sock. codec: "client" encodes and
    decodes in this process where that is possible, "service" in the service; None: $SPILLWAY_CODEC, else the service.
    connect_timeout: limit of this call in seconds. call_timeout: limit of calls that wait for an answer.
    reconnect_timeout: limit of a reconnection; None: as long as the service keeps the session. server_uid: the user
    that may serve the socket, besides root, this user and the owner of its folder.

    One lock serialises the calls of the library. It is not held while a thread waits for a ticket. Calls that ask the
    service and return its answer (list, adopt, drop, status, register) hold it until the answer is there.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str] | None = None,
        *,
        codec: str | None = None,
        connect_timeout: float | None = 10,
        call_timeout: float | None = 30,
        reconnect_timeout: float | None = None,
        server_uid: int | None = None,
    ):
        options = open_options(socket, codec, connect_timeout, call_timeout, reconnect_timeout, server_uid)
        self.socket = os.fsdecode(ffi.string(options[0].socket_path))
        self._lib = library()
        try:
            self._session = Session(options)
        except SpillwayError as error:
            raise open_error(error, self.socket) from None

    # ---- spill and restore

    def spill(
        self,
        obj: Any,
        *,
        name: str | None = None,
        durability: str | None = None,
        prefer: str | None = None,
        type: str | None = None,
        stream: Any = None,
        timeout: float | None = None,
    ) -> Ticket[Region]:
        """Starts to store the bytes of obj, and returns at once. The ticket's outcome is a Region.

        Frees nothing. The ticket holds obj until it completes, then lets go: the memory is free once you drop it, too.
        Until then the service reads it, so do not write to it.

        obj: one contiguous array (`__cuda_array_interface__`, DLPack, the buffer protocol, the Arrow C interfaces), or
        a table of them: a dict, a list or a tuple makes one region.
        name: makes the region durable: it outlives the connection. See adopt(), list(), drop().
        durability: what a region with a name survives: "service" (if omitted), a restart of the service; "host", the
            end of the service and of the machine, on its disk; "remote", the loss of the machine, in an object store.
            The ticket completes when the region has it. EDURABILITY: the service cannot reach it.
        prefer: what it is compressed for: "time", or "room": the densest codec, even if that takes longer. If omitted
            or "none", as the operator has set.
        type: of the values, if it is not that of the array: "bytes", "u8" ... "i64", "f32", "f64", "bf16",
            "f16", "f8" or "dec128" (decimals of 128 bits).
        stream: the work queued there is waited for. None: the one that the array names, else the framework's current.
        timeout: in seconds; then the call is canceled and fails with ETIMEDOUT.
        """
        return self._spill([obj], [name], _asked(durability, prefer), type, stream, timeout, each=None)

    def spill_batch(
        self,
        objects: Iterable[Any],
        *,
        names: Sequence[str | None] | None = None,
        durability: str | None = None,
        prefer: str | None = None,
        each: bool = False,
        stream: Any = None,
        timeout: float | None = None,
    ) -> Ticket[list[Any]]:
        """Starts to store each object to a region of its own, in one call. The outcome is a list of regions.

        All or nothing, unless each=True: then each succeeds or fails by itself, and the list has a SpillwayError in
        place of each region that failed. durability, prefer: of all, as in spill().
        """
        objs = list(objects)
        given: list[str | None] = list(names) if names is not None else [None] * len(objs)
        if len(given) != len(objs):
            raise EINVAL(f"{len(given)} names for {len(objs)} objects")
        return self._spill(objs, given, _asked(durability, prefer), None, stream, timeout, each=each)

    def _spill(
        self,
        objs: list[Any],
        names: list[str | None],
        asked: dict[str, int],
        type_: str | None,
        stream: Any,
        timeout: float | None,
        each: bool | None,
    ) -> Ticket[Any]:
        call, contents, counts = _Call(), [], []
        number = memory.type_number(type_)
        for obj, name in zip(objs, names):
            content = content_of(obj)
            if number is not None:
                for found in content.buffers:
                    found.type = number
            if name is not None and len(content.buffers) > MAX_BUFFERS:
                raise EINVAL(
                    f"a named region has at most {MAX_BUFFERS} buffers, not {len(content.buffers)}",
                    hint="split the table",
                )
            named = ffi.NULL if name is None else ffi.new("char[]", name.encode())
            call.keep.append(named)
            counts.append(call.add(content, [b.nbytes for b in content.buffers], stream, name=named, **asked))
            contents.append(content)
        if each and max(counts, default=1) > 1:
            raise EINVAL(f"each=True takes objects of at most {MAX_BUFFERS} arrays", hint="split the table")
        shapes = [([b.nbytes for b in content.buffers], content.make) for content in contents]  # holds no memory

        def finish(results: Any) -> Any:
            regions: list[Any] = []
            at = 0
            for name, count, (lengths, make_) in zip(names, counts, shapes):
                part = list(results[at : at + count])
                at += count
                failed = next((r for r in part if r.code), None)
                regions.append(
                    result_of(failed)
                    if failed is not None
                    else Region(
                        self, [(r.region.slot, r.region.generation) for r in part], lengths, make_, name, sum_of(part)
                    )
                )
            return regions[0] if each is None else regions

        return self._start(self._lib.spillway_spill, call, (objs, contents), finish, each, timeout)

    def restore(
        self,
        region: Region,
        *,
        into: Any = None,
        like: Any = None,
        keep: bool = False,
        stream: Any = None,
        timeout: float | None = None,
    ) -> Ticket[Any]:
        """Starts to put the bytes of a region back, and returns at once. The outcome is the object that has them.

        into: memory that is there already, of at least the length. like: an object of which a new one is made. Neither:
        a new one like the one that was spilled (of bytes: a bytearray). Do not touch the memory before the end.
        keep: the region stays stored. Otherwise it is gone after success, unless it has a name.
        stream, timeout: as in spill().
        """
        return self._restore(
            [region],
            None if into is None else [into],
            None if like is None else [like],
            keep,
            stream,
            timeout,
            each=None,
        )

    def restore_batch(
        self,
        regions: Iterable[Region],
        *,
        into: Sequence[Any] | None = None,
        like: Sequence[Any] | None = None,
        keep: bool = False,
        each: bool = False,
        stream: Any = None,
        timeout: float | None = None,
    ) -> Ticket[list[Any]]:
        """Starts to restore several regions in one call. The outcome is a list of objects; `each`: as spill_batch()."""
        return self._restore(list(regions), into, like, keep, stream, timeout, each=each)

    def _restore(
        self,
        regions: list[Region],
        into: Sequence[Any] | None,
        like: Sequence[Any] | None,
        keep: bool,
        stream: Any,
        timeout: float | None,
        each: bool | None,
    ) -> Ticket[Any]:
        if into is not None and like is not None:
            raise EINVAL("give `into` or `like`, not both")
        for given in (into, like):
            if given is not None and len(given) != len(regions):
                raise EINVAL(f"{len(given)} objects for {len(regions)} regions")
        call, targets, counts = _Call(), [], []
        for i, region in enumerate(regions):
            self._check_region(region)
            target = into[i] if into is not None else _new_target(region, like[i] if like is not None else None)
            content = content_of(target, memory.writable if into is not None else memory.memory_of)
            if len(content.buffers) != len(region._lengths):
                raise EINVAL(f"the region has {len(region._lengths)} buffers, the destination {len(content.buffers)}")
            flags = CONSTANTS["KEEP"] if keep else 0
            counts.append(call.add(content, region._lengths, stream, regions=region._ids, flags=flags))
            targets.append((target, content))
        if each and max(counts, default=1) > 1:
            raise EINVAL(f"each=True takes regions of at most {MAX_BUFFERS} arrays")

        def finish(results: Any) -> Any:
            values: list[Any] = []
            at = 0
            for region, count, (target, _) in zip(regions, counts, targets):
                failed = next((r for r in results[at : at + count] if r.code), None)
                at += count
                if failed is None and not keep and region.name is None:
                    region._stored = False
                values.append(target if failed is None else result_of(failed))
            return values[0] if each is None else values

        return self._start(self._lib.spillway_restore, call, (regions, targets), finish, each, timeout)

    def _start(
        self,
        function: Any,
        call: _Call,
        held: Any,
        finish: Callable[[Any], Any],
        each: bool | None,
        timeout: float | None,
    ) -> Ticket[Any]:
        if not call.requests:
            raise EINVAL("no objects")
        call.requests[0]["timeout_ms"] = 0 if timeout is None else _ms(timeout)
        for request in call.requests if each else ():
            request["flags"] = request.get("flags", 0) | CONSTANTS["EACH"]
        ticket: Ticket[Any] = Ticket(self, held, finish, len(call.requests), bool(each))
        self._session.start(function, call.structs(), ticket)
        return ticket

    def _check_region(self, region: Region) -> None:
        if region._connection is not self:
            raise EINVAL("the region belongs to another connection", hint="give it a name, and adopt() it here")
        if not region._stored:
            raise ESTALE("the region is no longer stored", "region")

    def fileno(self) -> int:
        """Returns a descriptor that is readable when dispatch() has something to do, for event loops of your own."""
        return self._session.fileno()

    def dispatch(self) -> None:
        """Takes in what the service has answered, without waiting. Ticket.done() tells what has completed."""
        self._session.dispatch()

    # ---- regions

    def adopt(self, name: str) -> Region:
        """Takes over a durable region of this user by its name. One connection has it at a time (EBUSY)."""
        region: Any = ffi.new("struct spillway_region *")
        self._session.ask(self._lib.spillway_adopt, name.encode(), region)
        buffers, ret_n = ffi.new("struct spillway_buffer_info[]", MAX_BUFFERS), ffi.new("uint32_t *")
        self._session.ask(self._lib.spillway_query_buffers, region[0], buffers, ret_n)
        n = ret_n[0]
        lengths = [b.raw_bytes for b in buffers[0:n]]
        adopted = Region(self, [(region.slot, region.generation)], lengths, None, name, None)
        adopted.stored_bytes = sum(b.stored_bytes for b in buffers[0:n])
        return adopted

    def list(self) -> Sequence[Named]:
        """Lists this user's durable regions, also those that no connection has, in the order of their names."""
        found: list[Named] = []
        most = 256
        while True:
            items = sized("spillway_list_item", most)
            after = found[-1].name.encode() if found else ffi.NULL
            n = self._session.ask(self._lib.spillway_list, after, items, most)
            for i in items[0:n]:
                durability = _DURABILITIES[i.durability]
                found.append(
                    Named(text(i.name), i.raw_bytes, i.stored_bytes, text(i.state), text(i.tier), durability)
                )
            if n < most:
                return found

    def drop(self, *regions: Region | str) -> None:
        """Drops regions, with their names. A durable region can be given by its name."""
        found = [self.adopt(region) if isinstance(region, str) else region for region in regions]
        for region in found:
            self._check_region(region)
        ids = [i for region in found for i in region._ids]
        self._session.ask(self._lib.spillway_drop, ffi.new("struct spillway_region[]", ids), len(ids))
        for region in found:
            region._stored = False

    # ---- memory and service

    def prepare(self, obj: Any) -> None:
        """Allocates now what operations on memory like this will need, so that they work when the GPU is full."""
        self._session.ask(self._lib.spillway_prepare, ffi.cast("void *", content_of(obj).buffers[0].address))

    def register(self, obj: Any) -> Registration:
        """Has the service open the memory of obj once, instead of in each operation on any part of it.

        Keeps obj until close(), or the end of a `with` block. Only for memory that the service can open itself.
        """
        found = memory.memory_of(obj)
        self._session.ask(self._lib.spillway_register, ffi.cast("void *", found.address), found.nbytes)
        return Registration(self, found)

    def status(self) -> Status:
        """Describes the service."""
        status = sized("spillway_status")
        self._session.ask(self._lib.spillway_status, status)
        s = status[0]
        return Status(
            text(s.version),
            text(s.device),
            s.n_gpus,
            s.sessions,
            s.regions,
            s.tier_capacity_bytes,
            s.tier_used_bytes,
            s.nvme_capacity_bytes,
            s.nvme_used_bytes,
            s.scratch_bytes,
        )

    def close(self) -> None:
        """Ends the connection: cancels what runs, and drops regions without a name. Nothing if it has ended.

        If calls run, waits until the service no longer uses their memory, at most 10 s.
        """
        self._session.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_session" in self.__dict__:
            self.close()

    def __repr__(self) -> str:
        return f"<spillway.Connection to {self.socket}{'' if self._session.is_open else ', closed'}>"


class Registration:
    """Memory that the service keeps open. It must not be freed before close() has returned."""

    def __init__(self, connection: Connection, found: memory.Memory):
        self._connection = connection
        self._found: memory.Memory | None = found

    def close(self) -> None:
        """Waits for the operations in the memory, and has the service close it."""
        if self._found is not None and self._connection._session.is_open:
            self._connection._session.ask(library().spillway_unregister, ffi.cast("void *", self._found.address))
        self._found = None

    def __enter__(self) -> Registration:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _new_target(region: Region, like: Any) -> Any:
    make_ = content_of(like).make if like is not None else region._make
    if make_ is None:
        raise EINVAL("it is not known how to make a new object", hint="give memory for it: restore(region, into=x)")
    return make_()


def _version_of_service(socket: str) -> str | None:
    """Asks the control socket beside a data socket for the service's version; None: it does not tell."""
    import json
    import subprocess

    control = os.path.join(os.path.dirname(socket), "control.sock")
    command = [program("spillwayctl") or "spillwayctl", "--json", "--socket", control, "status"]
    try:
        return str(json.loads(subprocess.run(command, capture_output=True, timeout=5).stdout)["version"])
    except (OSError, ValueError, KeyError, subprocess.SubprocessError):
        return None
