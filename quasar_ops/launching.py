"""The kernels of the operations: their arguments, as the kernels' own headers define them, and how they are queued."""
import ctypes
import functools
import re
import struct
import warnings

import torch

from quasar_ops import loader

CODES = {"int": "i", "long long": "q", "float": "f"}  # of Python's module struct
TENSOR = "struct device_tensor"


@functools.cache
def fields(name):
    """Those of `struct name` in the kernels' sources, each with its code, or as a TENSOR: an address and four strides."""
    text = re.sub(r"/\*.*?\*/", "", loader.sources().decode(), flags=re.S)
    body = re.search(rf"struct {name} {{(.*?)}};", text, re.S)[1]
    found = []
    for declaration in body.split(";")[:-1]:
        kind, names = re.fullmatch(r"\s*(?:const )?((?:struct |long )?\w+)\s+(.*)", declaration, re.S).groups()
        for field in names.split(","):
            pointer, field = re.fullmatch(r"\s*(\*?)(\w+)", field).groups()
            found.append((field, "P" if pointer else kind if kind == TENSOR else CODES[kind]))
    return found


@functools.cache
def packer(name):
    """Lays the fields out as C does; the end is filled up to eight bytes."""
    return struct.Struct("".join("Pqqqq" if code == TENSOR else code for _, code in fields(name)) + "0q")


def address(x):
    return x.data_ptr()


def rows(x, from_its_end=False):
    """x as a struct device_tensor: where it begins, in elements, and its strides."""
    strides = x.stride()
    if not from_its_end:
        return x, 0, strides
    return x, (x.shape[1] - 1) * strides[1], (strides[0], -strides[1], *strides[2:])


def arguments(name, values):
    """A filled `struct name`. A value is a number, a tensor (its address), what rows() makes, or None; 0 what is left out."""
    numbers = []
    for field, code in fields(name):
        value = values.get(field)
        if code == TENSOR:
            x, first, strides = value or (None, 0, (0, 0, 0, 0))
            numbers += (0 if x is None else address(x) + first * x.element_size(), *strides)
        else:
            numbers.append(address(value) if isinstance(value, torch.Tensor) else value or 0)
    return ctypes.create_string_buffer(packer(name).pack(*numbers))


def is_vector(*tensors):
    """Whether every row can be loaded 16 bytes at a time."""
    step = 16 // tensors[0].element_size()
    return int(all(x.data_ptr() % 16 == 0 and (at := x.stride())[3] == 1 and not (at[0] % step or at[1] % step or at[2] % step)
                   for x in tensors))


def current(device):
    """What is queued goes to this GPU."""
    return torch.cuda.device(device)


@functools.cache
def launcher():
    """The driver's function; PyTorch opens the driver anew for everybody who asks, which takes longer than a launch."""
    from torch.cuda._utils import _get_gpu_runtime_library
    return _get_gpu_runtime_library().cuLaunchKernel


def launch(name, values, *launches):
    """Queues kernels that take the same `struct name`, on PyTorch's current stream of the current GPU: each with its blocks,
    threads of a block, and bytes of shared memory."""
    from torch.cuda._utils import _check_cuda
    filled, start = arguments(name, values), launcher()
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
