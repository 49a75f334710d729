"""Attention and its gradient by the kernels of kernels/flash."""
import functools

import torch

from quasar_ops import launching, loader

MOST_REGISTERS = loader.constant("FLASH_MOST_REGISTERS")

# Rows that a block keeps, rows that it walks through at a time, warps and stages, the fastest first.
BUILDS = ((128, 64, 4, 2), (128, 64, 8, 2), (64, 64, 4, 2), (64, 32, 4, 2), (64, 32, 4, 1))


@functools.lru_cache(256)
def choose(device, dim, gradient):
    """The first build that fits, and the shared memory that it takes."""
    for build in BUILDS:
        shared, registers = launching.sizes(device, "flash_sizes", dim, *build)[2 * gradient:][:2]
        if registers <= MOST_REGISTERS and shared <= launching.properties(device).shared_memory_per_block_optin:
            break
    return build, shared


def run(names, gradient, problem, statistics, tensors, lse):
    """Kernels, each with the heads that its blocks are for."""
    q = tensors["q"]
    (batch, tokens, heads, dim), key_heads = q.shape, tensors["k"].shape[2]
    causal, scale, starts, bounds = problem
    (m, n, warps, stages), shared = choose(q.device, dim, gradient)
    built = launching.load(q.device, "flash/backward.cu" if gradient else "flash/forward.cu", tuple(names), HEAD_DIM=dim,
                           CAUSAL=int(causal), INPUT=loader.INPUT[q.dtype], VECTOR=launching.is_vector(*tensors.values()),
                           EARLY_END=1, ATOMICS=0, BLOCK_M=m, BLOCK_N=n, NUM_WARPS=warps, NUM_STAGES=stages, PRODUCT_WARPS=1)
    lengths = [tokens] * batch if bounds is None else [end - first for first, end in zip(bounds, bounds[1:])]
    values = {name: launching.rows(tensor) for name, tensor in tensors.items()}
    values.update(lse=lse, statistics=statistics, cu_seqlens=starts, tokens=tokens, scale=scale, sequences=len(lengths),
                  heads=heads, key_heads=key_heads)
    blocks = len(lengths) * -(-max(lengths) // m)
    launching.launch("flash_arguments", values, *(
        (built[name], blocks * (key_heads if of == "keys" else heads), 32 * warps, shared) for name, of in names.items()))


def forward(q, k, v, problem):
    """As flash.operation."""
    o = q.new_empty(q.shape)
    lse = torch.empty(q.shape[0], q.shape[2], q.shape[1], dtype=torch.float32, device=q.device)
    with launching.current(q.device):
        run({"flash_forward": "queries"}, False, problem, None, {"q": q, "k": k, "v": v, "o": o}, lse)
    return o, lse


def backward(d_o, q, k, v, o, lse, problem):
    """As flash.gradient."""
    d_q, d_k, d_v = (x.new_empty(x.shape) for x in (q, k, v))
    statistics = lse.new_empty(*lse.shape, 2)  # struct flash_statistics
    with launching.current(q.device):
        run({"flash_backward_queries": "queries", "flash_backward_keys": "keys"}, True, problem, statistics,
            {"q": q, "k": k, "v": v, "o": o, "d_o": d_o, "dq": d_q, "dk": d_k, "dv": d_v}, lse)
    return d_q, d_k, d_v
