"""The back end in plain PyTorch: any device, any head dimension, and fp64. What its functions take and give stands
in backend.py.

`advance`, `convolved` and `gated` can be differentiated: the layer's gradients are made of the last two whatever computed
the outputs, those of the operation of the first where a back end has no kernels for them. That goes through parts of a
sequence: first for the states at their ends, then from the last to the first, computing each again.

With W and U of chunk_intra_token_parallel.py, a chunk of 64 rows leads from the state M to P M + R, where
P = I - K^T W and R = K^T U. The states before the chunks are a chain of these maps; the rest is done for many
chunks at once.
"""
import math

import torch
import torch.nn.functional as F

from fla.ops.quasar.chunk_intra_token_parallel import chunk_intra_token_parallel

CHUNK = 64
HISTORY = 3  # rows before a stretch, for the convolution of width 4
IN_PLACE = True  # all of q is read before o is written
ROWS = 1 << 17  # (token, head) rows whose intermediate results, some 6 KB a row, are in memory together


def unavailable(device):
    """Runs everywhere."""
    return None


def wide(x):
    """x in the precision that is computed in."""
    return x if x.dtype is torch.float64 else x.float()


# --- gradients -----------------------------------------------------------------------------------------------


class Seeded(torch.autograd.Function):
    """A number; the gradients of `results` are those given."""

    @staticmethod
    def forward(ctx, gradients, *results):
        ctx.gradients = gradients
        return results[0].new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return None, *ctx.gradients


