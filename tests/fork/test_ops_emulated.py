"""quasar_ops' CUDA kernels on the emulated GPU, as PyTorch's loader would run them on a real one."""
import ctypes

import pytest
import torch
from emulated import NEEDED, emulator  # noqa: F401 (a fixture)
from test_ops import compare, linear, make, softmax

import quasar_ops
from quasar_ops import flash_cuda, launching, loader

LIMITS = {torch.float32: 5e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}  # of kernels

pytestmark = NEEDED


def launch(emulator):
    """In launching.launch's place."""

    def launch(name, values, *launches):
        tensors = [value[0] if isinstance(value, tuple) else value for value in values.values()]
        with emulator.copied(tensors) as address, pytest.MonkeyPatch.context() as patch:
            patch.setattr(launching, "address", address)
            filled = launching.arguments(name, values)
            pointers = (ctypes.c_void_p * 1)(ctypes.addressof(filled))
            for kernel, blocks, threads, shared in launches:
                emulator.run(kernel, (blocks, 1, 1), threads, pointers, shared)

    return launch


@pytest.fixture(autouse=True)
def emulated(emulator, monkeypatch):
    """PyTorch's CPU tensors are taken for a GPU's."""
    monkeypatch.setenv("EMULATOR_RACECHECK", "1")
    monkeypatch.setattr(loader, "unavailable", lambda device: None)
    monkeypatch.setattr(loader, "load", emulator.load)
    monkeypatch.setattr(launching, "launch", launch(emulator))
    monkeypatch.setattr(launching, "driver", lambda: emulator.library)
    monkeypatch.setattr(launching, "properties", emulator.properties)
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


@pytest.fixture
def hopper(monkeypatch):
    """A GPU whose copy engine loads tiles."""
    monkeypatch.setenv("EMULATOR_CAPABILITY", "9.0")
    launching.ask.cache_clear()
    yield
    launching.ask.cache_clear()


@pytest.mark.parametrize("size", [64, 128])
def test_flash_on_hopper(hopper, size):
    """Heads before tokens, and parts of one projection."""
    q = torch.randn(2, 3, 140, size).bfloat16().transpose(1, 2).requires_grad_()
    k, v = (x.detach().requires_grad_() for x in torch.randn(2, 140, 1, 2 * size).bfloat16().split(size, -1))
    assert flash_cuda.choose(q.device, size, False, True, launching.is_mapped(q, k, v), 2 * 3, 140).product_warps == 4
    compare([q, k, v], quasar_ops.flash_attention(q, k, v, True, return_lse=True), softmax(q, k, v, True), 1e-2)


def test_flash_on_hopper_without_maps(hopper):
    """One row of keys for all tokens, and every second element."""
    q = torch.randn(1, 70, 2, 128).half()[..., ::2].detach().requires_grad_()
    k = torch.randn(1, 1, 2, 64).half().expand(1, 70, 2, 64).detach().requires_grad_()
    v = torch.randn(1, 70, 2, 64).half().requires_grad_()
    assert not launching.is_mapped(q) and not launching.is_mapped(k) and launching.is_mapped(v)
    compare([q, k, v], [quasar_ops.flash_attention(q, k, v)], softmax(q, k, v, False)[:1], 2e-3)


def test_flash_packed_sequences_on_hopper(hopper):
    test_flash_packed_sequences()


def test_flash_packed_sequences():
    bounds = [0, 0, 33, 34, 150]
    q, k, v = make(*[(1, 150, 2, 64)] * 3, dtype=torch.bfloat16)
    o = quasar_ops.flash_attention(q, k, v, True, cu_seqlens=torch.tensor(bounds))
    compare([q, k, v], [o], softmax(q, k, v, True, bounds=bounds)[:1], 1e-2)
