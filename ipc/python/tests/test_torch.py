# SPDX-License-Identifier: Apache-2.0
"""spillway.torch, on the CPU, and on a GPU where there is one. Skipped without PyTorch."""

import gc
import os
import signal
import threading
from contextlib import contextmanager, nullcontext

import pytest
from pausing import pause

torch = pytest.importorskip("torch")

import spillway.torch  # noqa: E402
from spillway import _service  # noqa: E402
from spillway._activations import _Live, _Packed  # noqa: E402
from torch.multiprocessing.reductions import StorageWeakRef  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

HAS_GPU = torch.cuda.is_available()
DEVICES = ["cpu", "cuda"] if HAS_GPU else ["cpu"]
on_gpu = pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
MIB = 1 << 20


@contextmanager
def running(**options):
    """A service of this test's own, beside that of the other tests."""
    device = {"device": "cuda"} if HAS_GPU else {"device": "host", "scratch_bytes": "64MiB", "slots": 2}
    with _service._launch(60, {**device, **options}) as s:
        yield s


@pytest.fixture(scope="module")
def service():
    with running(host_tier_bytes="512MiB") as s:
        yield s


@pytest.fixture
def connection(service):
    with spillway.Connection(service.socket) as c:
        yield c


@pytest.fixture(params=DEVICES)
def device(request):
    return request.param


@contextmanager
def stopped(service):
    """The service answers nothing, so every spill stays under way."""
    pause(service)
    try:
        yield
    finally:
        os.kill(service.pid, signal.SIGCONT)


class Block(torch.nn.Module):
    """A transformer block whose query, key and value are views of one storage."""

    def __init__(self, width=256):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + self.down(torch.relu(self.up(x)))


def blocks(device, n=3, batch=8):
    """Returns a stack of blocks, and its input."""
    torch.manual_seed(1)
    return torch.nn.Sequential(*(Block() for _ in range(n))).to(device), torch.randn(batch, 128, 256, device=device)


def gradients(model, x, context=nullcontext(), times=1):
    """Returns the gradients of a model; backward() runs outside of the context."""
    model.zero_grad()
    with context:
        loss = model(x).square().sum()
    for i in range(times):
        loss.backward(retain_graph=i + 1 < times)
    return [p.grad.clone() for p in model.parameters()]


def same(a, b):
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b))


def close(a, b):
    """As same(). A GPU may add in another order, where work is queued on several streams."""
    if a[0].is_cuda:
        return all(torch.allclose(x, y, rtol=1e-3, atol=1e-4 * float(y.abs().max())) for x, y in zip(a, b))
    return same(a, b)


def intermediate(device, n=MIB):
    """A tensor that a program could save: no leaf, with a graph of its own."""
    return torch.arange(float(n), device=device).requires_grad_() * 0.5


# ---- activations


@pytest.mark.parametrize("times", [1, 3], ids=["once", "retain_graph"])
@pytest.mark.parametrize("bound", [1, 3 * MIB, 1 << 30])
def test_gradients_are_the_same(connection, device, times, bound):
    model, x = blocks(device)
    expected = gradients(model, x, times=times)
    spill = spillway.torch.spill_activations(connection, in_flight_bytes=bound, prefetch_bytes=bound)
    assert close(gradients(model, x, spill, times), expected)
    assert spill.statistics.spilled_bytes > 0 and spill.statistics.failed_bytes == 0
    assert (spill.statistics.prefetched_bytes > 0) == (bound > MIB and spill.statistics.restored_bytes > 0)


def test_stored_bytes_go_with_the_graph(connection, device):
    model, x = blocks(device)
    before = connection.status().regions
    spill = spillway.torch.spill_activations(connection)
    with spill:
        loss = model(x).sum()
    spill.wait()
    assert connection.status().regions >= before + 3 * 5
    loss.backward(retain_graph=True)
    assert connection.status().regions >= before + 3 * 5
    loss.backward()
    assert connection.status().regions == before
    with spill:
        loss = model(x).sum()
    del loss
    spill.wait()
    assert connection.status().regions == before and not spill._order[0]()


