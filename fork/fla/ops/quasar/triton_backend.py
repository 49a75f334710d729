"""The operation and what the layer has around it by Triton kernels (triton_kernels.py), on NVIDIA and AMD GPUs."""
import contextlib
import functools
import math
import os
import shutil
import threading

import torch

from fla.ops.quasar.torch_backend import gradients  # noqa: F401 (there are no kernels for them)

try:
    import triton

    import fla.ops.quasar.triton_kernels as kernels
except ImportError:
    triton = None

CHUNK = 64
HISTORY = 3
ELEMENTS = 8192  # of x, in a program of gather
STRIP = 32  # rows that a program of convolve goes down
MOST_INVERSES = 32768  # chunks whose T is in memory at a time: 256 MiB in bf16
IN_PLACE = False  # programs that have some of a head's columns each read the same rows of q
PROGRAMS = 2  # of a kernel, that are to share a multiprocessor
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# Triton's autotuner keeps a call's arguments in itself.
launching = threading.Lock()


def unavailable(device):
    """Why this back end cannot run on a device, or None."""
    device = torch.device(device)
    if triton is None:
        return "Triton is not installed"
    if INTERPRETED:
        return None
    if device.type != "cuda":
        return f"Triton needs a GPU, and the tensors are on {device}"
    if torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0):
        return f"{torch.cuda.get_device_name(device)} has no bf16: compute capability 8.0 is needed"
    if not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))):
        return "Triton needs a C compiler"
    return None


@contextlib.contextmanager
def launches_on(device):
    """Kernels are launched on this device, by one thread at a time."""
    with launching, torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext():
        yield


def precision_of(dtype):
    """How products are made of such tensors, and those of a chunk's small blocks."""
    if dtype == torch.bfloat16:
        return "bf16", "fp16"
    if dtype == torch.float16:
        return "ieee" if torch.version.hip else "tf32", "fp16"
    return "ieee" if torch.version.hip else "tf32x3", "ieee"


def rows_of(size, dtype, device):
    """How many rows of the state, of `size`, a program has: what its registers hold. Products on Hopper's warp groups
    take 64, and only they read their right factor from shared memory."""
    groups = device.type == "cuda" and (torch.version.hip or torch.cuda.get_device_capability(device)[0] == 9)
    return min(size, 64 if groups and dtype != torch.float32 else 32)


@functools.cache
def multiprocessors(device):
    """How many the device has; 1 where Triton's interpreter stands in for it."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def cut_into_groups(chunks, most):
    """How many groups of how many chunks: as many as run at a time, but no more than pay, as each applies the
    transitions of those before it."""
    most = min(most, kernels.MOST_GROUPS.value, int(2 * math.sqrt(chunks)))
    length = math.ceil(chunks / max(most, 1))
    return math.ceil(chunks / length), length


def forward(q, k, v, beta, state, semantics, first_rows=None, tokens=None, out=None):
    """See backend.py. A long sequence is worked off in spans of chunks, so that workspaces stay bounded."""
    batch, length, heads, size = q.shape
    tokens = tokens or length
    out = q.new_empty(batch, tokens, heads, size) if out is None else out
    state = q.new_zeros(batch, heads, size, size, dtype=torch.float32) if state is None else state
    sequences, chunks, rows = batch * heads, math.ceil(tokens / CHUNK), rows_of(size, q.dtype, q.device)
    parts, room = size // rows, PROGRAMS * multiprocessors(q.device)
    precision, small = precision_of(q.dtype)
    constants = {"S": size, "CAUSAL": semantics == "causal", "PRECISION": precision}
    span = min(chunks, max(MOST_INVERSES // sequences, 1))
    groups, group = cut_into_groups(span, room // (sequences * parts))
    constants["full"] = int(2 * sequences * groups * parts > room)
    inverses = q.new_empty(sequences * span, CHUNK, CHUNK)
    maps = q.new_empty(sequences * groups, size, size)
    additions = q.new_empty(sequences * groups, size, size, dtype=torch.float32)
    forgotten = q.new_empty(sequences * groups * parts, dtype=torch.int32)
    with launches_on(q.device):
        for start in range(0, chunks, span):
            count = min(span, chunks - start)
            groups = math.ceil(count / group)
            final = torch.empty_like(state)
            kernels.chunk_inverse[(sequences * count,)](
                k, beta, first_rows, inverses, length, heads, chunks, start, count, SMALL=small, **constants)
            if groups > 1:
                kernels.chunk_transition[(sequences * (groups - 1), parts)](
                    k, v, first_rows, inverses, maps, additions, forgotten, length, heads, chunks, start, count,
                    groups, group, ROWS=rows, **constants)
            kernels.chunk_output[(sequences * groups, parts)](
                q, k, v, first_rows, inverses, maps, additions, forgotten, state, out, final, length, tokens, heads,
                chunks, start, count, groups, group, ROWS=rows, **constants)
            state = final
    return out, state


def project(x, weights, segment, q, k, v, narrow):
    """There is no such kernel."""
    return False


def gather(x, segment):
    hidden = x.shape[-1]
    stretches = x.numel() // (segment.tokens * hidden) * segment.stretches
    xs = x.new_empty(stretches * (segment.length + HISTORY), hidden, dtype=torch.bfloat16)
    columns = min(1024, triton.next_power_of_2(hidden))
    rows = ELEMENTS // columns
    with launches_on(x.device):
        kernels.gather_tokens[(math.ceil(len(xs) / rows), math.ceil(hidden / columns))](
            x, xs, segment.tokens, segment.padded, segment.first, segment.stretches, segment.length, stretches,
            HIDDEN=hidden, ROWS=rows, COLUMNS=columns)
    return xs


def convolve(projected, weight, segment, q, k, v, narrow, held=None):
    width, size = weight.shape[-1], narrow.shape[-1]
    stretches = narrow.numel() // (segment.tokens * size) * segment.stretches
    columns = min(512, width & -width)
    with launches_on(q.device):
        kernels.convolve_strip[(3 * width // columns + 1, math.ceil(segment.length / STRIP), stretches)](
            projected, weight, q, k, v, narrow, segment.tokens, segment.padded, segment.first, segment.stretches,
            segment.length, segment.length if held is None else held, WIDTH=width, S=size, ROWS=STRIP,
            COLUMNS=columns, num_warps=max(1, columns // 256))


def gate(o, narrow, weight, bias, norm, eps, y):
    rows, heads, size = o.shape
    block = 64
    with launches_on(o.device):
        kernels.gate_rows[(math.ceil(rows / block) * heads,)](
            o, *o.stride()[:2], narrow, weight, bias, norm, eps, y, rows, heads, S=size, ROWS=block)
