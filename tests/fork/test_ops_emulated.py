"""quasar_ops' CUDA kernels on the emulated GPU, as PyTorch's loader would run them on a real one. Its driver takes the place of
what needs PyTorch's CUDA runtime: modules, launches, and tensors on a device, which are copied there and back."""
import ctypes
import types

import pytest
import torch
from conftest import BUILD, GPU
from test_ops import compare, linear, make, softmax

import quasar_ops
from quasar_ops import launching, loader

LIBRARY = BUILD / "emulator" / "libcuda.so.1"
LIMITS = {torch.float32: 5e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}  # of kernels

pytestmark = [pytest.mark.skipif(GPU, reason="there is a real GPU"),
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
        return types.SimpleNamespace(multi_processor_count=self.attribute(16),
                                     shared_memory_per_multiprocessor=self.attribute(81),
                                     shared_memory_per_block_optin=self.attribute(97))

    def compile(self, source, parameters):
        """As PTX, which is what the emulator runs."""
        nvrtc, program, size = torch.cuda._utils._get_gpu_rtc_library(), ctypes.c_void_p(), ctypes.c_size_t()
        options = ["--gpu-architecture=compute_80", "-std=c++17", f"-I{loader.KERNELS}"]
        options = [option.encode() for option in options + [f"-D{name}={value}" for name, value in parameters.items()]]
        assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), 0, None, None) == 0
        assert nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)) == 0
        assert nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)) == 0
        text = ctypes.create_string_buffer(size.value)
        assert nvrtc.nvrtcGetPTX(program, text) == 0
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return text

    def load(self, device, source, names, **parameters):
        key = source, tuple(parameters.items())
        if key not in self.modules:
            self.modules[key] = ctypes.c_void_p()
            self.call("cuModuleLoadData", ctypes.byref(self.modules[key]), self.compile(source, parameters))
        functions = {name: ctypes.c_void_p() for name in names}
        for name, function in functions.items():
            self.call("cuModuleGetFunction", ctypes.byref(function), self.modules[key], name.encode())
        return functions

    def launch(self, name, values, *launches):
        tensors = [value[0] if isinstance(value, tuple) else value for value in values.values()]
        storages = {x.untyped_storage().data_ptr(): x.untyped_storage() for x in tensors if isinstance(x, torch.Tensor)}
        places = {}
        for at, storage in storages.items():
            places[at] = ctypes.c_uint64()
            self.call("cuMemAlloc_v2", ctypes.byref(places[at]), ctypes.c_size_t(storage.nbytes()))
            self.call("cuMemcpyHtoDAsync_v2", places[at], ctypes.c_void_p(at), ctypes.c_size_t(storage.nbytes()), None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(launching, "address", lambda x: places[x.untyped_storage().data_ptr()].value +
                          x.data_ptr() - x.untyped_storage().data_ptr())
            filled = launching.arguments(name, values)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(filled))
        for kernel, blocks, threads, shared in launches:
            self.call("cuFuncSetAttribute", kernel, 8, shared)
            self.call("cuLaunchKernel", kernel, blocks, 1, 1, threads, 1, 1, shared, None, pointers, None)
        for at, storage in storages.items():
            self.call("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(at), places[at], ctypes.c_size_t(storage.nbytes()), None)
            self.call("cuMemFree_v2", places[at])


@pytest.fixture(scope="module")
def emulator():
    if torch.version.cuda is None:
        pytest.skip("this PyTorch has no NVRTC")
    return Emulator()


@pytest.fixture(autouse=True)
def emulated(emulator, monkeypatch):
    """PyTorch's CPU tensors are taken for a GPU's."""
    monkeypatch.setenv("EMULATOR_RACECHECK", "1")
    monkeypatch.setattr(loader, "unavailable", lambda device: None)
    monkeypatch.setattr(loader, "load", emulator.load)
    for name in ("launch", "properties"):
        monkeypatch.setattr(launching, name, getattr(emulator, name))
    monkeypatch.setattr(launching, "current", lambda device: torch.device(device))
    monkeypatch.setattr(launching, "on_gpu", lambda x: True)
    for module in (quasar_ops.linear.linear_torch, quasar_ops.flash.flash_torch):
        monkeypatch.delattr(module, "forward")


@pytest.mark.parametrize("dtype, causal, feature, normalised", [
    (torch.bfloat16, True, "elu+1", True), (torch.float16, True, "exp", False), (torch.float32, False, "relu", True)])
def test_linear(dtype, causal, feature, normalised):
    q, k, v = make((1, 70, 2, 32), (1, 70, 2, 32), (1, 70, 2, 64), dtype=dtype)
    state, total = torch.randn(1, 2, 32, 64).requires_grad_(), (torch.rand(1, 2, 32) + 0.5).requires_grad_()
    results = quasar_ops.linear_attention(q, k, v, causal, feature, normalised, state, total, True)
    compare([q, k, v, state, total], results, linear(q, k, v, causal, feature, normalised, state, total), 2 * LIMITS[dtype])


def test_linear_strides():
    q = torch.randn(2, 3, 40, 32).transpose(1, 2).requires_grad_()
    k = torch.randn(2, 40, 3, 64)[..., ::2].detach().requires_grad_()
    v = torch.randn(2, 40, 1, 32).expand(2, 40, 3, 32).detach().requires_grad_()
    compare([q, k, v], [quasar_ops.linear_attention(q, k, v, True)], linear(q, k, v, True, "elu+1", True)[:1], 2e-4)


@pytest.mark.parametrize("dtype, causal, size", [(torch.bfloat16, True, 64), (torch.float16, False, 128)])
def test_flash(dtype, causal, size):
    q, k, v = make((1, 140, 4, size), (1, 140, 2, size), (1, 140, 2, size), dtype=dtype)
    compare([q, k, v], quasar_ops.flash_attention(q, k, v, causal, return_lse=True), softmax(q, k, v, causal), LIMITS[dtype])


def test_flash_packed_sequences():
    bounds = [0, 0, 33, 34, 150]
    q, k, v = make(*[(1, 150, 2, 64)] * 3, dtype=torch.bfloat16)
    o = quasar_ops.flash_attention(q, k, v, True, cu_seqlens=torch.tensor(bounds))
    compare([q, k, v], [o], softmax(q, k, v, True, bounds=bounds)[:1], 1e-2)
