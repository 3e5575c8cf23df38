# SPDX-License-Identifier: Apache-2.0
"""Parks the memory of tensors, and refills the same tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from ._connection import Connection
from ._ticket import Region, Ticket
from .errors import EINVAL, SpillwayError

_LEAST_BYTES = 4096  # smaller tensors of modules and optimizers stay: they free next to nothing


@dataclass
class _Parked:
    """A storage without memory. ref: also keeps its address from being used for another storage."""

    ref: StorageWeakRef
    region: Region
    nbytes: int


@dataclass
class _Group:
    """The tensors of an object that share one storage, by id. first: one of them, and its name."""

    storage: torch.UntypedStorage
    name: str
    first: torch.Tensor
    tensors: dict[int, torch.Tensor] = field(default_factory=dict)

    def flat(self) -> torch.Tensor:
        """Returns a tensor of the whole storage."""
        dtype = torch.uint8 if self.storage.nbytes() % self.first.element_size() else self.first.dtype
        return torch.empty(0, dtype=dtype, device=self.first.device).set_(self.storage)


_parked: dict[int, _Parked] = {}  # by the address of the storage


def _tensors(obj: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """Finds the tensors of an object, with names for error texts."""
    if isinstance(obj, torch.Tensor):
        yield name or "the tensor", obj
    elif isinstance(obj, torch.nn.Module):
        for key, parameter in obj.named_parameters(name):
            yield key, parameter
            if parameter.grad is not None:
                yield f"{key}.grad", parameter.grad
        yield from obj.named_buffers(name)
    elif isinstance(obj, torch.optim.Optimizer):
        for i, state in enumerate(obj.state.values()):
            yield from _tensors(state, f"{name}state[{i}]")
    elif isinstance(obj, Mapping):
        for key, value in obj.items():
            yield from _tensors(value, f"{name}[{key!r}]")
    elif isinstance(obj, (list, tuple)):
        for i, value in enumerate(obj):
            yield from _tensors(value, f"{name}[{i}]")


def _groups(obj: Any) -> dict[int, _Group]:
    if not isinstance(obj, (torch.Tensor, torch.nn.Module, torch.optim.Optimizer, Mapping, list, tuple)):
        raise TypeError(f"{type(obj).__name__} is no tensor, module or optimizer, and no list or dict of them")
    groups: dict[int, _Group] = {}
    for name, tensor in _tensors(obj):
        if tensor.layout != torch.strided or tensor.device.type not in ("cuda", "cpu"):
            raise EINVAL(f"{name} has layout {tensor.layout} on {tensor.device}: it is no plain memory")
        storage = tensor.untyped_storage()
        group = groups.setdefault(storage._cdata, _Group(storage, name, tensor))
        group.tensors[id(tensor)] = tensor
    return groups


def _check(group: _Group) -> None:
    """Raises EINVAL unless the storage can be freed, and only these tensors have it."""
    storage, name = group.storage, group.name
    if not storage.resizable():
        raise EINVAL(
            f"PyTorch cannot free the memory of {name}: it belongs to NumPy or is shared", hint="use x.clone()"
        )
    others = torch._C._storage_Use_Count(storage._cdata) - len(group.tensors) - 1  # 1: `storage`
    if others > 0:
        raise EINVAL(
            f"{name} shares its memory with {others} other tensor(s)",
            hint="drop views and graphs of it first, or offload_() all of them in one list",
        )


def offload_(obj: Any, connection: Connection, *, timeout: float | None = None) -> int:
    """Stores the bytes of a tensor, module or optimizer, and frees their memory. Returns the number of bytes freed.

    The tensors stay the same objects, with their shapes, without memory: do not use them before restore_(). PyTorch
    does not check that: a kernel that reads them crashes the process, or makes the GPU's context unusable.

    obj: a tensor; a module: its parameters, gradients and buffers; an optimizer: its state; or a list, tuple or dict
    of these. Tensors under 4 KiB of modules and optimizers stay, and so does what is offloaded already.
    All or nothing: after an error every tensor has its memory. EINVAL: a tensor shares its memory with tensors that are
    not in obj, such as a view, or what a graph that awaits its backward pass has saved.
    Waits for the work queued on the current stream. Synchronise other streams that use the tensors first.
    The stored bytes are lost when the connection ends.
    """
    for key in [key for key, parked in _parked.items() if parked.ref.expired()]:
        del _parked[key]  # its region is dropped
    least = 1 if isinstance(obj, torch.Tensor) else _LEAST_BYTES
    groups = [group for group in _groups(obj).values() if group.storage.nbytes() >= least]
    for group in groups:
        _check(group)
    if not groups:
        return 0
    regions = connection.spill_batch([group.flat() for group in groups], timeout=timeout).wait()
    freed = 0
    for group, region in zip(groups, regions):
        freed += group.storage.nbytes()
        _parked[group.storage._cdata] = _Parked(StorageWeakRef(group.storage), region, group.storage.nbytes())
        group.storage.resize_(0)
    return freed


def restore_(obj: Any, *, timeout: float | None = None) -> int:
    """Gives the tensors of obj that offload_() has emptied their memory and bytes back. Returns the number of bytes.

    obj: what was offloaded, or a part of it. All or nothing: after an error, also one of PyTorch that the GPU is full,
    the tensors are still offloaded.
    """
    found = [(group, _parked[key]) for key, group in _groups(obj).items() if key in _parked]
    tickets: list[Ticket[Any]] = []
    try:
        for group, parked in found:
            group.storage.resize_(parked.nbytes)
        for connection in {id(p.region._connection): p.region._connection for _, p in found}.values():
            part = [(group.flat(), parked.region) for group, parked in found if parked.region._connection is connection]
            flats, regions = zip(*part)
            # The regions stay until everything is back.
            tickets.append(connection.restore_batch(regions, into=flats, keep=True, timeout=timeout))
        for ticket in tickets:
            ticket.wait()
    except BaseException:
        for ticket in tickets:
            _end(ticket)
        for group, _ in found:
            group.storage.resize_(0)
        raise
    for group, _ in found:
        del _parked[group.storage._cdata]
    return sum(parked.nbytes for _, parked in found)


def _end(ticket: Ticket[Any]) -> None:
    """Waits until the service no longer writes to the memory of a restore."""
    try:
        ticket.cancel()
        ticket.wait()
    except SpillwayError:
        pass
