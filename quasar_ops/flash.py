"""Softmax attention: the operation and its gradient, for PyTorch's dispatcher, autograd and compiler."""
from typing import Optional

import torch
from torch import Tensor

from quasar_ops import flash_cuda, flash_torch, launching
from quasar_ops.plain import check_rows, single

DTYPES = (torch.bfloat16, torch.float16)  # of the kernels


def implementation(q):
    """The module whose forward and backward compute this: by kernels, or by PyTorch."""
    return flash_cuda if launching.can_run(q, DTYPES, q.shape[-1]) else flash_torch


def bounds_of(starts, tokens):
    """Where packed sequences start, and the end, as numbers; waits for the GPU."""
    if starts is None:
        return None
    bounds = starts.tolist()
    if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != tokens or bounds != sorted(bounds):
        raise ValueError(f"cu_seqlens must rise from 0 to T = {tokens}; it is {bounds}")
    return bounds


@torch.library.custom_op("quasar_ops::flash_attention", mutates_args=())
def operation(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, starts: Optional[Tensor]) -> tuple[Tensor, Tensor]:
    """o, and the logarithm of the sum of each row's exponentials [B, H, T]. `starts`: cu_seqlens, int32."""
    return implementation(q).forward(q, k, v, (causal, scale, starts, bounds_of(starts, q.shape[1])))


@operation.register_fake
def _(q, k, v, causal, scale, starts):
    batch, tokens, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, tokens), dtype=single(q))


@torch.library.custom_op("quasar_ops::flash_attention_backward", mutates_args=())
def gradient(d_o: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool, scale: float,
             starts: Optional[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradient of o, those of q, k and v."""
    return implementation(q).backward(d_o, q, k, v, o, lse, (causal, scale, starts, bounds_of(starts, q.shape[1])))


@gradient.register_fake
def _(d_o, q, k, v, o, lse, causal, scale, starts):
    return tuple(x.new_empty(x.shape) for x in (q, k, v))


def save(ctx, inputs, output):
    q, k, v, ctx.causal, ctx.scale, starts = inputs
    ctx.save_for_backward(q, k, v, *output, starts)


def differentiate(ctx, d_o, _):
    q, k, v, o, lse, starts = ctx.saved_tensors
    return *gradient(d_o.to(q.dtype), q, k, v, o, lse, ctx.causal, ctx.scale, starts), None, None, None


operation.register_autograd(differentiate, setup_context=save)


def check(q, k, v, scale, cu_seqlens):
    """Raises ValueError where the arguments do not fit each other; looks at no number on a GPU."""
    check_rows(q=q, k=k, v=v)
    if k.shape != v.shape or k.shape[3] != q.shape[3] or not k.shape[2] or q.shape[2] % k.shape[2]:
        raise ValueError("k and v must have one shape, heads of q's size, and a number of heads that q's is a multiple of; the "
                         f"shapes are {list(q.shape)}, {list(k.shape)} and {list(v.shape)}")
    if not 0 < scale < float("inf"):
        raise ValueError(f"the scale must be positive, not {scale}")
    if cu_seqlens is None:
        return
    if not isinstance(cu_seqlens, torch.Tensor):
        raise ValueError(f"cu_seqlens must be a tensor, not {type(cu_seqlens).__name__}")
    if q.shape[0] != 1:
        raise ValueError(f"cu_seqlens packs sequences into a batch of 1; the batch is {q.shape[0]}")
    if cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point() or cu_seqlens.device != q.device:
        raise ValueError(f"cu_seqlens must be a row of integers on {q.device}")


def flash_attention(q, k, v, causal=False, scale=None, cu_seqlens=None, return_lse=False):
    """Softmax attention as FlashAttention-2 computes it: o = softmax(scale · q kᵀ) v, without ever storing the scores.

    Differentiable once, by q, k and v; the gradient is deterministic.

    Args:
        q: [B, T, H, S], k, v: [B, T, G, S], of one dtype and any strides, where each of G heads serves H / G heads of q in a
            row (grouped queries). On an NVIDIA GPU (compute capability 8.0 or newer) kernels compute bf16 and fp16 with S 32,
            64 or 128; everything else is PyTorch's, with a warning if it is on a GPU.
        causal: token i sees those up to i, not all.
        scale: positive; None: 1 / √S.
        cu_seqlens: integers [N + 1]: where each of N sequences packed into B = 1 starts, and the end, T. They see nothing of
            each other, and may be empty. Each call waits for the GPU to read them.
        return_lse: also return the logarithm of the sum of each row's exponentials, which has no gradient.

    Returns:
        o [B, T, H, S] in q's dtype; with return_lse (o, lse [B, H, T]), which is fp32.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit each other, or cu_seqlens that do not rise from 0 to T.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    check(q, k, v, scale, cu_seqlens)
    starts = None if cu_seqlens is None else cu_seqlens.int()
    if q.numel():
        o, lse = operation(q, k, v, causal, scale, starts)
    else:
        bounds_of(starts, q.shape[1])
        o, lse = q.clone(), q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=single(q))
    return (o, lse.detach()) if return_lse else o
