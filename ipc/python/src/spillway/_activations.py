# SPDX-License-Identifier: Apache-2.0
"""Spills the tensors that autograd saves for the backward pass."""

from __future__ import annotations

import collections
import functools
import threading
import time
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ._connection import Connection
from ._ticket import Region, Ticket
from .errors import SpillwayError

_MOST_OF_STORAGE = 4  # a tensor that covers less than a quarter of its storage is not spilled
_LOOKAHEAD = 256  # saves before the current one that are looked at for a prefetch
_PASSED_BY = 16  # a prefetched tensor that was saved so much later than the current one is let go


@dataclass
class Statistics:
    """What a spill_activations() has done so far.

    spilled_bytes, stored_bytes: before and after compression, of what is or was stored; their quotient is ratio.
    failed_bytes: could not be stored, and stayed in place. restored_bytes: of them prefetched_bytes were prefetched.
    pack_wait_s: how long the forward pass waited for room in flight. unpack_wait_s: how long the backward pass waited
    for bytes; the rest of the transfers' time was overlapped with other work.
    """

    spilled_bytes: int = 0
    stored_bytes: int = 0
    failed_bytes: int = 0
    restored_bytes: int = 0
    prefetched_bytes: int = 0
    pack_wait_s: float = 0
    unpack_wait_s: float = 0

    @property
    def ratio(self) -> float:
        return self.spilled_bytes / self.stored_bytes if self.stored_bytes else 1.0


class _Live:
    """A tensor that stays in memory, with the version that it had. An alias, so that no graph refers to itself."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.version = tensor._version

    def changed(self) -> str | None:
        """Describes a change in place. PyTorch does not check versions of tensors that hooks have packed."""
        now = self.tensor._version
        if now == self.version:
            return None
        return (
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"[{self.tensor.dtype} {list(self.tensor.shape)}] is at version {now}; expected version {self.version} "
            "instead. It was saved under spillway.torch.spill_activations()"
        )

    def get(self) -> torch.Tensor:
        text = self.changed()
        if text is not None:
            raise RuntimeError(text)
        return self.tensor


class _Flight:
    """A spill under way. Holds the tensor until the end, and nothing that refers to a graph."""

    def __init__(self, ticket: Ticket[Region], live: _Live, stored: _Stored):
        self.ticket = ticket
        self.live = live
        self.stored = weakref.ref(stored)
        self.nbytes = stored.nbytes
        self.is_canceled = False


@dataclass
class _Fetch:
    """A restore under way, or a restored tensor that will be asked for."""

    target: torch.Tensor
    ticket: Ticket[Any]


class _Stored:
    """One storage with the bytes that it had when it was saved. Graphs own it, by _Packed."""

    def __init__(self, flat: torch.Tensor, position: int):
        storage = flat.untyped_storage()
        self.original = StorageWeakRef(storage)  # also keeps its address from being used for another storage
        self.version, self.nbytes = flat._version, storage.nbytes()
        self.dtype, self.device, self.shape = flat.dtype, flat.device, flat.shape
        self.position = position
        # Where the bytes are: exactly one of the first four.
        self.flight: _Flight | None = None
        self.live: _Live | None = None  # the spill has failed
        self.damage: str | None = None  # the tensor was changed while it was being read
        self.region: Region | None = None
        self.fetch: _Fetch | None = None
        self.restored: StorageWeakRef | None = None  # in use by a backward pass
        self.n_packed = self.n_unpacked = 0  # of the tensors that share it; unpacked: in this backward pass

    def restored_storage(self) -> torch.UntypedStorage | None:
        if self.restored is None:
            return None
        storage: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self.restored.cdata)
        return storage


class _Packed:
    """What a graph has in place of a tensor. Made under the lock."""

    __slots__ = ("stored", "dtype", "offset", "shape", "stride")

    def __init__(self, stored: _Stored, tensor: torch.Tensor):
        self.stored = stored
        stored.n_packed += 1
        self.dtype, self.shape, self.stride = tensor.dtype, tensor.shape, tensor.stride()
        self.offset = tensor.storage_offset()

    def view(self, storage: torch.UntypedStorage) -> torch.Tensor:
        empty = torch.empty(0, dtype=self.dtype, device=self.stored.device)
        return empty.set_(storage, self.offset, self.shape, self.stride)


@functools.cache
def _side_streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    """Returns a GPU's streams for spills and for restores. Only two, because the allocator caches memory by stream."""
    return torch.cuda.Stream(device), torch.cuda.Stream(device)


