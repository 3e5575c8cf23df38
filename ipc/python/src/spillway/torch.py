# SPDX-License-Identifier: Apache-2.0
"""PyTorch: parks models, optimizers and activations. Needs PyTorch 2.1 or later.

    import spillway.torch

    spillway.torch.offload_(optimizer, connection)         # its GPU memory is free now
    spillway.torch.restore_(optimizer)                     # the same tensors have their bytes back

    with spillway.torch.spill_activations(connection):
        loss = model(x).sum()
    loss.backward()

What is freed when:

- offload_() returns when the bytes are stored and the tensors' memory is free. PyTorch's allocator caches this memory
  for its next tensors; torch.cuda.empty_cache() gives it to other programs. The tensors keep their shapes, but have no
  memory until restore_().
- spill_activations() drops its reference to an activation when its bytes are stored. The memory is free if the model
  does not refer to the activation either. The stored bytes are dropped with the graph: a backward pass without
  retain_graph drops each as soon as it is used.
"""

from ._activations import Statistics, spill_activations
from ._offload import offload_, restore_

__all__ = ["Statistics", "offload_", "restore_", "spill_activations"]
