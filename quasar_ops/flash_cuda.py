"""Attention and its gradient by the kernels of kernels/flash."""
import collections

import torch

from quasar_ops import launching, loader

Choice = collections.namedtuple(
    "Choice", "block_m block_n num_warps num_stages product_warps box_rows threads shared")  # as ask_flash() says
BOX_COLUMNS = loader.constant("FLASH_BOX_COLUMNS")


def choose(device, dim, gradient, causal, mapped, sequences, tokens):
    """How the kernels are built for so many heads of all sequences, and what their blocks take."""
    return Choice(*launching.ask(device, "ask_flash", len(Choice._fields), int(gradient), dim, int(causal), mapped, sequences,
                                 tokens))


def boxes(x, rows, packed):
    """What the map of a tensor is made of: see struct flash_arguments."""
    batch, tokens, heads, dim = x.shape
    item = x.element_size()
    of_batch, of_row, of_head, _ = (stride * item if size > 1 else 16 for size, stride in zip(x.shape, x.stride()))
    before, seen, last, of_last = (rows * of_row, rows, tokens + 1, of_row) if packed else (0, tokens, batch, of_batch)
    parts = dim // BOX_COLUMNS
    return launching.Boxes(x, before, (BOX_COLUMNS, seen, parts, heads, last), (of_row, BOX_COLUMNS * item, of_head, of_last),
                           (BOX_COLUMNS, rows, parts, 1, 1))


def run(names, gradient, problem, statistics, tensors, lse):
    """Kernels, each with the heads that its blocks are for."""
    q = tensors["q"]
    (batch, tokens, heads, dim), key_heads = q.shape, tensors["k"].shape[2]
    causal, scale, starts, bounds = problem
    loaded = {name: tensors[name] for name in ("q", "k", "v", "d_o") if name in tensors}
    lengths = [tokens] * batch if bounds is None else [end - first for first, end in zip(bounds, bounds[1:])]
    choice = choose(q.device, dim, gradient, causal, launching.is_mapped(*loaded.values()), len(lengths) * heads, max(lengths))
    built = launching.load(q.device, "flash/backward.cu" if gradient else "flash/forward.cu", tuple(names), HEAD_DIM=dim,
                           CAUSAL=int(causal), INPUT=loader.INPUT[q.dtype], VECTOR=launching.is_vector(*tensors.values()),
                           EARLY_END=1, ATOMICS=0, BLOCK_M=choice.block_m, BLOCK_N=choice.block_n,
                           NUM_WARPS=choice.num_warps, NUM_STAGES=choice.num_stages, PRODUCT_WARPS=choice.product_warps)
    values = {name: launching.rows(tensor) for name, tensor in tensors.items()}
    if choice.product_warps == 4:
        values.update((f"{name}_map", boxes(x, choice.box_rows, starts is not None)) for name, x in loaded.items())
    values.update(lse=lse, statistics=statistics, cu_seqlens=starts, tokens=tokens, scale=scale, sequences=len(lengths),
                  heads=heads, key_heads=key_heads)
    blocks = len(lengths) * -(-max(lengths) // choice.block_m)
    launching.launch("flash_arguments", values, *(
        (built[name], blocks * (key_heads if of == "keys" else heads), choice.threads, choice.shared)
        for name, of in names.items()))


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
