"""The CUDA kernels beside this file, compiled by PyTorch's own NVRTC entry on first use.

What the functions take and give stands in backend.py. A compiled kernel is kept in a private folder under a hash
of all that went into it, so that the next process only loads it.
"""
import functools
import hashlib
import math
import os
import pathlib
import tempfile

import torch

ENTRY = pathlib.Path(__file__).with_name("entry.cu")
KERNELS = pathlib.Path(__file__).with_name("kernels")
INPUT = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # as in element.cuh
HEAD_DIMS = (32, 64, 128)


def unavailable(device):
    """Why these kernels cannot run on `device`, or None."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "no NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "the GPU is older than compute capability 8.0"
    try:
        from torch.cuda._utils import _cuda_load_module, _nvrtc_compile
    except ImportError:
        return f"PyTorch {torch.__version__} has no NVRTC entry"
    return None


# --- compiling ------------------------------------------------------------------------------------------------


def cache_folder():
    """A folder that only we write to, or None."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for parent, name in ((home, "quasar-fork"), (tempfile.gettempdir(), f"quasar-fork-{os.getuid()}")):
        path = pathlib.Path(parent, name)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.lstat()
        except OSError:
            continue
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(path, os.W_OK | os.X_OK):
            return path
    return None


@functools.cache
def sources():
    """The text of everything that is compiled, for the cache's key."""
    return b"".join(path.read_bytes() for path in (ENTRY, *sorted(KERNELS.glob("*/*"))))


def compile_source(defines, architecture):
    """Machine code of entry.cu with these preprocessor definitions."""
    from torch.cuda._utils import _nvrtc_compile
    options = [f"-D{name}={value}" for name, value in defines.items()]
    key = hashlib.sha256(sources() + repr((options, architecture, torch.version.cuda)).encode()).hexdigest()
    folder = cache_folder()
    kept = folder / f"{key}.cubin" if folder else None
    if kept and kept.exists():
        return kept.read_bytes()
    names = ENTRIES[next(iter(defines))]
    binary, _ = _nvrtc_compile(ENTRY.read_text(), names[0], architecture, [str(KERNELS)], options)
    if kept:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            file.write(binary)
        os.replace(file.name, kept)  # whole or not at all, whoever else writes it now
    return binary


ENTRIES = {
    "QUASAR_CHUNK": ("quasar_chunk_transition", "quasar_chunk_output"),
    "LAYER_GATHER": ("layer_gather_entry",),
    "LAYER_CONVOLVE": ("layer_convolve_entry",),
    "LAYER_GATE": ("layer_gate_entry",),
}


@functools.cache
def kernels(device, entry, **parameters):
    """The kernels of one source as configured, by name. `device` is a number."""
    from torch.cuda._utils import _cuda_load_module
    major, minor = torch.cuda.get_device_capability(device)
    binary = compile_source({entry: 1, **parameters}, f"{major}{minor}")
    with torch.cuda.device(device):
        return _cuda_load_module(binary, list(ENTRIES[entry]))


# --- the operation --------------------------------------------------------------------------------------------


