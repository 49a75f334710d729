"""Linear attention and its gradient by the kernels of kernels/linear, whose layout.h defines the passes."""
import collections

import torch

from quasar_ops import launching, loader

SCAN_THREADS = loader.constant("SCAN_THREADS")
FORWARD, DQ, DK, DV = (loader.constant(f"PASS_{name}") for name in ("FORWARD", "DQ", "DK", "DV"))

# As ask_linear() says: how the passes of an operation are built and cut up, and what the launches of each need.
Choice = collections.namedtuple("Choice", "value_tile num_warps num_stages min_blocks groups chunks_per_group")
Launches = collections.namedtuple(
    "Launches", "output_blocks output_shared sum_tile sum_blocks sum_shared scan_blocks record")


def sum_pass(kind):
    """The pass whose linear_sum makes the states that this one starts from: itself, or the one that has their transposes."""
    return {FORWARD: DQ, DV: DK}.get(kind, kind)


def choose(q, v, problem, kinds):
    """The choice for passes, and the launches of each; `kinds` are the one of the operation, or those of its gradient in order."""
    causal, _, normalised = problem
    batch, tokens, heads, key_dim = q.shape
    first, step = len(Choice._fields), len(Launches._fields)
    numbers = launching.ask(q.device, "ask_linear", first + step * len(kinds), int(kinds != (FORWARD,)), loader.INPUT[q.dtype],
                            key_dim, v.shape[-1], int(causal), int(normalised), batch * heads, tokens)
    return Choice(*numbers[:first]), {
        kind: Launches(*numbers[at:at + step]) for kind, at in zip(kinds, range(first, len(numbers), step))}


def run(kind, choice, launches, problem, records, x, y, w, out, at=None, o=None, **values):
    """A pass. `records`: working memory, or, for DV, the sums that DK left there."""
    causal, feature, normalised = problem
    needs, threads = launches[kind], 32 * choice.num_warps
    batch, tokens, heads, _ = x.shape
    backwards = causal and kind in (DK, DV)
    tensors = {name: tensor for name, tensor in dict(x=x, y=y, w=w, out=out, at=at, o=o).items() if tensor is not None}
    vector = launching.is_vector(*tensors.values())
    values.update(records=records, tokens=tokens, batch=batch, heads=heads, groups=choice.groups,
                  chunks_per_group=choice.chunks_per_group, row_step=-1 if backwards else 1)
    for name in ("divisors", "scales", "offsets"):
        if backwards and name in values:
            values[name] = values[name].flatten()[tokens - 1:]

    def walk(kind, tensors, tile, *names):
        """Kernels whose warps go through groups, with so many columns of the state each, and their arguments."""
        built = launching.load(x.device, "linear/attention.cu", names, PASS=kind, FEATURE=feature,
                               KEY_DIM=tensors["y"].shape[-1], VALUE_DIM=tensors["w"].shape[-1], CAUSAL=int(causal),
                               NORMALISED=int(normalised), INPUT=loader.INPUT[x.dtype], VECTOR=vector, VALUE_TILE=tile,
                               NUM_WARPS=choice.num_warps, NUM_STAGES=choice.num_stages, MIN_BLOCKS=choice.min_blocks)
        return built, {**values, **{name: launching.rows(tensor, backwards) for name, tensor in tensors.items()}}

    if kind != DV:
        sums = tensors if sum_pass(kind) == kind else {**tensors, "y": w, "w": y, "at": x}
        built, arguments = walk(sum_pass(kind), sums, needs.sum_tile, "linear_sum", "linear_scan")
        launching.launch("linear_arguments", arguments,
                         (built["linear_sum"], needs.sum_blocks, threads, needs.sum_shared),
                         (built["linear_scan"], needs.scan_blocks, SCAN_THREADS, 0))
    built, arguments = walk(kind, tensors, choice.value_tile, "linear_output")
    launching.launch("linear_arguments", arguments,
                     (built["linear_output"], needs.output_blocks, threads, needs.output_shared))


def prepare(q, v, problem, kinds):
    """The choice for passes, their launches, the problem, and working memory for records."""
    choice, launches = choose(q, v, problem, kinds)
    numbers = q.shape[0] * q.shape[2] * choice.groups * max(needs.record for needs in launches.values())
    return choice, launches, problem, torch.empty(numbers, dtype=torch.float32, device=q.device)


def forward(q, k, v, state, total, problem):
    """As linear.operation."""
    batch, tokens, heads, key_dim = q.shape
    o, single = q.new_empty(v.shape), {"dtype": torch.float32, "device": q.device}
    divisor = torch.empty(batch, heads, tokens, **single)
    last_state = torch.empty(batch, heads, key_dim, v.shape[-1], **single)
    last_sum = torch.empty(batch, heads, key_dim, **single)
    with launching.current(q.device):
        run(FORWARD, *prepare(q, v, problem, (FORWARD,)), q, k, v, o, divisors=divisor, initial_state=state, initial_sum=total,
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
        prepared = prepare(q, v, problem, (DK, DV, DQ))
        run(DK, *prepared, v, d_o, q, d_k, k, o, **rows, initial_state=d_state, initial_sum=d_sum,
            final_state=first_state, final_sum=first_sum)
        run(DV, *prepared, k, q, d_o, d_v, **rows, initial_state=d_state)
        run(DQ, *prepared, d_o, v, k, d_q, q, **rows, initial_state=state, initial_sum=total)
    return d_q, d_k, d_v, first_state, first_sum