def _is_parameter(tensor: torch.Tensor) -> bool:
    """Returns whether the program has the tensor anyway, so that spilling it or a view of it would free nothing."""
    return isinstance(tensor, torch.nn.Parameter) or (tensor.is_leaf and tensor.requires_grad)


class spill_activations:
    """A context manager: what autograd saves for the backward pass is spilled, and prefetched in reverse order.

        with spillway.torch.spill_activations(connection):
            loss = model(x).sum()
        loss.backward()                     # inside or outside of the `with`

    What stays in memory: parameters, leaves that require a gradient, their views; tensors under min_bytes; tensors that
    are not dense: sparse ones, and those that cover less than a quarter of their storage; subclasses of Tensor; what is
    saved while a CUDA graph is captured. Everything else is stored by its whole storage, once for all tensors that
    share it. If a spill fails, the tensor stays too, and the first failure is a warning.

    in_flight_bytes: of spills under way, which still occupy memory. Over that, the forward pass waits for the oldest
    one. prefetch_bytes: of restored tensors that the backward pass has not asked for yet. A single tensor may exceed
    the first bound, and is not prefetched if it exceeds the second one.

    If a saved tensor is modified in place, its backward pass fails as in PyTorch (RuntimeError), unless the bytes were
    stored before: they are a copy, so the gradient is right. Changes that PyTorch does not count are not noticed:
    `x.data`, kernels of your own. retain_graph and double backward restore the stored bytes again. Checkpoints work:
    of a non-reentrant one (torch.utils.checkpoint) nothing is spilled, because its own hooks come first.

    The object may be entered again in each step. Any threads may use it, and graphs keep it. Do not close the
    connection before the last backward pass.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        min_bytes: int = 1 << 20,
        in_flight_bytes: int = 1 << 30,
        prefetch_bytes: int = 1 << 30,
    ):
        self.min_bytes = min_bytes
        self.in_flight_bytes = in_flight_bytes
        self.prefetch_bytes = prefetch_bytes
        self.statistics = Statistics()
        self._connection = connection
        self._lock = threading.RLock()  # never held while waiting; finalizers of the program may call anything
        self._flights: collections.deque[_Flight] = collections.deque()
        self._by_storage: weakref.WeakValueDictionary[int, _Stored] = weakref.WeakValueDictionary()
        self._order: list[weakref.ref[_Stored]] = []
        self._prefetched: list[weakref.ref[_Stored]] = []
        self._has_warned = False

    def __enter__(self) -> spill_activations:
        torch._C._autograd._push_saved_tensors_default_hooks(self._pack, self._unpack)
        return self

    def __exit__(self, *_: object) -> None:
        torch._C._autograd._pop_saved_tensors_default_hooks()
        with self._lock:
            self._settle()

    def wait(self) -> None:
        """Waits until no spill is under way. Then all memory that can be free is free."""
        self._make_room(self.in_flight_bytes + 1)

    # ---- spill

    def _pack(self, tensor: torch.Tensor) -> _Packed | _Live:
        if not self._is_worth_it(tensor):
            return _Live(tensor.detach())
        with self._lock:
            stored = self._find(tensor)
            if stored is not None:
                return _Packed(stored, tensor)
        self._make_room(tensor.untyped_storage().nbytes())
        with self._lock:
            stored = self._find(tensor) or self._spill(tensor)
            return _Packed(stored, tensor) if stored is not None else _Live(tensor.detach())

    def _is_worth_it(self, tensor: torch.Tensor) -> bool:
        if type(tensor) is not torch.Tensor or _is_parameter(tensor):
            return False
        if tensor._is_view() and tensor._base is not None and _is_parameter(tensor._base):
            return False
        if tensor.layout != torch.strided or tensor.device.type not in ("cuda", "cpu") or tensor.is_quantized:
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
        nbytes, storage = tensor.numel() * tensor.element_size(), tensor.untyped_storage()
        if nbytes < self.min_bytes or not self.min_bytes <= storage.nbytes() <= _MOST_OF_STORAGE * nbytes:
            return False
        if storage.nbytes() % tensor.element_size():
            return False
        return tensor.device.type == "cpu" or not torch.cuda.is_current_stream_capturing()

    def _find(self, tensor: torch.Tensor) -> _Stored | None:
        """Returns what is stored of this storage with the bytes that it has now. Under the lock."""
        storage = tensor.untyped_storage()
        stored = self._by_storage.get(storage._cdata)
        if stored is None or stored.version != tensor._version or stored.nbytes != storage.nbytes():
            return None
        return stored

    def _spill(self, tensor: torch.Tensor) -> _Stored | None:
        """Starts to spill the storage of a tensor. None: not possible. Under the lock."""
        storage = tensor.untyped_storage()
        flat = tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)  # same version counter
        while self._order and self._order[-1]() is None:
            self._order.pop()
        stored = _Stored(flat, len(self._order))
        side = None
        if flat.is_cuda:
            side = _side_streams(flat.device)[0]
            side.wait_stream(torch.cuda.current_stream(flat.device))
        try:
            ticket = self._connection.spill(flat, stream=side)
        except SpillwayError as error:
            self._note_failure(stored.nbytes, error)
            return None
        stored.flight = _Flight(ticket, _Live(flat), stored)
        self._flights.append(stored.flight)
        self._order.append(weakref.ref(stored))
        self._by_storage[storage._cdata] = stored
        return stored

    def _make_room(self, nbytes: int) -> None:
        """Waits for the oldest spills until nbytes more may be in flight, or none is."""
        begun = time.monotonic()
        while True:
            with self._lock:
                self._settle()
                if not self._flights or sum(f.nbytes for f in self._flights) + nbytes <= self.in_flight_bytes:
                    break
                oldest = self._flights[0].ticket
            try:
                oldest.wait()
            except SpillwayError:
                pass  # _settle() treats it
        with self._lock:
            self.statistics.pack_wait_s += time.monotonic() - begun

    def _settle(self) -> None:
        """Lets go of the tensors whose spills have ended, and cancels spills that no graph needs. Under the lock."""
        for flight in self._flights:
            if flight.stored() is None and not flight.is_canceled:
                flight.is_canceled = True
                try:
                    flight.ticket.cancel()
                except SpillwayError:
                    pass  # then it ends as it would have
        while self._flights and self._flights[0].ticket.done():
            self._land(self._flights.popleft())

    def _land(self, flight: _Flight) -> None:
        stored = flight.stored()
        if stored is None:
            return
        stored.flight = None
        stored.damage = flight.live.changed()
        try:
            region = flight.ticket.wait()
        except SpillwayError as error:
            stored.live = flight.live
            self._note_failure(flight.nbytes, error)
            return
        stored.region = region
        self.statistics.spilled_bytes += region.raw_bytes
        self.statistics.stored_bytes += region.stored_bytes

    def _note_failure(self, nbytes: int, error: SpillwayError) -> None:
        self.statistics.failed_bytes += nbytes
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(f"activations stay in memory, because they cannot be spilled: {error.name}: {error}", stacklevel=2)

    # ---- restore

    def _unpack(self, packed: _Packed | _Live) -> torch.Tensor:
        if isinstance(packed, _Live):
            return packed.get()
        stored = packed.stored
        with self._lock:
            self._settle()
            source = self._source(stored)
            self._prefetch(stored.position)
        if isinstance(source, _Fetch):
            source = self._take(stored, source)
        with self._lock:
            self._note_use(stored)
        tensor = packed.view(source)
        if tensor.is_cuda:  # restored memory belongs to the side stream
            tensor.record_stream(torch.cuda.current_stream(tensor.device))
        return tensor

    def _source(self, stored: _Stored) -> torch.UntypedStorage | _Fetch:
        """Returns the storage that has the bytes, or the restore that will bring them. Under the lock."""
        if stored.damage is not None:
            raise RuntimeError(stored.damage)
        live = stored.flight.live if stored.flight is not None else stored.live
        if live is not None:
            return live.get().untyped_storage()
        storage = stored.restored_storage()
        if storage is not None:
            return storage
        if stored.fetch is None:
            stored.fetch = self._start(stored, is_prefetch=False)
        return stored.fetch

    def _start(self, stored: _Stored, is_prefetch: bool) -> _Fetch:
        """Starts to restore, into memory of the side stream: that need not wait for the work of the current one."""
        assert stored.region is not None
        side = _side_streams(stored.device)[1] if stored.device.type == "cuda" else None
        with torch.cuda.stream(side):
            target = torch.empty(stored.shape, dtype=stored.dtype, device=stored.device)
        ticket = stored.region.restore(into=target, keep=True, stream=side)
        self.statistics.restored_bytes += stored.nbytes
        if is_prefetch:
            self.statistics.prefetched_bytes += stored.nbytes
        return _Fetch(target, ticket)

    def _take(self, stored: _Stored, fetch: _Fetch) -> torch.UntypedStorage:
        """Waits for a restore. Without the lock."""
        begun = time.monotonic()
        storage = fetch.target.untyped_storage()
        try:
            fetch.ticket.wait()
        except SpillwayError:
            with self._lock:
                if stored.fetch is fetch:
                    stored.fetch = None  # a later backward pass tries again
            raise
        with self._lock:
            self.statistics.unpack_wait_s += time.monotonic() - begun
            stored.restored = StorageWeakRef(storage)
        return storage

    def _note_use(self, stored: _Stored) -> None:
        """Lets go of a restored storage when each tensor that shares it has been unpacked. Under the lock."""
        stored.n_unpacked += 1
        if stored.n_unpacked >= stored.n_packed:
            stored.n_unpacked = 0
            stored.fetch = None
        elif stored.fetch is not None and all(ref() is not stored for ref in self._prefetched):
            self._prefetched.append(weakref.ref(stored))

    def _prefetch(self, position: int) -> None:
        """Starts to restore what was saved before this position, as far as the bound allows. Under the lock."""
        waiting = [s for s in (ref() for ref in self._prefetched) if s is not None and s.fetch is not None]
        for stored in waiting:
            # A region has one restore at a time, so that one which runs is kept.
            if stored.position > position + _PASSED_BY and stored.fetch is not None and stored.fetch.ticket.done():
                stored.fetch = None
        waiting = [s for s in waiting if s.fetch is not None]
        room = self.prefetch_bytes - sum(s.nbytes for s in waiting)
        for ref in reversed(self._order[max(0, position - _LOOKAHEAD) : position]):
            stored_before = ref()
            if stored_before is None or stored_before.region is None or stored_before.damage is not None:
                continue
            if stored_before.fetch is not None or stored_before.restored_storage() is not None:
                continue
            if stored_before.nbytes > room:
                break
            try:
                stored_before.fetch = self._start(stored_before, is_prefetch=True)
            except (SpillwayError, torch.cuda.OutOfMemoryError):
                break  # the backward pass asks again
            room -= stored_before.nbytes
            waiting.append(stored_before)
        self._prefetched = [weakref.ref(s) for s in waiting]