def test_what_stays(connection, device):
    spill = spillway.torch.spill_activations(connection)
    parameter = torch.nn.Parameter(torch.zeros(1024, 1024, device=device))
    with torch.no_grad():
        view_without_graph = parameter.t()
    kept = {
        "parameter": parameter,
        "frozen parameter": torch.nn.Parameter(torch.zeros(MIB, device=device), requires_grad=False),
        "view": parameter.t()[1:],
        "view without a graph": view_without_graph,
        "leaf": torch.zeros(MIB, device=device, requires_grad=True),
        "small": torch.zeros(MIB // 4 - 1, device=device),
        "sparse": torch.eye(10, device=device).to_sparse(),
        "expanded": torch.zeros(1024, 1, device=device).expand(-1, 1024),
        "a part": torch.zeros(5, MIB, device=device)[0],
        "conjugate": torch.zeros(MIB, dtype=torch.complex64, device=device).conj(),
    }
    for name, tensor in kept.items():
        assert type(spill._pack(tensor)) is _Live, name
    spilled = {
        "1 MiB": torch.zeros(MIB // 4, device=device),
        "result": intermediate(device),
        "half": torch.zeros(MIB, dtype=torch.bfloat16, device=device),
        "transposed": torch.rand(1024, 2048, device=device).t(),
        "a quarter": torch.rand(4, MIB, device=device)[3],
        "every other": torch.rand(1024, 1024, device=device)[:, ::2],
    }
    for name, tensor in spilled.items():
        packed = spill._pack(tensor)
        assert type(packed) is _Packed, name
        spill.wait()
        back = spill._unpack(packed)
        assert torch.equal(back, tensor) and back.dtype == tensor.dtype and back.stride() == tensor.stride(), name
        assert back.data_ptr() != tensor.data_ptr()


def test_a_storage_is_stored_once(connection, device):
    spill = spillway.torch.spill_activations(connection)
    with spill:
        x = intermediate(device, 3 * MIB)
        parts = x.chunk(3)
        loss = sum((part.sin() * part).sum() for part in parts) + x.square().sum()
        spill.wait()
        assert spill.statistics.spilled_bytes == 3 * 4 * MIB + 3 * 4 * MIB  # x, and three sines
        x.detach().add_(1)
        packed = spill._pack(x)  # other bytes: stored again
        spill.wait()
        assert spill.statistics.spilled_bytes == 3 * 3 * 4 * MIB
    del x, parts, packed
    loss.backward()
    assert spill.statistics.restored_bytes == 2 * 3 * 4 * MIB  # x, too, although seven tensors share it


def test_memory_is_free(connection, device):
    spill = spillway.torch.spill_activations(connection)
    leaf = torch.rand(MIB, device=device, requires_grad=True)
    gc.disable()
    try:
        with spill:
            x = leaf * 2
            y = x.exp().sin()  # saves x.exp(), twice
            storage = StorageWeakRef(x.exp_().untyped_storage())
            del x
            spill.wait()
            assert storage.expired()
            y.sum().backward()
    finally:
        gc.enable()
    torch.testing.assert_close(leaf.grad, 2 * (2 * leaf).exp() * (2 * leaf).exp().cos())


def test_the_tensor_is_held_until_its_ticket_ends(connection, service):
    spill = spillway.torch.spill_activations(connection)
    leaf = torch.rand(MIB, requires_grad=True)
    with spill, stopped(service):
        x = leaf * 2
        storage = StorageWeakRef(x.untyped_storage())
        y = x.square()
        del x
        gc.collect()
        assert not storage.expired()
        y.sum().backward()  # does not wait for what is in memory
        assert torch.equal(leaf.grad, 8 * leaf)
        del y
        assert not storage.expired()
    spill.wait()
    assert storage.expired() and spill.statistics.restored_bytes == 0


def test_a_change_in_place_is_an_error(connection, service, device):
    spill = spillway.torch.spill_activations(connection)
    message = "modified by an inplace operation"
    for context in (nullcontext(), spill):  # as PyTorch does it
        with stopped(service), context:
            x = intermediate(device)
            loss = x.square().sum()
            x.detach().add_(1)
        if context is spill:
            spill.wait()
        with pytest.raises(RuntimeError, match=message):
            loss.backward()
    for n in (MIB, 8):
        weight = torch.nn.Parameter(torch.rand(n, device=device))
        with spill:
            loss = (weight * weight.detach().clone().requires_grad_()).sum()
        with torch.no_grad():
            weight.add_(1)
        with pytest.raises(RuntimeError, match=message):
            loss.backward()


def test_a_change_in_place_while_in_memory_is_an_error(connection, service):
    with stopped(service), spillway.torch.spill_activations(connection):
        x = intermediate("cpu")
        loss = x.square().sum()
        x.detach().add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_change_in_place_after_the_bytes_are_stored(connection, device):
    leaf = torch.rand(MIB, device=device, requires_grad=True)
    spill = spillway.torch.spill_activations(connection)
    with spill:
        x = leaf * 2
        loss = x.square().sum()
        spill.wait()
        x.detach().zero_()
    loss.backward()
    assert torch.equal(leaf.grad, 8 * leaf)


def test_in_place_operations(connection, device):
    model, x = blocks(device)
    model = torch.nn.Sequential(model, torch.nn.Linear(256, 512).to(device), torch.nn.ReLU(inplace=True))
    expected = gradients(model, x)
    assert close(gradients(model, x, spillway.torch.spill_activations(connection)), expected)


def test_double_backward(connection, device):
    leaf = torch.rand(MIB, device=device, requires_grad=True)

    def second(spill=None):
        with spill or nullcontext():
            loss = ((leaf * 2).sin() * leaf).square().sum()
            (first,) = torch.autograd.grad(loss, leaf, create_graph=True)
            if spill:
                spill.wait()
            return torch.autograd.grad(first.square().sum(), leaf)[0]

    spill = spillway.torch.spill_activations(connection, prefetch_bytes=8 * MIB)
    assert torch.equal(second(spill), second())
    assert spill.statistics.restored_bytes > 0


def test_an_exception_in_forward(connection, device):
    model, x = blocks(device)
    expected = gradients(model, x)
    before = connection.status().regions
    spill = spillway.torch.spill_activations(connection)

    def fail():
        with spill:
            y = model(x)
            storages.append(StorageWeakRef(y.untyped_storage()))
            y.square()
            raise ValueError("of the model")

    storages = []
    gc.disable()
    try:
        with pytest.raises(ValueError, match="of the model"):
            fail()
    finally:
        gc.enable()
    gc.collect()  # the exception's own cycle
    spill.wait()
    assert storages[0].expired() and connection.status().regions == before
    assert type(torch.square(intermediate(device)).grad_fn._saved_self) is torch.Tensor  # no hook is left
    assert close(gradients(model, x, spill), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_inside(connection, device, reentrant):
    model, x = blocks(device)
    x.requires_grad_()

    class Checkpointed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = model

        def forward(self, x):
            for block in self.blocks[:-1]:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return self.blocks[-1](x)

    expected = gradients(model, x)
    spill = spillway.torch.spill_activations(connection, in_flight_bytes=1)
    assert close(gradients(Checkpointed(), x, spill), expected)
    assert spill.statistics.restored_bytes > 0


def test_threads(connection, device):
    """Threads share the connection and the object, and run backward passes of each other."""
    spill = spillway.torch.spill_activations(connection, in_flight_bytes=4 * MIB, prefetch_bytes=4 * MIB)
    models = [blocks(device, batch=8 + i)[0] for i in range(3)]
    inputs = [blocks(device, batch=8 + i)[1] for i in range(3)]
    expected = [gradients(model, x) for model, x in zip(models, inputs)]
    losses, failures, barrier = {}, [], threading.Barrier(3)

    def run(i):
        try:
            for _ in range(2):
                models[i].zero_grad()
                with spill:
                    losses[i] = models[i](inputs[i]).square().sum()
                barrier.wait(60)
                losses.pop((i + 1) % 3).backward()
                barrier.wait(60)
                assert close([p.grad for p in models[i].parameters()], expected[i])
                barrier.wait(60)
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
        assert not t.is_alive()
    assert not failures, failures
    assert spill.statistics.restored_bytes > 0


def test_what_is_passed_by_is_let_go(connection, device):
    """Backward passes of parts of a graph prefetch what they do not need, and this does not fill the bound for good."""
    spill = spillway.torch.spill_activations(connection, prefetch_bytes=8 * MIB)
    leaf = torch.rand(MIB, device=device, requires_grad=True)

    def prefetched():
        return [s.position for s in (ref() for ref in spill._prefetched) if s is not None and s.fetch is not None]

    with spill:
        losses = {i: (leaf * i).square().sum() for i in range(30)}
    spill.wait()
    for i, expected in ((29, [28, 27]), (5, [4, 3])):
        leaf.grad = None
        losses.pop(i).backward()
        torch.testing.assert_close(leaf.grad, 2 * i * i * leaf)
        assert prefetched() == expected
        for ref in spill._prefetched:
            ref().fetch.ticket.wait()
    for loss in losses.values():
        loss.backward()
    assert prefetched() == []


def test_a_running_restore_is_not_started_again(connection, service, device):
    spill = spillway.torch.spill_activations(connection, prefetch_bytes=8 * MIB)
    leaf = torch.rand(MIB, device=device, requires_grad=True)
    with spill:
        losses = [(leaf * i).square().sum() for i in range(30)]
    spill.wait()
    with stopped(service):
        spill._prefetch(30)
        spill._prefetch(5)
        assert [ref().position for ref in spill._prefetched] == [29, 28]
    for loss in losses:
        loss.backward()
    expected = 2 * leaf * sum(i * i for i in range(30))
    torch.testing.assert_close(leaf.grad, expected)


def test_bounds_and_order(connection, device):
    class Watched(spillway.torch.spill_activations):
        def _spill(self, tensor):
            stored = super()._spill(tensor)
            in_flight.append(sum(f.nbytes for f in self._flights))
            return stored

        def _start(self, stored, is_prefetch):
            fetch = super()._start(stored, is_prefetch)
            if is_prefetch:
                positions.append(stored.position)
                fetched = [s for s in (ref() for ref in self._order) if s and s.fetch and s.position < last[-1]]
                prefetched.append(stored.nbytes + sum(s.nbytes for s in fetched))
            return fetch

        def _unpack(self, packed):
            last.append(packed.stored.position if type(packed) is _Packed else last[-1])
            return super()._unpack(packed)

    in_flight, positions, prefetched, last = [], [], [], [1 << 30]
    spill = Watched(connection, in_flight_bytes=9 * MIB, prefetch_bytes=10 * MIB)
    model, x = blocks(device, n=4)
    expected = gradients(model, x)
    with spill:
        loss = model(x).square().sum()
    spill.wait()
    model.zero_grad()
    loss.backward()
    assert close([p.grad for p in model.parameters()], expected)
    assert 4 * MIB < max(in_flight) <= 9 * MIB and len(in_flight) > 20
    assert 4 * MIB < max(prefetched) <= 10 * MIB
    assert len(positions) > 10 and positions == sorted(positions, reverse=True)


def test_a_full_service_leaves_tensors_in_memory(device):
    with running(host_tier_bytes="16MiB", host_tier_initial_bytes="0") as service:
        with spillway.Connection(service.socket) as connection:
            model, x = blocks(device)
            expected = gradients(model, x)
            spill = spillway.torch.spill_activations(connection, in_flight_bytes=8 * MIB)
            with pytest.warns(UserWarning, match="stay in memory.*ENOSPACE") as warned:
                assert close(gradients(model, x, spill), expected)
            assert len([w for w in warned if "stay in memory" in str(w.message)]) == 1
            assert spill.statistics.failed_bytes > 0


def test_a_connection_that_is_closed(service, device):
    connection = spillway.Connection(service.socket)
    spill = spillway.torch.spill_activations(connection)
    with spill:
        loss = intermediate(device).square().sum()
    spill.wait()
    connection.close()
    with pytest.raises(spillway.ECONN):
        loss.backward()
    with spill, pytest.warns(UserWarning, match="closed"):
        loss = intermediate(device).square().sum()
    loss.backward()  # it stayed


# ---- offload_ and restore_


def sizes(tensors):
    return [t.untyped_storage().nbytes() for t in tensors]


def test_offload_a_tensor(connection, device):
    x = torch.rand(1000, 100, device=device)
    copy, storage = x.clone(), x.untyped_storage()
    assert spillway.torch.offload_(x, connection) == 400_000
    assert sizes([x]) == [0] and x.shape == (1000, 100)
    assert spillway.torch.offload_(x, connection) == 0
    assert spillway.torch.restore_(x) == 400_000
    assert torch.equal(x, copy) and x.untyped_storage() is storage
    assert spillway.torch.restore_(x) == 0


def test_offload_a_module_and_its_optimizer(connection, device):
    model, x = blocks(device)
    model.append(torch.nn.BatchNorm1d(128).to(device))
    model[1].up.weight = model[0].up.weight  # tied
    optimizer = torch.optim.AdamW(model.parameters())
    model(x).sum().backward()
    optimizer.step()
    before = connection.status().regions
    state = [*model.parameters(), *(p.grad for p in model.parameters())]
    state += [t for s in optimizer.state.values() for t in s.values()]
    copies = [t.detach().clone() for t in state]
    freed = spillway.torch.offload_([model, optimizer], connection)
    large = [t for t in state if t.nbytes >= 4096]
    assert freed == sum(t.nbytes for t in large) and sizes(large) == [0] * len(large)
    part = spillway.torch.restore_(model[0])
    assert 0 < part < freed and model[0].up.weight.untyped_storage().nbytes() > 0
    assert spillway.torch.restore_({"all": (model, optimizer)}) == freed - part
    assert same(state, copies) and connection.status().regions == before
    assert model[1].up.weight is model[0].up.weight
    optimizer.step()


def test_offload_refuses_shared_memory(connection, device):
    layer = torch.nn.Linear(64, 64).to(device)
    view = layer.weight[:8]
    with pytest.raises(spillway.EINVAL, match="weight shares its memory with 1 other"):
        spillway.torch.offload_(layer, connection)
    assert spillway.torch.offload_([layer, view], connection) == 64 * 64 * 4
    assert spillway.torch.restore_(layer) == 64 * 64 * 4 and view.sum() == layer.weight[:8].sum()
    del view
    out = layer(torch.rand(4, 64, device=device, requires_grad=True))  # saves a view of the weight
    with pytest.raises(spillway.EINVAL, match="graph"):
        spillway.torch.offload_(layer, connection)
    out.sum().backward()
    del out
    assert spillway.torch.offload_(layer.weight, connection) == 64 * 64 * 4
    spillway.torch.restore_(layer)
    with pytest.raises(spillway.EINVAL, match="no plain memory"):
        spillway.torch.offload_(torch.eye(3).to_sparse(), connection)
    with pytest.raises(TypeError):
        spillway.torch.offload_("x", connection)


def test_offload_refuses_memory_of_others(connection):
    numpy = pytest.importorskip("numpy")
    with pytest.raises(spillway.EINVAL, match="NumPy"):
        spillway.torch.offload_(torch.from_numpy(numpy.ones(10)), connection)


def test_failures_leave_everything_as_it_was(service, device):
    x, copy = (torch.ones(MIB, device=device) for _ in range(2))
    other = spillway.Connection(service.socket)
    other.close()
    with pytest.raises(spillway.ECONN):
        spillway.torch.offload_(x, other)
    assert torch.equal(x, copy)
    connection = spillway.Connection(service.socket)
    y = torch.ones(MIB, device=device)
    spillway.torch.offload_([x, y], connection)
    with stopped(service), pytest.raises(spillway.ETIMEDOUT):
        timer = threading.Timer(0.5, os.kill, (service.pid, signal.SIGCONT))  # ends the canceled call
        timer.start()
        spillway.torch.restore_([x, y], timeout=0.05)
    assert sizes([x, y]) == [0, 0]
    assert spillway.torch.restore_(x) == 4 * MIB and torch.equal(x, copy)
    connection.close()
    with pytest.raises(spillway.ECONN):
        spillway.torch.restore_(y)
    assert sizes([y]) == [0]


def test_an_offloaded_tensor_that_goes_is_dropped(connection, device):
    before = connection.status().regions
    x = torch.ones(MIB, device=device)
    spillway.torch.offload_(x, connection)
    assert connection.status().regions == before + 1
    del x
    spillway.torch.offload_([], connection)
    assert connection.status().regions == before


# ---- on a GPU


@on_gpu
def test_offload_frees_memory_of_the_gpu(connection):
    before = torch.cuda.memory_allocated()
    x = torch.rand(64 * MIB, device="cuda")
    total = x.double().sum()
    torch.cuda.synchronize()
    spillway.torch.offload_(x, connection)
    assert torch.cuda.memory_allocated() < before + MIB
    spillway.torch.restore_(x)
    assert torch.cuda.memory_allocated() >= before + 256 * MIB and x.double().sum() == total


@on_gpu
def test_activations_leave_the_gpu(connection):
    model, x = blocks("cuda", n=8, batch=32)
    bound = 32 * MIB

    def peak(context):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        result = gradients(model, x, context)
        return torch.cuda.max_memory_allocated() - before, result

    peak(nullcontext())
    all_of_it, expected = peak(nullcontext())
    spill = spillway.torch.spill_activations(connection, in_flight_bytes=bound, prefetch_bytes=bound)
    peak(spill)
    spilled, found = peak(spill)
    assert close(found, expected)
    assert spilled < all_of_it * 0.6, (spilled, all_of_it)


@on_gpu
@pytest.mark.parametrize("n", range(5))
def test_streams(connection, n):
    """Work that is queued on a stream of the program's own is waited for, and its memory is not reused too early."""
    model, x = blocks("cuda", n=4, batch=16 + n)
    expected = gradients(model, x)
    torch.cuda.synchronize()
    spill = spillway.torch.spill_activations(connection, in_flight_bytes=16 * MIB, prefetch_bytes=16 * MIB)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)
        found = gradients(model, x, spill)
    torch.cuda.synchronize()
    assert close(found, expected)
