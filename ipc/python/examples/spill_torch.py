# SPDX-License-Identifier: Apache-2.0
"""Trains a step with parked activations, and parks the optimizer between steps. Run it: python spill_torch.py"""

import torch

import spillway.torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

if __name__ == "__main__":
    spillway.start(host_tier_bytes="1GiB")
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()) for _ in range(8)))
    model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(4096, 512, device=DEVICE)
    model(x).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    with torch.no_grad():
        before = [s["exp_avg"].clone() for s in optimizer.state.values()]

    with spillway.Connection() as connection:
        freed = spillway.torch.offload_(optimizer, connection)  # its memory is free until restore_()
        spill = spillway.torch.spill_activations(connection)
        with spill:
            loss = model(x).sum()
        loss.backward()  # the activations come back, the last one first
        spillway.torch.restore_(optimizer)
        assert all((s["exp_avg"] == b).all() for s, b in zip(optimizer.state.values(), before))
        print(f"optimizer: {freed} bytes were free; activations: {spill.statistics}")
        print("every byte is back")
