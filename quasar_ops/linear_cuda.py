"""Linear attention and its gradient by the kernels of kernels/linear, whose layout.h defines the passes."""
import functools

import torch

from quasar_ops import launching, loader

CHUNK = loader.constant("LINEAR_CHUNK")
SCAN_THREADS = loader.constant("SCAN_THREADS")
FORWARD, DQ, DK, DV = (loader.constant(f"PASS_{name}") for name in ("FORWARD", "DQ", "DK", "DV"))
LARGEST_STATE = 64 * 64  # numbers of a state that the registers of a warp hold
DRIVER_SHARED = 1024  # bytes that the driver takes of each block's share
SHORTEST_GROUP = 8  # chunks of a warp, below which its state costs more than its rows

# Warps, stages and blocks side by side, the fastest first; the last one fits everywhere.
BUILDS = ((4, 4, 2), (4, 3, 2), (4, 2, 2), (4, 2, 1), (2, 2, 1))


def dims(kind, key_dim, value_dim):
    """Elements of x and y, and of w and out, of a pass."""
    return (value_dim, key_dim) if kind in (DQ, DK) else (key_dim, value_dim)


@functools.lru_cache(4096)
def choose(device, dtype, key_dim, value_dim, causal, normalised, kinds, sequences, tokens):
    """How passes that share records are built: tile, warps, stages, blocks side by side; groups; and for each pass the bytes of
    shared memory that its outputs and its sums take, and the numbers of a record."""
    code, machine = loader.INPUT[dtype], launching.properties(device)
    planes = {torch.bfloat16: 1, torch.float16: 2, torch.float32: 4}[dtype]  # registers that a number takes beside bf16's
    shapes = [dims(kind, key_dim, value_dim) for kind in kinds]
    tile = min(min(max(LARGEST_STATE // x // planes, 16), 64, w) for x, w in shapes)
    found = [launching.sizes(device, "linear_sizes", code, *shape, tile, causal, kind, normalised)
             for kind, shape in zip(kinds, shapes)]
    for warps, stages, blocks in BUILDS:
        shared = [(warps * stages * output, max(warps * stages * sums, exchange)) for output, sums, exchange, _ in found]
        most = max(map(max, shared))
        if most <= machine.shared_memory_per_block_optin and \
                blocks * (most + DRIVER_SHARED) <= machine.shared_memory_per_multiprocessor:
            break
    chunks, warps_of_group = -(-tokens // CHUNK), 1 if causal else warps
    groups = machine.multi_processor_count * blocks * warps // warps_of_group // (sequences * (value_dim // tile))
    groups = max(1, min(groups, chunks // (SHORTEST_GROUP * warps_of_group)))
    groups = -(-chunks // -(-chunks // groups))
    return (tile, warps, stages, blocks), groups, [(*bytes, record) for bytes, (*_, record) in zip(shared, found)]


def run(kind, choice, which, problem, records, x, y, w, out, at=None, o=None, **values):
    """A pass. `which`: its number in the choice; records: working memory, None for the sums that another pass left."""
    causal, feature, normalised = problem
    (tile, warps, stages, blocks_at_once), groups, needs = choice
    output_shared, sum_shared, record = needs[which]
    (batch, tokens, heads, x_dim), w_dim = x.shape, w.shape[-1]
    tensors = {name: tensor for name, tensor in dict(x=x, y=y, w=w, out=out, at=at, o=o).items() if tensor is not None}
    backwards = causal and kind in (DK, DV)
    built = launching.load(x.device, "linear/attention.cu", ("linear_sum", "linear_scan", "linear_output"), PASS=kind,
                           FEATURE=feature, KEY_DIM=x_dim, VALUE_DIM=w_dim, CAUSAL=int(causal), NORMALISED=int(normalised),
                           INPUT=loader.INPUT[x.dtype], VECTOR=launching.is_vector(*tensors.values()), VALUE_TILE=tile,
                           NUM_WARPS=warps, NUM_STAGES=stages, MIN_BLOCKS=blocks_at_once)
    values.update({name: launching.rows(tensor, backwards) for name, tensor in tensors.items()},
                  records=records, tokens=tokens, batch=batch, heads=heads, groups=groups,
                  chunks_per_group=-(-(-(-tokens // CHUNK)) // groups), row_step=-1 if backwards else 1)
    for name in ("divisors", "scales", "offsets"):
        if backwards and name in values:
            values[name] = values[name].flatten()[tokens - 1:]
    units = batch * heads * groups * (w_dim // tile)
    blocks = -(-units // warps) if causal else units
    sums = ((built["linear_sum"], blocks, 32 * warps, sum_shared),
            (built["linear_scan"], -(-batch * heads * record // SCAN_THREADS), SCAN_THREADS, 0))
    launching.launch("linear_arguments", values, *(sums if kind != DV else ()),  # whose sums are DK's
                     (built["linear_output"], blocks, 32 * warps, output_shared))


def prepare(q, v, problem, kinds):
    """The choice for passes, and working memory for their records."""
    batch, tokens, heads, key_dim = q.shape
    causal, _, normalised = problem
    choice = choose(q.device, q.dtype, key_dim, v.shape[-1], int(causal), int(normalised), kinds, batch * heads, tokens)
    numbers = batch * heads * choice[1] * max(record for *_, record in choice[2])
    return choice, torch.empty(numbers, dtype=torch.float32, device=q.device)


def forward(q, k, v, state, total, problem):
    """As linear.operation."""
    batch, tokens, heads, key_dim = q.shape
    o, single = q.new_empty(v.shape), {"dtype": torch.float32, "device": q.device}
    divisor = torch.empty(batch, heads, tokens, **single)
    last_state = torch.empty(batch, heads, key_dim, v.shape[-1], **single)
    last_sum = torch.empty(batch, heads, key_dim, **single)
    with launching.current(q.device):
        choice, records = prepare(q, v, problem, (FORWARD,))
        run(FORWARD, choice, 0, problem, records, q, k, v, o, divisors=divisor, initial_state=state, initial_sum=total,
            final_state=last_state, final_sum=last_sum)
    return o, divisor, last_state, last_sum


def backward(d_o, d_state, d_sum, q, k, v, o, divisor, state, total, problem):
    """As linear.gradient."""
    d_q, d_k, d_v = q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)
    scales, offsets = torch.empty_like(divisor), torch.empty_like(divisor)
    (batch, _, heads, key_dim), value_dim = q.shape, v.shape[-1]
    first_state = divisor.new_empty(batch, heads, key_dim, value_dim)
    first_sum = divisor.new_empty(batch, heads, key_dim)
    rows = {"divisors": divisor, "scales": scales, "offsets": offsets}
    with launching.current(q.device):
        choice, records = prepare(q, v, problem, (DK, DV, DQ))
        run(DK, choice, 0, problem, records, v, d_o, q, d_k, k, o, **rows, initial_state=d_state, initial_sum=d_sum,
            final_state=first_state, final_sum=first_sum)
        run(DV, choice, 1, problem, records, k, q, d_o, d_v, **rows, initial_state=d_state)
        run(DQ, choice, 2, problem, records, d_o, v, k, d_q, q, **rows, initial_state=state, initial_sum=total)
    return d_q, d_k, d_v, first_state, first_sum
