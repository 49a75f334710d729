"""The CUDA kernels in kernels/, launched through PyTorch's own NVRTC entry; loader.py compiles them.

What the functions take and give stands in backend.py.
"""
import collections
import functools
import hashlib

import torch

from fla.ops.quasar import loader
from fla.ops.quasar import torch_backend
from fla.ops.quasar import tuned

INPUT = loader.INPUT
IN_PLACE = True  # a block has all of a head's columns, and reads a chunk's rows of q before it writes those of o
unavailable = loader.unavailable


def load(device, part, names, **parameters):
    """Kernels of a part of entry.cu, as loader.load."""
    return loader.load(device, loader.FOLDER / "entry.cu", names, **{part: 1}, **parameters)


def launch(kernel, grid, threads, arguments, shared=0):
    """Queues a kernel on the current stream of the GPU that the tensors are on. None stands for a null pointer."""
    device = next(x for x in arguments if isinstance(x, torch.Tensor)).device
    null = torch.empty(0, device=device)
    arguments = [null if x is None else x for x in arguments]
    with torch.cuda.device(device):
        if shared > kernel._max_shared_mem_bytes:
            kernel.set_shared_memory_config(shared)
        kernel((*grid, 1), (threads, 1, 1), arguments, shared)


# --- the operation --------------------------------------------------------------------------------------------


# How a problem is computed: parameters of the build, how the chunks of a head are cut into groups, and what launches need.
Choice = collections.namedtuple(
    "Choice", "chunk num_stages min_blocks product_warps num_launches chunks chunks_per_group groups threads inverse_threads "
    "inverses_at_once inverse_shared transition_shared output_shared inverse_bytes transition_bytes")


@functools.cache
def tuned_for_these_kernels():
    """Whether tuned.py was measured with the kernels as they are here."""
    return hashlib.sha256(loader.sources()).hexdigest() == tuned.KERNELS


def tuned_configuration(name, dim, dtype, upstream, sequences, tokens):
    """What tuning found on GPUs of this name for such a problem; zeros: nothing."""
    key = (name, "upstream" if upstream else "causal", str(dtype).removeprefix("torch."), dim, sequences,
           tokens.bit_length() - 1)
    return tuned.CONFIGURATIONS.get(key, (0,) * 6) if tuned_for_these_kernels() else (0,) * 6


def machine(device):
    """A GPU as struct choice_machine has it."""
    properties = torch.cuda.get_device_properties(device)
    return (10 * properties.major + properties.minor, properties.multi_processor_count,
            properties.shared_memory_per_block_optin, properties.shared_memory_per_multiprocessor)


@functools.lru_cache(4096)
def choose(device, dim, dtype, upstream, sequences, tokens):
    """The GPU runs the C code that chooses (kernels/quasar/choice.h). Waits for the answer, once for each problem."""
    properties = torch.cuda.get_device_properties(device)
    found = torch.empty(len(Choice._fields), dtype=torch.int32, device=f"cuda:{device}")
    kernel = load(device, "QUASAR_CHOICE", ("quasar_choice",))["quasar_choice"]
    launch(kernel, (1, 1), 1,
           [dim, INPUT[dtype], int(upstream), sequences, tokens, *machine(device),
            *tuned_configuration(properties.name, dim, dtype, upstream, sequences, tokens), found])
    choice = Choice(*found.tolist())
    if choice.output_shared > properties.shared_memory_per_block_optin:
        raise RuntimeError(
            f"{dtype} with a head dimension of {dim} takes {choice.output_shared // 1024} KiB of shared memory a block; "
            f"{properties.name} has {properties.shared_memory_per_block_optin // 1024}. bfloat16 takes half as much; "
            "QUASAR_BACKEND=triton or torch runs without")
    return choice


