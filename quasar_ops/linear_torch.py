"""Linear attention and its gradient by PyTorch, on any device. S and z are kept together, as the sum over [v_j, 1]."""
import torch

from quasar_ops import loader
from quasar_ops.plain import exactly, single, wide

FEATURES = {name: loader.constant(f"FEATURE_{symbol}") for name, symbol in (
    ("elu+1", "ELU1"), ("relu", "RELU"), ("squared-relu", "SQUARED_RELU"), ("exp", "EXP"), ("identity", "IDENTITY"))}
EXP_LIMIT = float(loader.constant("FEATURE_EXP_LIMIT"))  # exp is constant from here on
SMALLEST_DIVISOR = torch.finfo(torch.float32).tiny  # what is below it counts as zero
ROWS = 128  # at a time


def feature_of(number, x):
    """The feature map φ of each element."""
    return {
        FEATURES["elu+1"]: lambda: torch.where(x > 0, x + 1, x.exp()),
        FEATURES["relu"]: lambda: x.relu(),
        FEATURES["squared-relu"]: lambda: x.relu().square(),
        FEATURES["exp"]: lambda: x.clamp_max(EXP_LIMIT).exp(),
        FEATURES["identity"]: lambda: x,
    }[number]()


def derivative_of(number, x):
    """φ' of each element; at 0, where a map bends, the derivative from the left."""
    return {
        FEATURES["elu+1"]: lambda: torch.where(x > 0, 1, x.exp()),
        FEATURES["relu"]: lambda: (x > 0).to(x),
        FEATURES["squared-relu"]: lambda: 2 * x.relu(),
        FEATURES["exp"]: lambda: torch.where(x > EXP_LIMIT, 0, x.exp()),
        FEATURES["identity"]: lambda: torch.ones_like(x),
    }[number]()


def sum_up(x, y, w, state, causal, from_its_end=False):
    """out_i = x_i (state + Σ y_jᵀ w_j), and the last of these sums; tokens are the last dimension but one."""
    if not causal:
        state = state + y.mT @ w
        return x @ state, state
    if from_its_end:
        out, state = sum_up(x.flip(-2), y.flip(-2), w.flip(-2), state, True)
        return out.flip(-2), state
    parts = []
    for xs, ys, ws in zip(*(rows.split(ROWS, -2) for rows in (x, y, w))):
        parts.append(xs @ state + (xs @ ys.mT).tril() @ ws)
        state = state + ys.mT @ ws
    return torch.cat(parts, -2), state


def with_ones(x):
    """[..., n] to [..., n + 1], the last element being 1."""
    return torch.cat([x, torch.ones_like(x[..., :1])], -1)


def joined(state, total, q, value_dim):
    """[S, z] of each head; None: zeros."""
    batch, _, heads, key_dim = q.shape
    whole = torch.zeros(batch, heads, key_dim, value_dim + 1, dtype=single(q), device=q.device)
    if state is not None:
        whole[..., :-1] = state
    if total is not None:
        whole[..., -1] = total
    return whole


def inverse(divisor):
    return torch.where(divisor.abs() < SMALLEST_DIVISOR, 0, 1 / divisor)


def apart(whole):
    return whole[..., :-1].contiguous(), whole[..., -1].contiguous()


@exactly
def forward(q, k, v, state, total, problem):
    """As linear.operation."""
    causal, feature, normalised = problem
    x, y = (feature_of(feature, wide(rows).transpose(1, 2)) for rows in (q, k))
    out, last = sum_up(x, y, with_ones(wide(v).transpose(1, 2)), joined(state, total, q, v.shape[-1]), causal)
    o, divisor = apart(out)
    o = o * inverse(divisor)[..., None] if normalised else o
    return o.transpose(1, 2).to(v.dtype).contiguous(), divisor if normalised else torch.ones_like(divisor), *apart(last)


@exactly
def backward(d_o, d_state, d_sum, q, k, v, o, divisor, state, total, problem):
    """As linear.gradient."""
    causal, feature, normalised = problem
    d_o, q_rows, k_rows, v_rows, o = (wide(x).transpose(1, 2) for x in (d_o, q, k, v, o))
    x, y, w = feature_of(feature, q_rows), feature_of(feature, k_rows), with_ones(v_rows)
    if normalised:
        d_o = d_o * inverse(divisor)[..., None]
        d_out = torch.cat([d_o, -(d_o * o).sum(-1, keepdim=True)], -1)
    else:
        d_out = torch.cat([d_o, torch.zeros_like(d_o[..., :1])], -1)
    first, last = joined(state, total, q, v.shape[-1]), joined(d_state, d_sum, q, v.shape[-1])
    d_x, _ = sum_up(d_out, w, y, first.mT, causal)
    d_y, _ = sum_up(w, d_out, x, last.mT, causal, True)
    d_w, d_first = sum_up(y, x, d_out, last, causal, True)
    found = d_x * derivative_of(feature, q_rows), d_y * derivative_of(feature, k_rows), d_w[..., :-1]
    return *(x.transpose(1, 2).to(q.dtype).contiguous() for x in found), *apart(d_first)
