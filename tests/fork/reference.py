"""fp64 references of the operation and of what the layer has around it, written for reading, not for speed.

q, k, v [B, T, H, S]; beta [H]; states [B, H, S, S], key by value dimension. All results are fp64.
"""
import torch
import torch.nn.functional as F

CHUNK = 64

# Of fp32 tensors. On a GPU the CUDA kernels carry a number in two bf16, 16 bits together.
FP32_LIMIT = 5e-5 if torch.cuda.is_available() else 1e-5


def step_sizes(k, beta):
    length = (k * k).sum(-1)
    return -torch.expm1(-beta.to(k) * length) / (length + 1e-8)


def recurrence(q, k, v, beta, state=None):
    """The published recurrence ("causal"), token by token."""
    q, k, v = q.double(), k.double(), v.double()
    batch, tokens, heads, size = q.shape
    state = q.new_zeros(batch, heads, size, size) if state is None else state.double()
    alpha = step_sizes(k, beta)[..., None, None]
    o = torch.empty_like(q)
    for t in range(tokens):
        key, value, query = (x[:, t].unsqueeze(-2) for x in (k, v, q))
        state = state + alpha[:, t] * key.mT @ (value - key @ state)
        o[:, t] = (query @ state).squeeze(-2)
    return o, state


def advance(k, v, alpha, state):
    """The state behind some rows; k, v [B, R, S], alpha [B, R]."""
    for r in range(k.shape[1]):
        key, value = k[:, r : r + 1], v[:, r : r + 1]
        state = state + alpha[:, r, None, None] * key.mT @ (value - key @ state)
    return state


def upstream(q, k, v, beta, state=None, first_rows=None, tokens=None):
    """What the competition's fork computes: its heads are parts of the flattened (token, head) rows, and a chunk's
    queries meet the state behind the chunk once more advanced by the chunk."""
    batch, length, heads, size = q.shape
    tokens = length if tokens is None else tokens
    chunks = -(-tokens // CHUNK)
    if first_rows is None:
        first_rows = [head * chunks * CHUNK for head in range(heads)]
        q, k, v = (F.pad(x, (0, 0, 0, 0, 0, chunks * CHUNK - length)) for x in (q, k, v))
    q, k, v = (x.double().reshape(batch, -1, size) for x in (q, k, v))
    o = q.new_empty(batch, chunks * CHUNK, heads, size)
    states = []
    for head, first in enumerate(first_rows):
        after = q.new_zeros(batch, size, size) if state is None else state[:, head].double()
        for chunk in range(chunks):
            rows = slice(int(first) + chunk * CHUNK, int(first) + (chunk + 1) * CHUNK)
            keys, values, alpha = k[:, rows], v[:, rows], step_sizes(k[:, rows], beta[head])
            after = advance(keys, values, alpha, after)
            twice = advance(keys, values, alpha, after)
            o[:, chunk * CHUNK : (chunk + 1) * CHUNK, head] = q[:, rows] @ twice
        states.append(after)
    return o[:, :tokens], torch.stack(states, 1)


def operation(semantics, *args, **kwargs):
    return (recurrence if semantics == "causal" else upstream)(*args, **kwargs)


def convolution(x, weight):
    """x [T, D], weight [4, D], oldest tap first: depthwise causal convolution with zeros before, then SiLU."""
    x, weight = x.double(), weight.double()
    past = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(weight[tap] * past[tap : tap + len(x)] for tap in range(4)))


def gated_norm(o, narrow, weight, bias, norm, eps):
    """o [T, H * S], narrow [T, S]: RMS norm of each head, times norm, times the gate's sigmoid."""
    o, narrow, weight, bias, norm = (x.double() for x in (o, narrow, weight, bias, norm))
    heads = o.unflatten(-1, (-1, narrow.shape[-1]))
    scaled = heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + eps) * norm
    return scaled.flatten(-2) * torch.sigmoid(narrow @ weight.mT + bias)


def error(result, expected):
    """The relative error of a result, by norms."""
    result, expected = result.double(), expected.double()
    return float((result - expected).norm() / expected.norm().clamp_min(1e-30))
