"""Linear attention: the operation and its gradient, for PyTorch's dispatcher, autograd and compiler."""
from typing import Optional

import torch
from torch import Tensor

from quasar_ops import launching, linear_cuda, linear_torch, loader
from quasar_ops.linear_torch import FEATURES
from quasar_ops.plain import check_rows, single

DTYPES = tuple(loader.INPUT)  # of the kernels


def implementation(q, v):
    """The module whose forward and backward compute this: by kernels, or by PyTorch."""
    return linear_cuda if launching.can_run(q, DTYPES, q.shape[-1], v.shape[-1]) else linear_torch


def state_shapes(q, v):
    """Those of S and z."""
    (batch, _, heads, key_dim), value_dim = q.shape, v.shape[-1]
    return (batch, heads, key_dim, value_dim), (batch, heads, key_dim)


@torch.library.custom_op("quasar_ops::linear_attention", mutates_args=())
def operation(q: Tensor, k: Tensor, v: Tensor, state: Optional[Tensor], total: Optional[Tensor], causal: bool, feature: int,
              normalised: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """From initial S and z: o, what each row was divided by [B, H, T], final S and z. States are fp32, contiguous."""
    return implementation(q, v).forward(q, k, v, state, total, (causal, feature, normalised))


@operation.register_fake
def _(q, k, v, state, total, causal, feature, normalised):
    batch, tokens, heads, _ = q.shape
    return (v.new_empty(v.shape), *(q.new_empty(shape, dtype=single(q)) for shape in (
        (batch, heads, tokens), *state_shapes(q, v))))


@torch.library.custom_op("quasar_ops::linear_attention_backward", mutates_args=())
def gradient(d_o: Tensor, d_state: Optional[Tensor], d_sum: Optional[Tensor], q: Tensor, k: Tensor, v: Tensor, o: Tensor,
             divisor: Tensor, state: Optional[Tensor], total: Optional[Tensor], causal: bool, feature: int,
             normalised: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """From the gradients of o and the final S and z, those of q, k, v and the initial S and z."""
    return implementation(q, v).backward(
        d_o, d_state, d_sum, q, k, v, o, divisor, state, total, (causal, feature, normalised))


@gradient.register_fake
def _(d_o, d_state, d_sum, q, k, v, o, divisor, state, total, causal, feature, normalised):
    return (*(x.new_empty(x.shape) for x in (q, k, v)), *(q.new_empty(shape, dtype=single(q)) for shape in state_shapes(q, v)))


def save(ctx, inputs, output):
    q, k, v, state, total, *ctx.problem = inputs
    o, divisor, *_ = output
    ctx.save_for_backward(q, k, v, o, divisor, state, total)


def differentiate(ctx, d_o, _, d_state, d_sum):
    q, k, v, o, divisor, state, total = ctx.saved_tensors
    *of_rows, of_state, of_sum = gradient(
        d_o.to(q.dtype), d_state.contiguous(), d_sum.contiguous(), q, k, v, o, divisor, state, total, *ctx.problem)
    return *of_rows, None if state is None else of_state, None if total is None else of_sum, None, None, None


operation.register_autograd(differentiate, setup_context=save)


def check(q, k, v, feature, normalised, state, total):
    """Raises ValueError where the arguments do not fit each other."""
    check_rows(q=q, k=k, v=v)
    if q.shape != k.shape or v.shape[2] != q.shape[2]:
        raise ValueError(f"q and k must have one shape, and v as many heads; they have {list(q.shape)}, {list(k.shape)} and "
                         f"{list(v.shape)}")
    if feature not in FEATURES:
        raise ValueError(f"no feature map {feature!r}: choose from {', '.join(FEATURES)}")
    if normalised and (state is None) != (total is None):
        raise ValueError("normalised attention goes on from initial_state and initial_sum: give both or neither")
    for name, x, shape in zip(("initial_state", "initial_sum"), (state, total), state_shapes(q, v)):
        if x is not None and (x.shape != shape or x.device != q.device):
            raise ValueError(f"{name} must have shape {list(shape)} and be on {q.device}; it has {list(x.shape)} on {x.device}")


def linear_attention(q, k, v, causal=False, feature="elu+1", normalised=True, initial_state=None, initial_sum=None,
                     output_final_state=False):
    """Linear attention. With a feature map φ, S = Σ φ(k_j)ᵀ v_j and z = Σ φ(k_j), over all tokens j, or causal up to i:

        o_i = φ(q_i) S / (φ(q_i) · z), or unnormalised o_i = φ(q_i) S.

    Sums are fp32 (fp64 where q is), and there is no scale. Differentiable once, by all tensors.

    Args:
        q, k: [B, T, H, K], v: [B, T, H, V], of one dtype and any strides. On an NVIDIA GPU (compute capability 8.0 or newer)
            kernels compute bf16, fp16 and fp32 with K and V 32, 64 or 128; everything else is PyTorch's, with a warning if
            it is on a GPU.
        causal: token i sees those up to i, not all.
        feature: "elu+1", "relu", "squared-relu", "exp" (constant above 30) or "identity".
        normalised: divide by φ(q_i) · z; zeros where that is 0.
        initial_state: S [B, H, K, V] and initial_sum: z [B, H, K], to which a sequence adds; None: zeros. Normalised takes
            both or neither.
        output_final_state: also return these sums after the sequence.

    Returns:
        o [B, T, H, V] in q's dtype; with output_final_state (o, S [B, H, K, V], z [B, H, K]), the last two fp32.

    Raises:
        ValueError: shapes, dtypes or devices that do not fit each other.
    """
    check(q, k, v, feature, normalised, initial_state, initial_sum)
    state, total = (None if x is None else x.to(single(q)).contiguous() for x in (initial_state, initial_sum))
    if q.numel() and v.numel():
        o, _, state, total = operation(q, k, v, state, total, causal, FEATURES[feature], normalised)
    else:
        o = v.clone()
        state, total = (q.new_zeros(shape, dtype=single(q)) if x is None else x.clone()
                        for x, shape in zip((state, total), state_shapes(q, v)))
    return (o, state, total) if output_final_state else o
