"""The kernels of the operations: their arguments, as the kernels' own headers define them, and how they are queued."""
import collections
import ctypes
import functools
import re
import struct
import warnings

import torch

from quasar_ops import loader

CODES = {"int": "i", "long long": "q", "float": "f"}  # of Python's module struct
TENSOR, MAP = "struct device_tensor", "struct tensor_map"
MAP_BYTES, MAP_ALIGNMENT, MAP_STRIDE_END = 128, 64, 1 << 40
MAP_U16, MAP_SWIZZLE_128, MAP_L2_128 = 1, 3, 2  # as lib/gpu/cuda.h names what NVIDIA's documentation lists

Boxes = collections.namedtuple("Boxes", "tensor before sizes strides box")  # what a map is made of; before: bytes, of the tensor


@functools.cache
def fields(name):
    """Those of `struct name` in the kernels' sources, each with its code, or as a TENSOR: an address and four strides, or a MAP."""
    text = re.sub(r"/\*.*?\*/", "", loader.sources().decode(), flags=re.S)
    body = re.search(rf"struct {name} {{(.*?)}};", text, re.S)[1]
    found = []
    for declaration in body.split(";")[:-1]:
        kind, names = re.fullmatch(r"\s*(?:const )?((?:struct |long )?\w+)\s+(.*)", declaration, re.S).groups()
        for field in names.split(","):
            pointer, field = re.fullmatch(r"\s*(\*?)(\w+)", field).groups()
            found.append((field, "P" if pointer else kind if kind in (TENSOR, MAP) else CODES[kind]))
    return found


@functools.cache
def packer(name):
    """Lays the fields out as C does, maps first; the end is filled up to eight bytes, or to what a map's alignment asks for."""
    codes = [code for _, code in fields(name)]
    layout = "".join({TENSOR: "Pqqqq", MAP: f"{MAP_BYTES}s"}.get(code, code) for code in codes) + "0q"
    return struct.Struct(layout + (f"{-struct.calcsize(layout) % MAP_ALIGNMENT}x" if MAP in codes else ""))


def address(x):
    return x.data_ptr()


def rows(x, from_its_end=False):
    """x as a struct device_tensor: where it begins, in elements, and its strides."""
    strides = x.stride()
    if not from_its_end:
        return x, 0, strides
    return x, (x.shape[1] - 1) * strides[1], (strides[0], -strides[1], *strides[2:])


@functools.lru_cache(4096)
def tensor_map(data, sizes, strides, box):
    """The bytes of one, as lib/gpu's gpu_map_tensor() makes it."""
    from torch.cuda._utils import _check_cuda
    room = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGNMENT)
    place = -(-ctypes.addressof(room) // MAP_ALIGNMENT) * MAP_ALIGNMENT
    _check_cuda(driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(place), MAP_U16, 5, ctypes.c_void_p(data), (ctypes.c_uint64 * 5)(*sizes), (ctypes.c_uint64 * 4)(*strides),
        (ctypes.c_uint32 * 5)(*box), (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1), 0, MAP_SWIZZLE_128, MAP_L2_128, 0))
    return ctypes.string_at(place, MAP_BYTES)


def arguments(name, values):
    """A filled `struct name`. A value is a number, a tensor (its address), what rows() makes, Boxes, or None; 0 what is left
    out."""
    numbers = []
    for field, code in fields(name):
        value = values.get(field)
        if code == TENSOR:
            x, first, strides = value or (None, 0, (0, 0, 0, 0))
            numbers += (0 if x is None else address(x) + first * x.element_size(), *strides)
        elif code == MAP:
            numbers.append(tensor_map(address(value.tensor) - value.before, *value[2:]) if value else b"")
        else:
            numbers.append(address(value) if isinstance(value, torch.Tensor) else value or 0)
    return ctypes.create_string_buffer(packer(name).pack(*numbers))


def is_vector(*tensors):
    """Whether every row can be loaded 16 bytes at a time."""
    step = 16 // tensors[0].element_size()
    return int(all(x.data_ptr() % 16 == 0 and (at := x.stride())[3] == 1 and not (at[0] % step or at[1] % step or at[2] % step)
                   for x in tensors))


def is_mapped(*tensors):
    """Whether maps of 16-bit tensors can be made: every row is contiguous and aligned, and where there are several of something,
    they are apart."""
    return int(is_vector(*tensors) and all(0 < stride * 2 < MAP_STRIDE_END or size == 1
                                           for x in tensors for size, stride in zip(x.shape, x.stride())))


def current(device):
    """What is queued goes to this GPU."""
    return torch.cuda.device(device)


@functools.cache
def driver():
    """Its functions; PyTorch opens the driver anew for everybody who asks, which takes longer than a launch."""
    from torch.cuda._utils import _get_gpu_runtime_library
    return _get_gpu_runtime_library()


def launch(name, values, *launches):
    """Queues kernels that take the same `struct name`, on PyTorch's current stream of the current GPU: each with its blocks,
    threads of a block, and bytes of shared memory."""
    from torch.cuda._utils import _check_cuda
    filled, start = arguments(name, values), driver().cuLaunchKernel
    pointers = (ctypes.c_void_p * 1)(ctypes.addressof(filled))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    for kernel, blocks, threads, shared in launches:
        if shared > kernel._max_shared_mem_bytes:
            kernel.set_shared_memory_config(shared)
        _check_cuda(start(kernel.func, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, None))


def load(device, source, names, **parameters):
    """Kernels of a file in kernels/, as loader.load."""
    return loader.load(device.index, loader.KERNELS / source, names, **parameters)


def properties(device):
    return torch.cuda.get_device_properties(device)


@functools.lru_cache(4096)
def ask(device, about, count, *problem):
    """So many numbers that a kernel of choice.cu says of a problem on this GPU. Waits for the answer, once for each problem."""
    machine, found = properties(device), torch.empty(count, dtype=torch.int32, device=device)
    kernel = loader.load(device.index, loader.FOLDER / "choice.cu", ("ask_linear", "ask_flash"))[about]
    values = (10 * machine.major + machine.minor, machine.multi_processor_count, machine.shared_memory_per_block_optin,
              machine.shared_memory_per_multiprocessor, *problem, found)
    names = [field for field, _ in fields(f"{about}_arguments")]
    launch(f"{about}_arguments", dict(zip(names, values)), (kernel, 1, 1, 0))
    return found.tolist()


def on_gpu(x):
    return x.device.type == "cuda"


def can_run(q, dtypes, *dims):
    """Whether the kernels take this problem. Where a GPU has to do without them, a warning says why."""
    return on_gpu(q) and has_kernels(q.device, q.dtype, dtypes, dims)


@functools.cache
def has_kernels(device, dtype, dtypes, dims):
    """Whether the device runs kernels of that type and these head dimensions; warns once where it does not."""
    reason = loader.unavailable(device)
    if dtype not in dtypes:
        reason = f"no kernels for {dtype}"
    elif any(dim not in (32, 64, 128) for dim in dims):
        reason = f"no kernels for {' and '.join(map(str, sorted(set(dims))))} elements a head, only for 32, 64 and 128"
    if reason:
        warnings.warn(f"quasar_ops runs without its CUDA kernels: {reason}", stacklevel=2)
    return reason is None
