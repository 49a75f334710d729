"""chunk_quasar and fused_recurrent_quasar against the fp64 references: fp64 on the torch back end, the rest on each
back end that can run here."""
import warnings

import pytest
import reference
import torch
from fla.ops.quasar import backend, chunk_quasar, fused_recurrent_quasar, torch_backend
from fla.ops.quasar.forward_substitution import forward_substitution, forward_substitution_kernel
from fla.ops.quasar.forward_substitution import quasar_forward_substitution
from fla.ops.quasar.gate import fused_quasar_gate, naive_quasar_gate, quasar_gate_fwd
from fla.ops.utils.index import prepare_chunk_indices

LIMITS = {torch.float32: reference.FP32_LIMIT, torch.bfloat16: 1e-2, torch.float16: 3e-3}


def make(batch, tokens, heads, size, dtype=torch.float32, scale=0.5):
    q, k, v = (torch.randn(batch, tokens, heads, size).mul(scale).to(dtype) for _ in range(3))
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    return q, k, v, torch.rand(heads, dtype=wide) + 0.5, torch.randn(batch, heads, size, size, dtype=wide)


def assert_close(results, expected, limit):
    for result, correct in zip(results, expected):
        assert result.shape == correct.shape
        assert reference.error(result, correct) < limit


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 130, 300])
def test_reference(semantics, tokens, compute):
    q, k, v, beta, state = make(2, tokens, 3, 32)
    o, after = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert o.dtype == torch.float32 and after.dtype == torch.float32
    assert_close((o, after), reference.operation(semantics, q, k, v, beta, state), reference.FP32_LIMIT)


@pytest.mark.parametrize("heads", [1, 5, 8, 16])
def test_heads(semantics, heads, compute):
    q, k, v, beta, _ = make(1, 200, heads, 32)
    results = chunk_quasar(q, k, v, beta, None, True, semantics=semantics)
    assert_close(results, reference.operation(semantics, q, k, v, beta), reference.FP32_LIMIT)


@pytest.mark.parametrize("size", [8, 80])
def test_other_head_dimensions(semantics, size):
    q, k, v, beta, state = make(1, 100, 2, size, scale=0.3)
    results = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert_close(results, reference.operation(semantics, q, k, v, beta, state), reference.FP32_LIMIT)


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("dtype", LIMITS)
def test_dtypes(semantics, dtype, size, compute):
    q, k, v, beta, state = make(1, 150, 4, size, dtype, 0.4)
    o, after = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert o.dtype == dtype
    assert_close((o, after), reference.operation(semantics, q, k, v, beta, state), LIMITS[dtype])


def test_nearly_parallel_keys(semantics, compute):
    q, k, v, beta, state = make(1, 256, 2, 64)
    k = torch.randn(1, 1, 2, 64) + 1e-3 * k
    results = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert_close(results, reference.operation(semantics, q, k, v, beta, state), 1e-4)


@pytest.mark.parametrize("scale", [0.0, 1e-7, 10.0])
def test_extreme_keys(semantics, scale, compute):
    q, k, v, beta, state = make(1, 100, 2, 32)
    k = k * scale
    results = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert_close(results, reference.operation(semantics, q, k, v, beta, state), reference.FP32_LIMIT)


def test_empty(semantics):
    q, k, v, beta, state = make(2, 0, 3, 32)
    o, after = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert o.shape == q.shape and torch.equal(after, state)
    o, after = chunk_quasar(q, k, v, beta, None, True, semantics=semantics)
    assert torch.equal(after, torch.zeros_like(state))


def test_no_final_state_unless_asked_for(semantics):
    assert chunk_quasar(*make(1, 10, 2, 32)[:4], semantics=semantics)[1] is None


def test_recurrent_agrees_with_chunks():
    q, k, v, beta, state = make(2, 100, 3, 32, torch.float64)
    assert_close(fused_recurrent_quasar(q, k, v, beta, state, True),
                 chunk_quasar(q, k, v, beta, state, True, semantics="causal"), 1e-12)


@pytest.mark.parametrize("cut", [1, 37, 64, 128])
def test_two_calls_are_one(cut):
    q, k, v, beta, state = make(2, 150, 3, 32, torch.float64)
    o, after = chunk_quasar(q, k, v, beta, state, True, semantics="causal")
    first, between = chunk_quasar(*(x[:, :cut] for x in (q, k, v)), beta, state, True, semantics="causal")
    second, last = chunk_quasar(*(x[:, cut:] for x in (q, k, v)), beta, between, True, semantics="causal")
    assert_close((torch.cat([first, second], 1), last), (o, after), 1e-12)