def plan(q, semantics, first_rows):
    """Temporary: as lib/op/quasar_cuda.c chooses."""
    dim, planes = q.shape[-1], 1 if q.dtype is torch.bfloat16 else 2
    properties = torch.cuda.get_device_properties(q.device)
    causal = semantics == "causal"

    def shared(chunk, stages, output):
        rows, square = chunk * dim * 2 * planes, chunk * chunk * 2 * planes
        return (stages * (3 if output else 2) * rows + square + max(dim // 16 * 1024, square)
                + (square if output and causal else 0))

    def fits(size):
        if size > properties.shared_memory_per_block_optin:
            return 0
        return properties.shared_memory_per_multiprocessor // (size + 1024)

    wanted = 4 if dim == 32 else (3 if causal else 2) if dim == 64 and planes == 1 else 1
    chunk, stages = 64, 2
    fit = fits(shared(chunk, stages, True))
    if fit < wanted:
        stages, fit = 1, fits(shared(chunk, 1, True))
    blocks = min(fit, wanted)
    return {"HEAD_DIM": dim, "CHUNK": chunk, "UPSTREAM": int(not causal), "INPUT": INPUT[q.dtype], "VECTOR": 1,
            "COMPACT": int(not causal), "STAGES": stages, "MIN_BLOCKS": blocks}, shared(chunk, stages, False), \
        shared(chunk, stages, True), blocks * properties.multi_processor_count, properties.multi_processor_count


COSTS = ((1.8, 3.2, 0.5), (3.5, 4.1, 0.7), (4.3, 5.7, 1.0))


@functools.cache
def choose_groups(sequences, chunks, resident, multiprocessors):
    least, best = math.inf, 1
    for groups in range(1, min(chunks, resident // sequences) + 1):
        sharing = -(-groups * sequences // multiprocessors)
        first, second, step = COSTS[min(sharing, 3) - 1]
        longest = -(-chunks // groups)
        cost = longest * second
        if groups > 1:
            cost += min(longest, 36) * first
        if longest < 36:
            cost += groups * step
        if cost < least:
            least, best = cost, groups
    return best


def forward(q, k, v, beta, state, semantics, first_rows=None, tokens=None, out=None):
    batch, held, heads, dim = q.shape
    tokens = held if tokens is None else tokens
    o = torch.empty(batch, tokens, heads, dim, dtype=q.dtype, device=q.device) if out is None else out
    parameters, transition_shared, output_shared, resident, multiprocessors = plan(q, semantics, first_rows)
    chunks = -(-tokens // parameters["CHUNK"])
    groups = choose_groups(batch * heads, chunks, resident, multiprocessors)
    per_group = -(-chunks // groups)
    groups = -(-chunks // per_group)
    planes = 1 if q.dtype is torch.bfloat16 else 2
    bytes_ = dim * dim * (4 + 2 * planes) * batch * heads * groups if groups > 1 else 0
    transitions = torch.empty(bytes_, dtype=torch.uint8, device=q.device)
    forgotten = torch.empty(batch * heads * groups, dtype=torch.int32, device=q.device)
    final = torch.empty(batch, heads, dim, dim, dtype=torch.float32, device=q.device)
    nothing = torch.empty(0, device=q.device)
    found = kernels(q.device.index, "QUASAR_CHUNK", **parameters)
    args = [q, k, v, o, beta, nothing if state is None else state, final,
            nothing if first_rows is None else first_rows, transitions, forgotten, tokens, held,
            o.stride(0) // (heads * dim), batch, heads, chunks, per_group, groups]
    threads = dim // 16 * 32
    if groups > 1:
        launch(found["quasar_chunk_transition"], batch * heads * (groups - 1), 1, threads, args, transition_shared)
    launch(found["quasar_chunk_output"], batch * heads * groups, 1, threads, args, output_shared)
    return o, final


def launch(kernel, x, y, threads, args, shared=0):
    if shared > kernel._max_shared_mem_bytes:
        kernel.set_shared_memory_config(shared)
    kernel((x, y, 1), (threads, 1, 1), args, shared)


# --- the layer's parts ----------------------------------------------------------------------------------------


THREADS = 256  # of the layer's kernels
HISTORY = 3


def gather(x, segment):
    hidden = x.shape[-1]
    rows = segment.stretches * (segment.length + HISTORY)
    xs = torch.empty(rows, hidden, dtype=torch.bfloat16, device=x.device)
    kernel = kernels(x.device.index, "LAYER_GATHER", INPUT=1, FROM_F32=int(x.dtype is torch.float32))["layer_gather_entry"]
    blocks = -(-(segment.length + HISTORY) * hidden // (8 * THREADS))
    launch(kernel, blocks, segment.stretches, THREADS,
           [x, xs, segment.tokens, segment.padded, segment.first, segment.stretches, segment.length, hidden])
    return xs


def convolve(projected, weight, segment, q, k, v, narrow, held=None):
    held = segment.length if held is None else held
    width, dim = weight.shape[-1], narrow.shape[-1]
    kernel = kernels(q.device.index, "LAYER_CONVOLVE", INPUT=1, HEAD_DIM=dim, WIDTH=width)["layer_convolve_entry"]
    blocks = -(-(-(-segment.length // 16) * ((3 * width + dim) // 4)) // THREADS)
    launch(kernel, blocks, segment.stretches, THREADS,
           [projected, weight, q, k, v, narrow, segment.tokens, segment.padded, segment.first, segment.stretches,
            segment.length, held])


def gate(o, narrow, weight, bias, norm, eps, y):
    dim = narrow.shape[-1]
    rows, heads = o.shape[0], o.shape[1] // dim
    kernel = kernels(o.device.index, "LAYER_GATE", INPUT=1, HEAD_DIM=dim, VECTOR=1)["layer_gate_entry"]
    resident = 2 * torch.cuda.get_device_properties(o.device).multi_processor_count // heads
    blocks = max(1, min(resident, -(-rows // 128)))
    launch(kernel, blocks, heads, THREADS, [o, y, narrow, weight, bias, norm, rows, heads, float(eps)])
