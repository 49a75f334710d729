"""Configurations that tuning found, as `quasar export` writes them: used where they belong, and nowhere else."""
import pytest
import torch

from fla.ops.quasar import cuda_backend, loader
from fla.ops.quasar import tuned


@pytest.fixture
def configurations(monkeypatch):
    """For the kernels that are here."""
    import hashlib
    found = {("NVIDIA H200", "upstream", "bfloat16", 64, 8, 16): (64, 1, 2, 4, 3, 33)}
    monkeypatch.setattr(tuned, "CONFIGURATIONS", found)
    monkeypatch.setattr(tuned, "KERNELS", hashlib.sha256(loader.sources()).hexdigest())
    cuda_backend.tuned_for_these_kernels.cache_clear()
    yield found
    cuda_backend.tuned_for_these_kernels.cache_clear()


NOTHING = (0,) * 6


def test_a_fork_begins_without():
    assert tuned.CONFIGURATIONS == {} and not cuda_backend.tuned_for_these_kernels()


@pytest.mark.parametrize("tokens, found", [(65535, False), (65536, True), (100000, True), (131071, True), (131072, False)])
def test_found_by_length(configurations, tokens, found):
    result = cuda_backend.tuned_configuration("NVIDIA H200", 64, torch.bfloat16, 1, 8, tokens)
    assert result == ((64, 1, 2, 4, 3, 33) if found else NOTHING)


@pytest.mark.parametrize("problem", [("NVIDIA H100", 64, torch.bfloat16, 1, 8), ("NVIDIA H200", 128, torch.bfloat16, 1, 8),
                                     ("NVIDIA H200", 64, torch.float16, 1, 8), ("NVIDIA H200", 64, torch.bfloat16, 0, 8),
                                     ("NVIDIA H200", 64, torch.bfloat16, 1, 16)])
def test_another_problem_has_none(configurations, problem):
    assert cuda_backend.tuned_configuration(*problem, 100000) == NOTHING


def test_with_other_kernels_none_is_used(configurations, monkeypatch):
    monkeypatch.setattr(tuned, "KERNELS", "0" * 64)
    cuda_backend.tuned_for_these_kernels.cache_clear()
    assert cuda_backend.tuned_configuration("NVIDIA H200", 64, torch.bfloat16, 1, 8, 100000) == NOTHING