@pytest.mark.parametrize("operation", [lambda *args: chunk_quasar(*args, semantics="causal"), fused_recurrent_quasar])
def test_packed_sequences(operation):
    q, k, v, beta, _ = make(1, 200, 3, 32, torch.float64)
    bounds = [0, 64, 64, 101, 200]
    states = torch.randn(4, 3, 32, 32, dtype=torch.float64)
    o, after = operation(q, k, v, beta, states, True, torch.tensor(bounds))
    for i, (first, end) in enumerate(zip(bounds, bounds[1:])):
        results = operation(*(x[:, first:end] for x in (q, k, v)), beta, states[i:i + 1], True, None)
        assert_close((o[:, first:end], after[i:i + 1]), results, 1e-12)


def test_one_packed_sequence(semantics):
    q, k, v, beta, state = make(1, 100, 3, 32)
    expected = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert_close(chunk_quasar(q, k, v, beta, state, True, torch.tensor([0, 100]), semantics), expected, 1e-12)


def test_strides(semantics, compute):
    batch, tokens, heads, size = 2, 70, 3, 32
    q, k, v = (torch.randn(batch, heads, tokens, 2 * size)[..., ::2].transpose(1, 2) for _ in range(3))
    beta = (torch.rand(2 * heads) + 0.5)[::2]
    state = torch.randn(batch, heads, size, size).mT
    results = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    assert_close(results, reference.operation(semantics, q, k, v, beta, state), reference.FP32_LIMIT)


def test_autocast_changes_nothing(semantics, compute, autocast):
    arguments = make(1, 100, 3, 32)
    expected = chunk_quasar(*arguments, True, semantics=semantics)
    with autocast:
        results = chunk_quasar(*arguments, True, semantics=semantics)
    assert all(map(torch.equal, results, expected))


def test_small_parts_are_one(semantics, monkeypatch):
    q, k, v, beta, state = make(2, 300, 3, 32, torch.float64)
    expected = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    monkeypatch.setattr(torch_backend, "ROWS", 1)
    assert_close(chunk_quasar(q, k, v, beta, state, True, semantics=semantics), expected, 1e-12)


def test_first_rows():
    """A segment of a sequence is what the whole sequence has there."""
    heads, size, tokens, first = 3, 32, 200, 64
    q, k, v, beta, _ = make(1, 256, heads, size, torch.float64)
    whole, _ = chunk_quasar(q, k, v, beta)
    _, state = torch_backend.forward(q, k, v, beta, None, "upstream", torch.tensor([0, 256, 512]), first)
    out = torch.empty(1, tokens - first, heads, size, dtype=torch.float64)
    first_rows = torch.tensor([first, 256 + first, 512 + first])
    o, _ = torch_backend.forward(q, k, v, beta, state, "upstream", first_rows, tokens - first, out)
    assert o.data_ptr() == out.data_ptr()
    assert_close([out], [whole[:, first:tokens]], 1e-12)


def test_scan():
    p, r, state = torch.randn(2, 3, 11, 4, 4).double(), torch.randn(2, 3, 11, 4, 4).double(), torch.zeros(2, 3, 4, 4)
    before, after = torch_backend.scan(p, r, state.double())
    state = state.double()
    for i in range(11):
        torch.testing.assert_close(before[:, :, i], state)
        state = p[:, :, i] @ state + r[:, :, i]
    torch.testing.assert_close(after, state)


def test_compile(semantics, compute):
    arguments = make(1, 100, 2, 32)
    compiled = torch.compile(lambda q, *rest: chunk_quasar(2 * q, *rest, True, semantics=semantics)[0] + 1,
                             backend="eager")
    q, *rest = arguments
    assert torch.equal(compiled(*arguments), chunk_quasar(2 * q, *rest, True, semantics=semantics)[0] + 1)


@pytest.mark.parametrize("change, message", [
    ({"semantics": "both"}, "neither upstream nor causal"),
    ({"k": torch.zeros(1, 10, 2, 16)}, "one shape"),
    ({"v": torch.zeros(1, 10, 2, 32).half()}, "one dtype"),
    ({"beta": torch.ones(3)}, r"beta must have shape \[2\]"),
    ({"initial_state": torch.zeros(2, 2, 32, 32)}, r"must have shape \[1, 2, 32, 32\]"),
    ({"cu_seqlens": torch.tensor([0, 5, 10])}, 'need semantics="causal"'),
    ({"cu_seqlens": torch.tensor([0, 5, 9]), "semantics": "causal"}, "rise from 0 to T = 10"),
    ({"cu_seqlens": torch.tensor([0, 8, 5, 10]), "semantics": "causal"}, "rise from 0 to T = 10"),
])
def test_wrong_arguments(change, message):
    q, k, v, beta, _ = make(1, 10, 2, 32)
    with pytest.raises(ValueError, match=message):
        chunk_quasar(**{"q": q, "k": k, "v": v, "beta": beta, **change})


