"""The emulated GPU, in the place of what needs PyTorch's CUDA runtime: modules, launches, and tensors on a device, which are
copied there and back."""
import contextlib
import ctypes
import functools
import hashlib
import os
import tempfile
import types

import pytest
import torch
from conftest import BUILD, GPU

LIBRARY = BUILD / "emulator" / "libcuda.so.1"
PTX = BUILD / "cache" / "fork"
NEEDED = [pytest.mark.skipif(GPU, reason="there is a real GPU"),
          pytest.mark.skipif(not LIBRARY.exists(), reason="make emulator: there is no emulated GPU")]


class Emulator:
    def __init__(self):
        self.library = ctypes.CDLL(str(LIBRARY))
        context = ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.modules = {}

    def call(self, name, *args):
        assert getattr(self.library, name)(*args) == 0, name

    def attribute(self, number):
        value = ctypes.c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(value), number, 0)
        return value.value

    def properties(self, device):
        return types.SimpleNamespace(major=self.attribute(75), minor=self.attribute(76),
                                     multi_processor_count=self.attribute(16),
                                     shared_memory_per_multiprocessor=self.attribute(81),
                                     shared_memory_per_block_optin=self.attribute(97))

    def architecture(self):
        """Of capability 8.1 there is no GPU: the compiler takes it for 8.0."""
        return "compute_90a" if self.attribute(75) == 9 else "compute_80"

    def compile(self, source, parameters):
        """As PTX, which is what the emulator runs; it is kept, for most of a test's time is the compiler's."""
        kernels = next(folder for folder in (*source.parents, source.parent / "kernels") if folder.name == "kernels")
        options = [f"--gpu-architecture={self.architecture()}", "-std=c++17", *(f"-D{name}={value}" for name, value in parameters.items())]
        digest = hashlib.sha256(repr((torch.__version__, source.name, options)).encode())
        for path in [source, *sorted(path for path in kernels.rglob("*") if path.is_file())]:
            digest.update(repr((path.name, path.read_bytes())).encode())
        kept = PTX / digest.hexdigest()
        if not kept.exists():
            PTX.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=PTX, delete=False) as new:
                new.write(self.compile_anew(source, [*options, f"-I{kernels}"]))
            os.replace(new.name, kept)
        return kept.read_bytes()

    def compile_anew(self, source, options):
        nvrtc, program, size = torch.cuda._utils._get_gpu_rtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
        options = [option.encode() for option in options]
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None) == 0
        assert nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)) == 0
        assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetPTX(program, text) == 0
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return text.raw

    def load(self, device, source, names, **parameters):
        key = source, self.architecture(), tuple(parameters.items())
        if key not in self.modules:
            self.modules[key] = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(self.modules[key]), self.compile(source, parameters))
        functions = {name: ctypes.c_void_p() for name in names}
        for name, function in functions.items():
            self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[key], name.encode())
        return functions

    @contextlib.contextmanager
    def copied(self, tensors):
        """A function that gives a CPU tensor's address there, as long as this lasts."""
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors if isinstance(x, torch.Tensor)}
        places = {0: ctypes.c_uint64(0)}
        for at, storage in storages.items():
            if at:
                places[at] = ctypes.c_uint64()
                self.call("cuMemAlloc_v2", ctypes.byref(places[at]), ctypes.c_size_t(storage.nbytes()))
                self.call("cuMemcpyHtoDAsync_v2", places[at], ctypes.c_void_p(at), ctypes.c_size_t(storage.nbytes()), None)
        yield lambda x: places[x.untyped_storage().data_ptr()].value + x.data_ptr() - x.untyped_storage().data_ptr()
        for at, storage in storages.items():
            if at:
                self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(at), places[at], ctypes.c_size_t(storage.nbytes()), None)
                self.call("cuMemFree_v2", places[at])

    def run(self, kernel, grid, threads, pointers, shared):
        self.call("cuFuncSetAttribute", kernel, 8, shared)
        self.call("cuLaunchKernel", kernel, *grid, threads, 1, 1, shared, None, pointers, None)


@functools.cache
def only_one():
    """A process has one driver."""
    return Emulator()


@pytest.fixture(scope="module")
def emulator():
    if torch.version.cuda is None:
        pytest.skip("this PyTorch has no NVRTC")
    return only_one()