def aligned(x):
    """x where 16 bytes can be loaded at a time."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


def forward(q, k, v, beta, state, semantics, first_rows=None, tokens=None, out=None):
    q, k, v = aligned(q), aligned(k), aligned(v)
    batch, held, heads, dim = q.shape
    tokens = held if tokens is None else tokens
    upstream, device = int(semantics == "upstream"), q.device
    o = torch.empty(batch, tokens, heads, dim, dtype=q.dtype, device=device) if out is None else out
    choice = choose(device.index, dim, q.dtype, upstream, batch * heads, tokens)
    sequences, separate = batch * heads, choice.num_launches == 3
    groups = sequences * choice.groups
    inverses = torch.empty(sequences * choice.chunks * choice.inverse_bytes if separate else 0,
                           dtype=torch.uint8, device=device)
    transitions = torch.empty(groups * choice.transition_bytes if choice.groups > 1 else 0,
                              dtype=torch.uint8, device=device)
    forgotten = torch.empty(groups, dtype=torch.int32, device=device)
    final = torch.empty(batch, heads, dim, dim, dtype=torch.float32, device=device)
    constants = dict(HEAD_DIM=dim, INPUT=INPUT[q.dtype], UPSTREAM=upstream, COMPACT=upstream, GATED=0, PACKED=0, VECTOR=1,
                     CHUNK=choice.chunk, MIN_BLOCKS=choice.min_blocks, PRODUCT_WARPS=choice.product_warps,
                     NUM_LAUNCHES=choice.num_launches)
    kernels = load(device.index, "QUASAR_CHUNK", ("quasar_chunk_transition", "quasar_chunk_output"),
                   NUM_STAGES=choice.num_stages, **constants)
    arguments = [q, k, v, o, beta, state, final, first_rows, inverses, transitions, forgotten, tokens, held,
                 *(stride // dim for stride in o.stride()[:3]), batch, heads, choice.chunks, choice.chunks_per_group,
                 choice.groups]
    if separate:  # it has no stages
        inverse = load(device.index, "QUASAR_CHUNK", ("quasar_chunk_inverse",), NUM_STAGES=2, **constants)
        launch(inverse["quasar_chunk_inverse"], (sequences * -(-choice.chunks // choice.inverses_at_once), 1),
               choice.inverse_threads, arguments, choice.inverse_shared)
    if choice.groups > 1:  # nobody asks for the transition of a last group
        launch(kernels["quasar_chunk_transition"], (groups - sequences, 1), choice.threads, arguments,
               choice.transition_shared)
    launch(kernels["quasar_chunk_output"], (groups, 1), choice.threads, arguments, choice.output_shared)
    return o, final


# How a gradient is gone through, and what launches need.
GradientChoice = collections.namedtuple(
    "GradientChoice", "chunks part_chunks chunks_per_group threads maps_shared chain_shared rows_shared square_bytes state_bytes")


@functools.lru_cache(4096)
def choose_gradient(device, dim, upstream, sequences, tokens):
    """As choose; None where a block has not so much shared memory."""
    found = torch.empty(len(GradientChoice._fields), dtype=torch.int32, device=f"cuda:{device}")
    kernel = load(device, "QUASAR_GRADIENT_CHOICE", ("quasar_gradient_choice",))["quasar_gradient_choice"]
    launch(kernel, (1, 1), 1, [dim, int(upstream), sequences, tokens, *machine(device), found])
    choice = GradientChoice(*found.tolist())
    most = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    return choice if max(choice.maps_shared, choice.chain_shared, choice.rows_shared) <= most else None


def gradients(q, k, v, beta, state, semantics, output_gradient, state_gradient, first_rows=None, tokens=None):
    batch, held, heads, dim = q.shape
    length, upstream, device, sequences = tokens or held, int(semantics == "upstream"), q.device, batch * heads
    choice = choose_gradient(device.index, dim, upstream, sequences, length) if q.dtype is torch.bfloat16 else None
    if choice is None:  # there are no kernels for it
        return torch_backend.gradients(q, k, v, beta, state, semantics, output_gradient, state_gradient, first_rows, tokens)
    steps = [f"quasar_gradient_{step}" for step in ("maps", "compose", "states", "rows", "beta")]
    kernels = load(device.index, "QUASAR_GRADIENT", tuple(steps), HEAD_DIM=dim, INPUT=INPUT[q.dtype], UPSTREAM=upstream,
                   COMPACT=upstream, VECTOR=1)
    tensors = [aligned(x) for x in (q, k, v, output_gradient)]
    found = [torch.empty_like(x) if first_rows is None else torch.zeros_like(x) for x in (q, k, v)]
    most_groups = -(-choice.part_chunks // choice.chunks_per_group)
    working = torch.empty(sequences * (choice.part_chunks * choice.square_bytes
                                       + 3 * (choice.part_chunks + most_groups) * choice.state_bytes),
                          dtype=torch.uint8, device=device)
    beta_terms = torch.empty(sequences, choice.chunks, dtype=torch.float32, device=device)
    beta_gradient = torch.empty(heads, dtype=torch.float32, device=device)

    def go_through(first, before, behind, gradient_behind, gradient_before):
        """A part: for the state behind it, or, without that, for the gradients."""
        chunks = min(choice.part_chunks, choice.chunks - first)
        groups = -(-chunks // choice.chunks_per_group)
        forwards = behind is not None
        arguments = [*tensors, *found, beta, before, behind, first_rows, gradient_behind, gradient_before, beta_terms,
                     beta_gradient, working, length, held, batch, heads, choice.chunks, first, chunks,
                     choice.chunks_per_group, groups]
        chains = groups if forwards else 2 * groups
        blocks = [chunks, chains if groups > 1 else 0, chains, 0 if forwards else chunks]
        shared = choice.maps_shared, choice.chain_shared, choice.chain_shared, choice.rows_shared
        for step, count, size in zip(steps, blocks, shared):
            if count:
                launch(kernels[step], (sequences * count, 1), choice.threads, arguments, size)
        if first == 0 and not forwards:
            launch(kernels["quasar_gradient_beta"], (heads, 1), loader.constant("GRADIENT_BETA_THREADS"), arguments)

    parts, states = range(0, choice.chunks, choice.part_chunks), [state]
    for first in parts[:-1]:
        states.append(torch.empty_like(state_gradient))
        go_through(first, states[-2], states[-1], None, None)
    for first in reversed(parts):
        before = torch.empty_like(state_gradient)
        go_through(first, states.pop(), None, state_gradient, before)
        state_gradient = before
    return *found, beta_gradient, state_gradient


# --- the layer's parts ----------------------------------------------------------------------------------------


def place(segment):
    """What the kernels are told of a segment."""
    return segment.tokens, segment.padded, segment.first, segment.stretches, segment.length


def project(x, weights, segment, q, k, v, narrow):
    """On Hopper alone, for its kernel multiplies by wgmma."""
    (columns, hidden), size, device = weights.projection.shape, narrow.shape[-1], x.device
    if (x.shape[0] * x.shape[1] < loader.constant("PROJECT_LEAST_TOKENS")
            or torch.cuda.get_device_capability(device) != (9, 0) or hidden % loader.constant("PROJECT_INNER")
            or hidden > loader.constant("PROJECT_MOST_HIDDEN") or size % loader.constant("PROJECT_COLUMNS")):
        return False
    kernels = load(device.index, "LAYER_PROJECT", ("layer_project_entry", "layer_tile_entry"), INPUT=INPUT[q.dtype],
                   HIDDEN=hidden, WIDTH=(columns - size) // 3, HEAD_DIM=size, FROM_F32=int(x.dtype is torch.float32))
    tiles, threads = torch.empty_like(weights.projection), loader.constant("LAYER_THREADS")
    launch(kernels["layer_tile_entry"], (-(-tiles.numel() // (loader.constant("TILE_NUMBERS") * threads)), 1), threads,
           [weights.projection, tiles])
    launch(kernels["layer_project_entry"], (torch.cuda.get_device_properties(device).multi_processor_count, 1),
           loader.constant("PROJECT_THREADS"),
           [aligned(x), tiles, weights.taps, q, k, v, narrow, *place(segment), len(x) * segment.stretches],
           loader.constant("PROJECT_SHARED"))
    return True


def gather(x, segment):
    (batch, _, hidden), rows = x.shape, segment.length + loader.constant("LAYER_HISTORY")
    stretches = batch * segment.stretches
    xs = torch.empty(stretches * rows, hidden, dtype=torch.bfloat16, device=x.device)
    kernel = load(x.device.index, "LAYER_GATHER", ("layer_gather_entry",), INPUT=INPUT[xs.dtype],
                  FROM_F32=int(x.dtype is torch.float32))["layer_gather_entry"]
    threads = loader.constant("LAYER_THREADS")
    blocks = -(-rows * hidden // (loader.constant("GATHER_NUMBERS") * threads))
    launch(kernel, (blocks, stretches), threads, [x, xs, *place(segment), hidden])
    return xs


def convolve(projected, weight, segment, q, k, v, narrow, held=None):
    (batch, _, size), width = narrow.shape, weight.shape[-1]
    kernel = load(q.device.index, "LAYER_CONVOLVE", ("layer_convolve_entry",), INPUT=INPUT[q.dtype], HEAD_DIM=size,
                  WIDTH=width)["layer_convolve_entry"]
    threads = loader.constant("LAYER_THREADS")
    few = batch * segment.stretches * segment.length < loader.constant("FEW_ROWS")
    strip = loader.constant("SHORT_STRIP_ROWS" if few else "STRIP_ROWS")
    strips = -(-segment.length // strip)
    blocks = -(-strips * (projected.shape[-1] // loader.constant("STRIP_CHANNELS")) // threads)
    launch(kernel, (blocks, batch * segment.stretches), threads,
           [projected, weight, q, k, v, narrow, *place(segment), held or segment.length, strip])


def gate(o, narrow, weight, bias, norm, eps, y):
    rows, heads, size = o.shape
    kernel = load(o.device.index, "LAYER_GATE", ("layer_gate_entry",), INPUT=INPUT[o.dtype], HEAD_DIM=size,
                  VECTOR=1)["layer_gate_entry"]
    resident = 2 * torch.cuda.get_device_properties(o.device).multi_processor_count // heads
    blocks = max(1, min(resident, -(-rows // loader.constant("LAYER_GATE_ROWS"))))
    launch(kernel, (blocks, heads), loader.constant("LAYER_THREADS"),
           [o, *o.stride()[:2], y, narrow, weight, bias, norm, rows, heads, float(eps)])