# --- the other public names ---------------------------------------------------------------------------------


def test_gates_agree():
    beta, squares = torch.rand(3) + 0.5, torch.rand(2, 5, 3, 1)
    expected = (1 - torch.exp(-beta.double().view(-1, 1) * squares.double())) / (squares.double() + 1e-8)
    for alpha in (naive_quasar_gate(beta, squares), quasar_gate_fwd(squares, beta), fused_quasar_gate(squares, beta)):
        torch.testing.assert_close(alpha, expected.float())
    assert fused_quasar_gate(squares, beta, torch.bfloat16).dtype == torch.bfloat16
    tiny = torch.full((1, 3, 1), 1e-6)  # 1 - exp(-x) would be some 5 % off
    torch.testing.assert_close(naive_quasar_gate(beta, tiny)[0, :, 0], beta / 1.01)


def test_inverses_agree():
    lower = torch.eye(64) + torch.randn(2, 3, 64, 64).mul(0.1).tril(-1)
    for invert in (forward_substitution, quasar_forward_substitution, forward_substitution_kernel):
        torch.testing.assert_close(invert(lower) @ lower, torch.eye(64).expand(2, 3, 64, 64), atol=1e-4, rtol=0)
    assert forward_substitution(lower.bfloat16()).dtype == torch.bfloat16
    lower = lower.double()[:1, :1].requires_grad_()
    assert torch.autograd.gradcheck(quasar_forward_substitution, lower, fast_mode=True)


def test_chunk_indices():
    assert prepare_chunk_indices(torch.tensor([0, 64, 65, 200]), 64).tolist() == [
        [0, 0], [1, 0], [2, 0], [2, 1], [2, 2]]


# --- which back end -----------------------------------------------------------------------------------------


class Kernels:
    """A back end that works or does not."""

    def __init__(self, reason=None):
        self.reason = reason

    def unavailable(self, device):
        return self.reason


@pytest.fixture
def backends(monkeypatch):
    """Sets what the back ends with kernels say of themselves."""

    def with_reasons(cuda, triton):
        monkeypatch.setattr(backend, "BACKENDS", {"cuda": Kernels(cuda), "triton": Kernels(triton),
                                                  "torch": torch_backend})
        backend.select.cache_clear()

    monkeypatch.delenv("QUASAR_BACKEND", raising=False)
    yield with_reasons
    backend.select.cache_clear()


GPU = torch.device("cuda", 0)  # there need not be one


def chosen(device=GPU, dtype=torch.bfloat16, size=64):
    found = backend.choose(device, dtype, size)
    return next(name for name, module in backend.BACKENDS.items() if module is found)


def test_first_that_can(backends):
    backends(None, None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen() == "cuda"


def test_lower_one_is_said_once(backends):
    backends("too old", None)
    with pytest.warns(UserWarning, match=r"runs on its triton back end \(cuda: too old\)") as caught:
        assert chosen() == "triton"
        assert chosen() == "triton"
    assert len(caught) == 1


@pytest.mark.parametrize("dtype, size, message", [
    (torch.float64, 64, "no kernels for torch.float64"), (torch.bfloat16, 80, "head dimension of 80")])
def test_no_kernels_for_it(backends, dtype, size, message):
    backends(None, None)
    with pytest.warns(UserWarning, match=f"torch back end .*{message}"):
        assert chosen(dtype=dtype, size=size) == "torch"


def test_nothing_to_say_on_a_cpu(backends):
    backends("no GPU", "no GPU")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen(torch.device("cpu")) == "torch"


def test_forced(backends, monkeypatch):
    backends("too old", None)
    monkeypatch.setenv("QUASAR_BACKEND", "torch")
    assert chosen() == "torch"
    monkeypatch.setenv("QUASAR_BACKEND", "cuda")
    with pytest.raises(RuntimeError, match="QUASAR_BACKEND=cuda: too old"):
        chosen()
    monkeypatch.setenv("QUASAR_BACKEND", "opencl")
    with pytest.raises(ValueError, match="choose from cuda, triton, torch"):
        chosen()
