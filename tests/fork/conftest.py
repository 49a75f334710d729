"""Tests of the packages under fork/ and quasar_ops/, with a real PyTorch: on the GPU where there is one, else on the CPU."""
import os
import pathlib
import sys

import pytest
import torch

BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"
FORK = BUILD / "fork"  # as `make build/fork` assembles it
sys.path[:0] = [str(FORK), str(BUILD / "ops")]
torch.set_num_threads(1)  # the tensors are small, and tests may run side by side

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if GPU else torch.device("cpu")
if not GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # for test_triton.py, before Triton is imported

from fla.ops.quasar import backend

# Triton's interpreter, which could run on a CPU, is too slow for more than its own tests.
BACKENDS = [name for name, module in backend.BACKENDS.items()
            if (GPU or name == "torch") and module.unavailable(DEVICE) is None]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    """The same random numbers in each test, and tensors on the device."""
    if GPU:
        monkeypatch.delenv("QUASAR_BACKEND", raising=False)
    else:
        monkeypatch.setenv("QUASAR_BACKEND", "torch")
    torch.manual_seed(0)
    with DEVICE:
        yield


@pytest.fixture(params=["upstream", "causal"])
def semantics(request):
    return request.param


@pytest.fixture(params=BACKENDS)
def compute(request, monkeypatch):
    """Each back end that can run here, forced."""
    monkeypatch.setenv("QUASAR_BACKEND", request.param)
    return request.param


@pytest.fixture
def autocast():
    """As validators call the layer."""
    return torch.autocast(DEVICE.type, torch.bfloat16)
