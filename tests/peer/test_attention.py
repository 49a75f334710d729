"""Operations and their gradients, on the CPU and on a GPU if there is one, against PyTorch's."""
import math
import pathlib
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
NO_DEVICE = 77
NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}

# batch, tokens, heads, heads of the keys, head dimension, causal, type
PROBLEMS = [
    (1, 300, 4, 4, 64, True, torch.bfloat16),
    (2, 129, 6, 2, 128, False, torch.bfloat16),
    (1, 257, 4, 1, 64, True, torch.float16),
    (2, 65, 2, 2, 32, True, torch.float32),
]


@pytest.fixture(scope="module")
def operate(tmp_path_factory):
    """Runs an operation of ours: operate(device, op, problem, inputs, shapes and types of the outputs)."""
    program = tmp_path_factory.mktemp("operate") / "operate"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{ROOT}/lib", f"-I{ROOT}", f"-I{ROOT}/kernels", "-o", program,
                    ROOT / "tests/peer/operate.c", ROOT / "build/libquasar.a", "-fopenmp", "-lcurl", "-lgit2", "-lcjson",
                    "-lsqlite3", "-lsodium", "-ldl", "-lpthread", "-lm"], check=True)

    def run(device, op, problem, inputs, outputs):
        batch, tokens, heads, key_heads, dim, causal, dtype = problem
        semantics = {True: "causal", False: "bidirectional"}.get(causal, causal)
        sent = b"".join(x.contiguous().view(torch.uint8).numpy().tobytes() for x in inputs)
        done = subprocess.run(
            [program, device, op, semantics, NAMES[dtype],
             *map(str, (batch, tokens, heads, key_heads, dim, dim))], input=sent, capture_output=True)
        if done.returncode == NO_DEVICE:
            pytest.skip(done.stderr.decode())
        assert done.returncode == 0, done.stderr
        results, at = [], 0
        for shape, kind in outputs:
            size = math.prod(shape) * kind.itemsize
            results.append(torch.frombuffer(bytearray(done.stdout[at:at + size]), dtype=kind).view(shape))
            at += size
        assert at == len(done.stdout)
        return results

    return run


def theirs(q, k, v, d_o, causal):
    """O and the gradients in the type of the inputs, which are [B, T, H, S]."""
    leaves = [x.detach().transpose(1, 2).clone().requires_grad_() for x in (q, k, v)]
    o = torch.nn.functional.scaled_dot_product_attention(*leaves, is_causal=causal, enable_gqa=True)
    o.backward(d_o.transpose(1, 2))
    return [x.transpose(1, 2) for x in (o.detach(), *(leaf.grad for leaf in leaves))]