def gradients_of(compute, inputs, gradients):
    """Of the inputs, from those of what compute(*inputs) gives. torch.autograd.grad() would take `gradients` itself, but
    the first time that it does it imports what compares their shapes, which takes seconds."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    with torch.enable_grad():
        number = Seeded.apply(gradients, *compute(*leaves))
    return torch.autograd.grad(number, leaves)


# --- the operation ------------------------------------------------------------------------------------------


def scan(p, r, state):
    """p, r [B, H, N, S, S], state [B, H, S, S]: the states before each of N maps M -> P M + R, and the one
    after all.

    The maps compose, so groups of sqrt(N) chunks are composed side by side: a few long products instead of N
    short ones in a row.
    """
    batch, heads, chunks, size, _ = p.shape
    length = math.isqrt(chunks - 1) + 1
    groups = -(-chunks // length)
    missing = groups * length - chunks
    identity = torch.eye(size, dtype=p.dtype, device=p.device)
    p = torch.cat([p, identity.expand(batch, heads, missing, size, size)], 2).unflatten(2, (groups, length))
    r = F.pad(r, (size, 0, 0, 0, 0, missing)).unflatten(2, (groups, length))  # [0 | R]
    maps = [F.pad(identity, (0, size)).expand(batch, heads, groups, size, 2 * size)]  # P beside R
    for i in range(length):
        maps.append(p[:, :, :, i] @ maps[-1] + r[:, :, :, i])
    starts = []
    for i in range(groups):
        starts.append(state)
        state = maps[-1][:, :, i, :, :size] @ state + maps[-1][:, :, i, :, size:]
    maps = torch.stack(maps[:-1], 3)
    before = maps[..., :size] @ torch.stack(starts, 2).unsqueeze(3) + maps[..., size:]
    return before.flatten(2, 3)[:, :, :chunks], state


def advance(q, k, v, beta, state, semantics):
    """q, k, v [B, H, N * CHUNK, S], beta [H], state [B, H, S, S], all in fp32 or fp64: o like q, and the state
    after these rows."""
    q, k, v = (x.unflatten(2, (-1, CHUNK)) for x in (q, k, v))
    w, u = chunk_intra_token_parallel(k, v, beta)
    p, r = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device) - k.mT @ w, k.mT @ u
    before, state = scan(p, r, state)
    if semantics == "causal":
        o = q @ before + (q @ k.mT).tril() @ (u - w @ before)
    else:
        o = q @ (p @ (p @ before + r) + r)
    return o.flatten(2, 3), state


def rows_of_heads(x, semantics):
    """[B, T, H, S] to each head's rows [B, H, T padded to whole chunks, S].

    Under upstream semantics these are the H equal parts of the memory of [T, H, S].
    """
    batch, tokens, heads, size = x.shape
    if tokens % CHUNK:
        x = F.pad(x, (0, 0, 0, 0, 0, -tokens % CHUNK))
    return x.transpose(1, 2) if semantics == "causal" else x.reshape(batch, heads, -1, size)


def tokens_of_heads(rows, semantics):
    """The inverse of rows_of_heads, padding included."""
    batch, heads, tokens, size = rows.shape
    return rows.transpose(1, 2) if semantics == "causal" else rows.reshape(batch, tokens, heads, size)


def parts(rows):
    """rows [B, H, R, S]: slices of R that bound memory."""
    length = max(1, ROWS // (CHUNK * rows.shape[0] * rows.shape[1])) * CHUNK
    return [slice(first, min(first + length, rows.shape[2])) for first in range(0, rows.shape[2], length)]


def state_or_zeros(q, state):
    """The state to begin with, for q [B, T, H, S]."""
    if state is None:
        state = q.new_zeros(q.shape[0], q.shape[2], q.shape[3], q.shape[3])
    return wide(state)


def places_of(first_rows, tokens):
    """Of each head's rows in the flattened (token, head) rows; None: they are all of them, as rows_of_heads takes them."""
    if first_rows is None:
        return None
    return first_rows.unsqueeze(1) + torch.arange(-(-tokens // CHUNK) * CHUNK, device=first_rows.device)


def rows_at(x, semantics, places):
    """x [B, T, H, S] to each head's rows [B, H, R, S]."""
    return rows_of_heads(x, semantics) if places is None else x.flatten(1, 2)[:, places]


def forward(q, k, v, beta, state, semantics, first_rows=None, tokens=None, out=None):
    state, outputs = state_or_zeros(q, state), []
    tokens = q.shape[1] if tokens is None else tokens
    places = places_of(first_rows, tokens)
    q, k, v = (rows_at(x, semantics, places) for x in (q, k, v))
    with torch.autocast(q.device.type, enabled=False):
        for part in parts(q):
            o, state = advance(*(wide(x[:, :, part]) for x in (q, k, v)), wide(beta), state, semantics)
            outputs.append(o.to(q.dtype))
    o = torch.cat(outputs, 2).transpose(1, 2)[:, :tokens]
    return o if out is None else out.copy_(o), state


def gradients(q, k, v, beta, state, semantics, output_gradient, state_gradient, first_rows=None, tokens=None):
    places = places_of(first_rows, tokens)
    rows = [rows_at(x, semantics, places) for x in (q, k, v)]
    output_gradient = rows_of_heads(output_gradient, "causal")  # an output row is its token's, either way
    found = [torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in rows]
    beta, beta_gradient = wide(beta), torch.zeros_like(wide(beta))

    def inputs(part, state):
        return [*(wide(x[:, :, part]) for x in rows), beta, state]

    with torch.autocast(q.device.type, enabled=False):
        states = [state_or_zeros(q, state)]
        for part in parts(rows[0])[:-1]:
            states.append(advance(*inputs(part, states[-1]), semantics)[1])
        for part in reversed(parts(rows[0])):
            *of_rows, of_beta, state_gradient = gradients_of(
                lambda *x: advance(*x, semantics), inputs(part, states.pop()),
                (wide(output_gradient[:, :, part]), state_gradient))
            for target, value in zip(found, of_rows):
                target[:, :, part] = value
            beta_gradient += of_beta
    if places is None:
        found = [tokens_of_heads(x, semantics)[:, :q.shape[1]] for x in found]
    else:
        held, found = found, [torch.zeros_like(x) for x in (q, k, v)]
        for target, value in zip(found, held):
            target.flatten(1, 2)[:, places] = value
    return *found, beta_gradient, state_gradient


# --- the layer's parts --------------------------------------------------------------------------------------


def short_convolution(x, weight, bias=None):
    """x [..., T + width - 1, D] with the history in front, weight [width, D], oldest tap first: SiLU of the
    convolution, [..., T, D] in x's dtype."""
    tokens = x.shape[-2] - weight.shape[0] + 1
    total = 0 if bias is None else wide(bias)
    for i, taps in enumerate(wide(weight)):
        total = total + wide(x[..., i:i + tokens, :]) * taps
    return F.silu(total).to(x.dtype)


def gated_norm(x, gate, weight, eps):
    """RMS norm over the last dimension times the sigmoid of a gate, in x's dtype."""
    normed = wide(x)
    normed = normed * torch.rsqrt((normed * normed).mean(-1, keepdim=True) + eps)
    return (normed * wide(weight) * torch.sigmoid(wide(gate))).to(x.dtype)


def project(x, weights, segment, q, k, v, narrow):
    """There is no such kernel."""
    return False


def gather(x, segment):
    batch, _, hidden = x.shape
    rows = HISTORY + segment.length
    xs = x.new_zeros(batch, segment.stretches, rows, hidden, dtype=torch.bfloat16)
    for stretch in range(segment.stretches):
        source, target = segment.overlap(stretch, HISTORY)
        xs[:, stretch, target] = x[:, source].to(torch.bfloat16)
    return xs.flatten(0, 2)


def by_stretch(rows, segment):
    """[B * stretches * (HISTORY + length), D] to [B, stretches, HISTORY + length, D]."""
    return rows.unflatten(0, (-1, segment.stretches, HISTORY + segment.length))


def convolved(projected, weight, segment):
    """projected as for `convolve`, with or without the narrow half: q, k and v [B, stretches, length, W]."""
    projected, width = by_stretch(projected, segment), weight.shape[-1]
    stretch = torch.arange(segment.stretches, device=projected.device)
    token = segment.start(stretch).unsqueeze(1) + torch.arange(segment.length, device=projected.device)
    ended = (token >= segment.tokens).unsqueeze(-1)
    return [short_convolution(x, taps).masked_fill(ended, 0)
            for x, taps in zip(projected[..., :3 * width].split(width, -1), weight)]


def convolve(projected, weight, segment, q, k, v, narrow, held=None):
    for target, value in zip((q, k, v), convolved(projected, weight, segment)):
        target[:, :, :segment.length] = value
    values = by_stretch(projected, segment)[:, :, HISTORY:, -narrow.shape[-1]:]
    for stretch in range(segment.stretches):
        target, source = segment.overlap(stretch)
        narrow[:, target] = values[:, stretch, source]


def gated(o, narrow, weight, bias, norm, eps):
    """What `gate` writes, as a new tensor."""
    with torch.autocast(o.device.type, enabled=False):
        wider = F.linear(wide(narrow), wide(weight), wide(bias))
    return gated_norm(o, wider.unflatten(-1, o.shape[-2:]), norm, eps).flatten(-2)


def gate(o, narrow, weight, bias, norm, eps, y):
    y.copy_(gated(o, narrow, weight, bias, norm, eps))
