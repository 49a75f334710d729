"""Which back end computes: cuda, triton or torch, the first that can. QUASAR_BACKEND names one instead.

Each is a module with these functions. Tensors are contiguous, but where another layout is told of, and on one device;
dtypes are as said.

unavailable(device)
    Why it cannot run on this device, as a string, or None. Cheap, and raises nothing.

forward(q, k, v, beta, state, semantics, first_rows=None, tokens=None, out=None) -> o, final state
    The operation, without autograd. q, k, v [B, T, H, S] of one dtype, T > 0; beta [H] fp32; state [B, H, S, S]
    fp32, key by value dimension, or None for zeros; o [B, T, H, S] in q's dtype, written into `out` if given. The
    final state is always returned. (torch: all of it in fp64 if q is.)
    first_rows [H] int64, for a segment of a sequence under upstream semantics: q, k and v hold more rows than are
    used. Taken as a list of (token, head) rows, each sequence's rows of head h begin at first_rows[h] and are
    64 * chunks, where chunks = ceil(tokens / 64); o is [B, tokens, H, S], and its token 64 i + r of head h belongs
    to row r of head h's chunk i.

gradients(q, k, v, beta, state, semantics, output_gradient, state_gradient, first_rows=None, tokens=None)
        -> those of q, k, v, beta and the state
    What forward does, backwards: from the gradients of o, in q's dtype, and of the final state, in fp32. Those of q, k and v
    are in q's dtype, zeros where first_rows has left rows out; the others in fp32. (torch: all in fp64 if q is.)

IN_PLACE
    Whether `out` may lie in the memory of q so that each chunk's rows of both are at one place: under causal semantics
    it is q; under upstream semantics, of whole chunks, a head's rows are one behind the other (contiguous as [B, H, T, S]).

The layer's parts, in bf16. A segment of a sequence (fused_layer.Segment) is made of one stretch of tokens, or, under
upstream semantics, of one for each head; token 0 of a stretch is segment.start(stretch). Several sequences go side
by side.

project(x, weights, segment, q, k, v, narrow) -> whether it could
    What gather, a product with weights.projection (fused_layer.Weights) and convolve do, for all of a segment in one
    launch: writes q, k and v [B, stretches, length, W] and narrow. False where there is no such kernel, and where it would be slower.

gather(x, segment) -> xs [B * stretches * (3 + length), hidden] bf16
    The tokens of each stretch and the three before it, of x [B, T, hidden] fp32 or bf16; zeros outside the sequence.

convolve(projected, weight, segment, q, k, v, narrow, held=None)
    projected [B * stretches * (3 + length), 3 W + S] bf16: the products of xs with the weights of q, k, v and the
    narrow half of the gate; weight [3, 4, W] fp32, oldest tap first. Writes SiLU of the causal convolutions, computed
    in fp32, into the first `length` rows of the stretches of q, k and v [B, stretches, at least length, W] bf16, zeros
    where the sequence has ended; and the last S columns into the rows of narrow [B, T, S] bf16 that are the stretches'
    tokens. `held` is the number of rows from a stretch of q, k and v to the next, if not `length`.

gate(o, narrow, weight, bias, norm, eps, y)
    o [rows, H, S] bf16, whose rows and heads may lie any way, narrow [rows, S] bf16, weight [W, S] bf16, bias [W] bf16,
    norm [S] fp32. Writes RMSNorm(o) * norm * sigmoid(narrow weight^T + bias), computed in fp32, into y [rows, W] bf16.
"""
import functools
import os
import warnings

import torch

from fla.ops.quasar import cuda_backend
from fla.ops.quasar import torch_backend
from fla.ops.quasar import triton_backend

BACKENDS = {"cuda": cuda_backend, "triton": triton_backend, "torch": torch_backend}
DTYPES = (torch.float32, torch.bfloat16, torch.float16)  # of the kernels; torch has them all
HEAD_DIMS = (32, 64, 128)


def obstacle(name, device, dtype, size):
    """Why this back end cannot compute this, or None."""
    if name != "torch" and dtype not in DTYPES:
        return f"no kernels for {dtype}"
    if name != "torch" and size not in HEAD_DIMS:
        return f"no kernels for a head dimension of {size}, only for 32, 64 and 128"
    return BACKENDS[name].unavailable(device)


@functools.cache
def select(name, device, dtype, size):
    """The back end of that name, or the first that can. ValueError: no such name; RuntimeError: it cannot."""
    if name:
        if name not in BACKENDS:
            raise ValueError(f"QUASAR_BACKEND={name}: choose from {', '.join(BACKENDS)}")
        if reason := obstacle(name, device, dtype, size):
            raise RuntimeError(f"QUASAR_BACKEND={name}: {reason}")
        return BACKENDS[name]
    reasons = []
    for name, backend in BACKENDS.items():
        reason = obstacle(name, device, dtype, size)
        if reason is None:
            break
        reasons.append(f"{name}: {reason}")
    if reasons and device.type != "cpu":
        warnings.warn(f"QuasarAttention runs on its {name} back end ({'; '.join(reasons)})", stacklevel=3)
    return backend


def choose(device, dtype, size):
    """The back end for tensors [..., size]."""
    return select(os.environ.get("QUASAR_BACKEND"), device, dtype, size)