def error(found, exact):
    return ((found.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_errors_are_no_larger_than_pytorchs(operate, problem, device):
    batch, tokens, heads, key_heads, dim, causal, dtype = problem
    if device == "cuda" and dtype == torch.float32:
        pytest.skip("the GPU computes in bf16 and fp16")
    torch.manual_seed(5)
    many, few = (batch, tokens, heads, dim), (batch, tokens, key_heads, dim)
    q, k, v, d_o = (torch.randn(shape).to(dtype) for shape in (many, few, few, many))
    exact = theirs(*(x.double() for x in (q, k, v, d_o)), causal)
    peers = theirs(q, k, v, d_o, causal)
    o, lse = operate(device, "flash", problem, [q, k, v],
                     [(many, dtype), ((batch, heads, tokens), torch.float32)])
    gradients = operate(device, "flash-backward", problem, [q, k, v, o, d_o, lse],
                        [(many, dtype), (few, dtype), (few, dtype)])
    for name, ours, peer, truth in zip(("o", "dq", "dk", "dv"), [o, *gradients], peers, exact):
        assert error(ours, truth) <= 1.5 * error(peer, truth), name

    scores = torch.einsum("bihs,bjhs->bhij", q.double(), k.double().repeat_interleave(heads // key_heads, 2)) / dim ** 0.5
    if causal:
        scores += torch.full((tokens, tokens), -math.inf).triu(1)
    assert error(lse, scores.logsumexp(-1)) < 1e-5


# --- linear attention ------------------------------------------------------------------------------------

LINEAR_PROBLEMS = [
    (1, 200, 4, 4, 64, True, torch.bfloat16),
    (2, 129, 2, 2, 128, False, torch.bfloat16),
    (1, 130, 2, 2, 32, True, torch.float16),
    (1, 100, 2, 2, 64, False, torch.float32),
]


def their_linear(q, k, v, d_o, causal):
    """Normalised, with elu + 1, as PyTorch's own functions make it."""
    leaves = [x.detach().transpose(1, 2).clone().requires_grad_() for x in (q, k, v)]
    features_q, features_k = (torch.nn.functional.elu(x) + 1 for x in leaves[:2])
    if causal:
        scores = (features_q @ features_k.transpose(2, 3)).tril()
        o = scores @ leaves[2] / scores.sum(3, keepdim=True)
    else:
        o = features_q @ (features_k.transpose(2, 3) @ leaves[2]) / (features_q @ features_k.sum(2).unsqueeze(3))
    o.backward(d_o.transpose(1, 2))
    return [x.transpose(1, 2) for x in (o.detach(), *(leaf.grad for leaf in leaves))]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("problem", LINEAR_PROBLEMS, ids=str)
def test_errors_of_linear_attention_are_no_larger_than_pytorchs(operate, problem, device):
    batch, tokens, heads, _, dim, causal, dtype = problem
    torch.manual_seed(6)
    shape, rows = (batch, tokens, heads, dim), ((batch, heads, tokens), torch.float32)
    sums = [((batch, heads, dim, dim), torch.float32), ((batch, heads, dim), torch.float32)]
    inputs = [torch.randn(shape).to(dtype) for _ in range(4)]
    exact = their_linear(*(x.double() for x in inputs), causal)
    peers = their_linear(*inputs, causal)
    o, divisor, *_ = operate(device, "linear", problem, inputs[:3], [(shape, dtype), rows, *sums])
    gradients = operate(device, "linear-backward", problem, [*inputs[:3], o, inputs[3], divisor],
                        [*[(shape, dtype)] * 3, *sums])
    for name, ours, peer, truth in zip(("o", "dq", "dk", "dv"), [o, *gradients], peers, exact):
        assert error(ours, truth) <= 1.5 * error(peer, truth), name


# --- QuasarAttention -------------------------------------------------------------------------------------

CHUNK = 64


def walk(state, k, v, alpha):
    """The state [B, H, S, S] behind rows [B, H, N, S], one after the other."""
    for row in range(k.shape[2]):
        key = k[:, :, row, :, None]
        change = v[:, :, row, None] - key.mT @ state
        state = state + alpha[:, :, row, None, None] * key * change
    return state


def their_quasar(q, k, v, beta, semantics):
    """Of [B, T, H, S] and [H] as the formulas stand."""
    batch, tokens, heads, dim = q.shape
    padded = [torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -tokens % CHUNK)) for x in (q, k, v)]
    q, k, v = (x.reshape(batch, heads, -1, dim) if semantics == "upstream" else x.transpose(1, 2) for x in padded)
    length = (k * k).sum(-1)
    alpha = -torch.expm1(-beta[:, None] * length) / (length + 1e-8)
    state, rows = q.new_zeros(batch, heads, dim, dim), []
    for at in range(0, q.shape[2], CHUNK if semantics == "upstream" else 1):
        part = slice(at, at + (CHUNK if semantics == "upstream" else 1))
        state = walk(state, k[:, :, part], v[:, :, part], alpha[:, :, part])
        met = walk(state, k[:, :, part], v[:, :, part], alpha[:, :, part]) if semantics == "upstream" else state
        rows.append(q[:, :, part] @ met)
    return torch.cat(rows, 2).transpose(1, 2)[:, :tokens]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("problem", [(2, 130, 3, 3, 32, "causal", torch.float32), (2, 130, 3, 3, 32, "upstream", torch.float32),
                                     (1, 64, 2, 2, 64, "causal", torch.bfloat16), (1, 70, 2, 2, 64, "upstream", torch.bfloat16)],
                         ids=str)
def test_the_gradient_of_quasar_attention_is_autograds(operate, problem, device):
    batch, tokens, heads, _, dim, semantics, dtype = problem
    if device == "cuda" and dtype == torch.float32:
        pytest.skip("the GPU computes in bf16")
    torch.manual_seed(7)
    shape = batch, tokens, heads, dim
    q, k, v, d_o = (torch.randn(shape).mul(scale).to(dtype) for scale in (1, 0.2, 1, 1))
    beta = 0.5 + torch.rand(heads)
    leaves = [x.double().requires_grad_() for x in (q, k, v, beta)]
    their_quasar(*leaves, semantics).backward(d_o.double())
    *rows, d_beta, _ = operate(device, "quasar-backward", problem, [q, k, v, d_o, beta],
                               [*[(shape, dtype)] * 3, ((heads,), torch.float32), ((batch, heads, dim, dim), torch.float32)])
    for found, leaf in zip(rows, leaves):
        assert error(found, leaf.grad) < (1e-5 if dtype == torch.float32 else 3e-3 if device == "cpu" else 1e-2)
    assert error(d_beta, leaves[3].grad) < (1e-5 if device == "cpu" else 4e-2)
