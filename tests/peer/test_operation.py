"""The causal operation, with and without a gate, packed and not, against the gated delta rule of Transformers' Qwen3-Next,
which takes the step α of each token where we take β of each head."""
import pathlib
import subprocess

import pytest
import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
from transformers.models.qwen3_next.modeling_qwen3_next import torch_recurrent_gated_delta_rule

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def operation(tmp_path_factory):
    program = tmp_path_factory.mktemp("peer") / "operation"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-fopenmp", f"-I{ROOT}/lib", f"-I{ROOT}", f"-I{ROOT}/kernels",
                    "-o", program, ROOT / "tests/peer/operation.c", ROOT / "build/libquasar.a", "-lm"], check=True)
    return program


class Problem:
    def __init__(self, batch, tokens, heads, dim, gated, starts=None):
        torch.manual_seed(tokens)
        self.q, self.k, self.v = torch.randn(3, batch, tokens, heads, dim)
        self.beta = 0.5 + torch.rand(heads)
        self.starts = starts and torch.tensor(starts)
        self.sequences = len(starts) - 1 if starts else 0
        self.initial = torch.randn(self.sequences or batch, heads, dim, dim) / 2
        # as models have them: most near 0, some of a head that forgets fast
        self.gate = -torch.rand(batch, tokens, heads) * torch.logspace(-3, 1, heads) if gated else None

    def ours(self, program):
        sizes = torch.tensor([*self.q.shape, self.sequences, self.gate is not None])
        tensors = [sizes, self.q, self.k, self.v, self.beta, self.initial, self.gate, self.starts]
        done = subprocess.run([program], input=b"".join(x.numpy().tobytes() for x in tensors if x is not None),
                              capture_output=True)
        assert done.returncode == 0, done.stderr
        at, found = 0, []
        for dtype in (torch.float64, torch.float32):
            for like in (self.q, self.initial):
                found.append(torch.frombuffer(bytearray(done.stdout), dtype=dtype, offset=at, count=like.numel()).view_as(like))
                at += found[-1].nbytes
        return found

    def theirs(self, rule):
        length = (self.k.double() ** 2).sum(-1)
        alpha = (-torch.expm1(-self.beta.double() * length) / (length + 1e-8)).float()
        gate = torch.zeros_like(alpha) if self.gate is None else self.gate
        query = self.q * self.q.shape[-1] ** 0.5  # they divide by that
        bounds = [(slice(None), slice(None))] if self.starts is None else [
            (slice(None), slice(first, end)) for first, end in zip(self.starts[:-1], self.starts[1:])]
        parts = []
        for n, part in enumerate(bounds):
            state = self.initial if self.starts is None else self.initial[n:n + 1]
            parts.append(rule(query[part], self.k[part], self.v[part], gate[part], alpha[part],
                              initial_state=state, output_final_state=True))
        return torch.cat([o for o, _ in parts], 1), torch.cat([state for _, state in parts])


def off(ours, theirs):
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


@pytest.mark.parametrize("rule", [torch_recurrent_gated_delta_rule, torch_chunk_gated_delta_rule])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("starts", [None, [0, 1, 64, 130, 150]])
def test_it_is_the_gated_delta_rule(operation, rule, gated, starts):
    problem = Problem(1 if starts else 2, 150, 3, 64, gated, starts)
    o, state = problem.theirs(rule)
    reference_o, reference_state, cpu_o, cpu_state = problem.ours(operation)
    assert off(reference_o, o) < 1e-5 and off(reference_state, state) < 1e-5
    assert off(cpu_o, reference_o) < 1e-5 and off(cpu_state, reference_state) < 1e-5
