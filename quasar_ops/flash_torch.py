"""Attention and its gradient by PyTorch, on any device: a block of queries at a time, so that memory stays bounded."""
import torch

from quasar_ops.plain import exactly, single, wide

ROWS = 256  # queries at a time


def spans(tokens, bounds):
    """The first token and the end of each stretch whose tokens see each other."""
    return [(0, tokens)] if bounds is None else [span for span in zip(bounds, bounds[1:]) if span[0] < span[1]]


def by_key_head(x, key_heads):
    """[B, T, H, S] as [B, key heads, heads that share it, T, S]."""
    return wide(x).unflatten(2, (key_heads, -1)).permute(0, 2, 3, 1, 4)


def in_place(x, result):
    """The inverse, into `result`."""
    result.copy_(x.permute(0, 3, 1, 2, 4).flatten(2, 3))


def blocks(q, k, problem):
    """For each block of queries: where it is, where the keys are that it sees, and its scores."""
    causal, scale, _, bounds = problem
    for first, end in spans(q.shape[3], bounds):
        for row in range(first, end, ROWS):
            queries = slice(row, min(row + ROWS, end))
            keys = slice(first, queries.stop if causal else end)
            scores = scale * q[..., queries, :] @ k[..., keys, :].mT
            if causal:
                scores += torch.full_like(scores[0, 0, 0], -torch.inf).triu(1 + row - first)
            yield queries, keys, scores


@exactly
def forward(q, k, v, problem):
    """As flash.operation."""
    key_heads = k.shape[2]
    rows, keys_of, values_of = (by_key_head(x, key_heads) for x in (q, k, v))
    o, lse = torch.empty_like(rows), torch.empty(rows.shape[:-1], dtype=single(q), device=q.device)
    for queries, keys, scores in blocks(rows, keys_of, problem):
        lse[..., queries] = scores.logsumexp(-1)
        o[..., queries, :] = scores.softmax(-1) @ values_of[..., keys, :]
    result = q.new_empty(q.shape)
    in_place(o, result)
    return result, lse.flatten(1, 2)


@exactly
def backward(d_o, q, k, v, o, lse, problem):
    """As flash.gradient."""
    key_heads, scale = k.shape[2], problem[1]
    rows, keys_of, values_of, outputs, d_outputs = (by_key_head(x, key_heads) for x in (q, k, v, o, d_o))
    d_rows, d_keys, d_values = torch.zeros_like(rows), torch.zeros_like(keys_of), torch.zeros_like(values_of)
    inner = (outputs * d_outputs).sum(-1, keepdim=True)
    lse = lse.unflatten(1, (key_heads, -1))[..., None]
    for queries, keys, scores in blocks(rows, keys_of, problem):
        p, d_block = (scores - lse[..., queries, :]).exp(), d_outputs[..., queries, :]
        d_scores = p * (d_block @ values_of[..., keys, :].mT - inner[..., queries, :])
        d_rows[..., queries, :] = scale * d_scores @ keys_of[..., keys, :]
        d_keys[..., keys, :] += scale * (d_scores.mT @ rows[..., queries, :]).sum(2, keepdim=True)
        d_values[..., keys, :] += (p.mT @ d_block).sum(2, keepdim=True)
    found = tuple(x.new_empty(x.shape) for x in (q, k, v))
    for x, result in zip((d_rows, d_keys, d_values), found):
        in_place(x, result)
    return found
