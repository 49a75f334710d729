"""quasar_ops, with a real PyTorch: against the formulas in fp64, by kernels where there is a GPU and they take the problem."""
import pytest
import reference
import torch
import torch.nn.functional as F

import quasar_ops

LIMITS = {torch.float64: 1e-10, torch.float32: reference.FP32_LIMIT, torch.bfloat16: 1e-2, torch.float16: 2e-3}
FEATURES = {"elu+1": lambda x: F.elu(x) + 1, "relu": torch.relu, "squared-relu": lambda x: torch.relu(x).square(),
            "exp": torch.exp, "identity": lambda x: x}


def linear(q, k, v, causal, feature, normalised, state=None, total=None):
    """As the formula stands; every score is made."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    q, k = FEATURES[feature](q), FEATURES[feature](k)
    scores = q @ k.mT
    scores = scores.tril() if causal else scores
    numerator, divisor = scores @ v, scores.sum(-1)
    last, last_sum = k.mT @ v, k.sum(-2)
    if state is not None:
        numerator, last = numerator + q @ state.double(), last + state.double()
    if total is not None:
        divisor, last_sum = divisor + (q @ total.double()[..., None])[..., 0], last_sum + total.double()
    o = numerator / divisor[..., None] if normalised else numerator
    return o.transpose(1, 2), last, last_sum


def softmax(q, k, v, causal, scale=None, bounds=None):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    token = torch.arange(q.shape[2])
    seen = token[:, None] >= token if causal else torch.ones(len(token), len(token), dtype=torch.bool)
    if bounds is not None:
        of = torch.bucketize(token, torch.tensor(bounds[1:-1], dtype=torch.long), right=True)
        seen = seen & (of[:, None] == of)
    scores = scores.masked_fill(~seen, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


def make(*shapes, dtype=torch.float32):
    return [torch.randn(shape).to(dtype).requires_grad_() for shape in shapes]


def compare(inputs, results, expected, limit):
    """The results, and the gradients of a random loss of them."""
    losses = [0, 0]
    for result, correct in zip(results, expected):
        assert result.shape == correct.shape and reference.error(result, correct) < limit
        weight = torch.randn(correct.shape, dtype=torch.float64)
        if result.requires_grad:
            losses = [loss + (x.double() * weight).sum() for loss, x in zip(losses, (result, correct))]
    inputs = [x for x in inputs if x is not None]
    for x, ours, right in zip(inputs, *(torch.autograd.grad(loss, inputs) for loss in losses)):
        assert ours.shape == x.shape and ours.dtype == x.dtype
        assert (ours.double() - right).norm() < 3 * limit * (right.double().norm() + 1)  # which may be 0


# --- linear attention -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("causal", [False, True])
def test_linear(causal, feature, normalised):
    if feature == "identity" and normalised:
        pytest.skip("what is divided by may be 0")
    q, k, v = make((2, 150, 3, 32), (2, 150, 3, 32), (2, 150, 3, 64))
    o = quasar_ops.linear_attention(q, k, v, causal, feature, normalised)
    limit = 10 * LIMITS[q.dtype]
    compare([q, k, v], [o], linear(q, k, v, causal, feature, normalised)[:1], limit)


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens", [1, 16, 17, 500])
def test_linear_states(causal, normalised, tokens):
    q, k, v = make(*[(2, tokens, 2, 32)] * 3)
    state, total = torch.randn(2, 2, 32, 32).requires_grad_(), (torch.rand(2, 2, 32) + 0.5).requires_grad_()
    results = quasar_ops.linear_attention(q, k, v, causal, "elu+1", normalised, state, total, True)
    assert [x.dtype for x in results] == [torch.float32] * 3
    compare([q, k, v, state, total], results, linear(q, k, v, causal, "elu+1", normalised, state, total), 4 * LIMITS[q.dtype])


@pytest.mark.parametrize("dtype", LIMITS)
@pytest.mark.parametrize("key_dim, value_dim", [(64, 64), (128, 32), (24, 40)])
def test_linear_types_and_sizes(dtype, key_dim, value_dim):
    q, k, v = make((1, 200, 2, key_dim), (1, 200, 2, key_dim), (1, 200, 2, value_dim), dtype=dtype)
    o = quasar_ops.linear_attention(q, k, v, causal=True)
    assert o.dtype == dtype
    compare([q, k, v], [o], linear(q, k, v, True, "elu+1", True)[:1], 4 * LIMITS[dtype])


@pytest.mark.parametrize("causal", [False, True])
def test_linear_strides(causal):
    """Of views as models have them: heads before tokens, parts of one projection, every second element, one key for all."""
    whole = torch.randn(2, 70, 3 * 4 * 32)
    q = whole[..., :128].unflatten(-1, (4, 32))
    k = torch.randn(2, 4, 70, 64)[..., ::2].transpose(1, 2)
    v = torch.randn(2, 70, 1, 32).expand(2, 70, 4, 32)
    inputs = [x.detach().requires_grad_() for x in (q, k, v)]
    assert not any(x.is_contiguous() for x in inputs)
    o = quasar_ops.linear_attention(*inputs, causal)
    compare(inputs, [o], linear(*inputs, causal, "elu+1", True)[:1], 4 * LIMITS[q.dtype])


def test_linear_in_two_calls():
    q, k, v = make(*[(1, 150, 2, 32)] * 3, dtype=torch.float64)
    o, state, total = quasar_ops.linear_attention(q, k, v, True, output_final_state=True)
    first, s, z = quasar_ops.linear_attention(*(x[:, :61] for x in (q, k, v)), True, output_final_state=True)
    second, s, z = quasar_ops.linear_attention(*(x[:, 61:] for x in (q, k, v)), True, initial_state=s, initial_sum=z,
                                               output_final_state=True)
    for ours, whole in ((torch.cat([first, second], 1), o), (s, state), (z, total)):
        torch.testing.assert_close(ours, whole)


@pytest.mark.parametrize("shape", [(0, 5, 2, 32), (1, 0, 2, 32)])
def test_empty(shape):
    q, k, v = make(shape, shape, shape)
    for o in (quasar_ops.linear_attention(q, k, v), quasar_ops.flash_attention(q, k, v)):
        assert o.shape == shape
        o.sum().backward()


# --- attention ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tokens, heads", [(1, 3), (64, 3), (65, 3), (300, 3), (129, 70)])  # 70: as 100 below
@pytest.mark.parametrize("dtype", LIMITS)
def test_flash(causal, tokens, heads, dtype):
    q, k, v = make(*[(2, tokens, heads, 64)] * 3, dtype=dtype)
    o, lse = quasar_ops.flash_attention(q, k, v, causal, return_lse=True)
    assert o.dtype == dtype and not lse.requires_grad
    compare([q, k, v], [o, lse], softmax(q, k, v, causal), LIMITS[dtype])


@pytest.mark.parametrize("causal", [False, True])
def test_flash_beside_pytorch(causal):
    """No further from the formula than PyTorch's own, times 1.5."""
    q, k, v = make(*[(1, 512, 4, 64)] * 3, dtype=torch.bfloat16)
    right, _ = softmax(q, k, v, causal)
    theirs = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=causal).transpose(1, 2)
    ours = quasar_ops.flash_attention(q, k, v, causal)
    weight = torch.randn(right.shape, dtype=torch.float64)
    grads = [torch.autograd.grad((o.double() * weight).sum(), (q, k, v)) for o in (ours, theirs, right)]
    for our, their, correct in zip((ours, *grads[0]), (theirs, *grads[1]), (right, *grads[2])):
        assert reference.error(our, correct) <= 1.5 * reference.error(their, correct)


@pytest.mark.parametrize("size", [32, 80, 128])
@pytest.mark.parametrize("heads, key_heads", [(6, 2), (4, 1)])
def test_flash_grouped_heads(heads, key_heads, size):
    q, k, v = make((2, 130, heads, size), (2, 130, key_heads, size), (2, 130, key_heads, size), dtype=torch.float16)
    compare([q, k, v], [quasar_ops.flash_attention(q, k, v, True)], softmax(q, k, v, True)[:1], LIMITS[q.dtype])


@pytest.mark.parametrize("heads", [4, 100])  # 100: enough for the largest blocks to fill a GPU
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bounds", [[0, 150], [0, 0, 1, 70, 70, 150, 150]])
def test_flash_packed_sequences(causal, bounds, heads):
    q, k, v = make((1, 150, heads, 64), (1, 150, 2, 64), (1, 150, 2, 64), dtype=torch.bfloat16)
    results = quasar_ops.flash_attention(q, k, v, causal, cu_seqlens=torch.tensor(bounds), return_lse=True)
    compare([q, k, v], results, softmax(q, k, v, causal, bounds=bounds), LIMITS[q.dtype])


def test_flash_scale_and_strides():
    q = torch.randn(2, 4, 100, 64, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()
    k = torch.randn(2, 100, 2, 128, dtype=torch.bfloat16)[..., ::2].detach().requires_grad_()
    v = torch.randn(2, 100, 1, 64, dtype=torch.bfloat16).expand(2, 100, 2, 64).detach().requires_grad_()
    o = quasar_ops.flash_attention(q, k, v, scale=0.05)
    compare([q, k, v], [o], softmax(q, k, v, False, 0.05)[:1], LIMITS[q.dtype])


# --- both -----------------------------------------------------------------------------------------------------


def test_the_same_bits_every_time():
    q, k, v = make(*[(1, 400, 2, 64)] * 3, dtype=torch.bfloat16)
    for operation in (quasar_ops.linear_attention, quasar_ops.flash_attention):
        runs = []
        for _ in range(2):
            o = operation(q, k, v, causal=True)
            runs.append((o, *torch.autograd.grad(o.float().square().sum(), (q, k, v))))
        assert all(map(torch.equal, *runs))


def test_gradients_by_differences():
    q, k, v = make(*[(1, 5, 2, 3)] * 3, dtype=torch.float64)
    state, total = torch.randn(1, 2, 3, 3, dtype=torch.float64), torch.rand(1, 2, 3, dtype=torch.float64)
    for causal in (False, True):
        assert torch.autograd.gradcheck(lambda *x: quasar_ops.linear_attention(*x, output_final_state=True), (
            q, k, v, causal, "elu+1", True, state.requires_grad_(), total.requires_grad_()))
        assert torch.autograd.gradcheck(quasar_ops.flash_attention, (q, k, v, causal))


def test_autocast_changes_nothing(autocast):
    q, k, v = make(*[(1, 100, 2, 32)] * 3)
    for operation in (quasar_ops.linear_attention, quasar_ops.flash_attention):
        expected = operation(q, k, v)
        with autocast:
            o = operation(q, k, v)
        assert torch.equal(o, expected)
        assert all(map(torch.equal, *(torch.autograd.grad(x.sum(), (q, k, v)) for x in (o, expected))))


def test_pytorch_may_trace_them():
    """Shapes without values, for torch.compile and torch.export."""
    q, k, v = make(*[(1, 40, 2, 32)] * 3, dtype=torch.bfloat16)
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    linear, flash = (getattr(torch.ops.quasar_ops, name).default for name in quasar_ops.__all__[::-1])
    torch.library.opcheck(linear, (q, k, v, None, None, True, 0, True), test_utils=checks)
    torch.library.opcheck(flash, (q, k, v, True, 0.2, None), test_utils=checks)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
@pytest.mark.parametrize("operation", [quasar_ops.linear_attention, quasar_ops.flash_attention])
def test_a_cuda_graph_replays_them(operation):
    q, k, v = (x.detach() for x in make(*[(1, 200, 2, 64)] * 3, dtype=torch.bfloat16))
    operation(q, k, v, True)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = operation(q, k, v, True)
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(o, operation(q, k, v, True))


def test_a_second_derivative_is_refused():
    q, k, v = make(*[(1, 4, 1, 32)] * 3)
    grad, = torch.autograd.grad(quasar_ops.flash_attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), k)


BAD = [
    (quasar_ops.linear_attention, ((1, 4, 2, 32), (1, 4, 2, 64), (1, 4, 2, 32)), {}, "q and k must have one shape"),
    (quasar_ops.linear_attention, ((1, 4, 2, 32), (1, 4, 2, 32), (1, 5, 2, 32)), {}, "as many tokens"),
    (quasar_ops.linear_attention, ((4, 2, 32),) * 3, {}, r"must be \[batch, tokens, heads, size\]"),
    (quasar_ops.linear_attention, ((1, 4, 2, 32),) * 3, {"feature": "tanh"}, "choose from elu"),
    (quasar_ops.linear_attention, ((1, 4, 2, 32),) * 3, {"initial_state": torch.zeros(1, 2, 32, 32)}, "both or neither"),
    (quasar_ops.linear_attention, ((1, 4, 2, 32),) * 3, {"initial_state": torch.zeros(1, 2, 32), "normalised": False},
     r"initial_state must have shape \[1, 2, 32, 32\]"),
    (quasar_ops.flash_attention, ((1, 4, 3, 32), (1, 4, 2, 32), (1, 4, 2, 32)), {}, "a multiple of"),
    (quasar_ops.flash_attention, ((1, 4, 2, 32),) * 3, {"scale": 0}, "must be positive"),
    (quasar_ops.flash_attention, ((1, 4, 2, 32),) * 3, {"cu_seqlens": [0, 3]}, "must rise from 0 to T = 4"),
    (quasar_ops.flash_attention, ((1, 4, 2, 32),) * 3, {"cu_seqlens": [0, 3, 2, 4]}, "must rise"),
    (quasar_ops.flash_attention, ((2, 4, 2, 32),) * 3, {"cu_seqlens": [0, 4]}, "a batch of 1"),
    (quasar_ops.flash_attention, ((1, 4, 2, 32),) * 3, {"cu_seqlens": (0, 4)}, "a tensor, not tuple"),
]


@pytest.mark.parametrize("operation, shapes, options, words", BAD)
def test_what_does_not_fit_is_refused(operation, shapes, options, words):
    options = {name: torch.tensor(x) if isinstance(x, list) else x for name, x in options.items()}
    with pytest.raises(ValueError, match=words):
        operation(*make(*shapes), **options)


def test_types_do_not_mix():
    q, k, v = make(*[(1, 4, 2, 32)] * 3)
    with pytest.raises(ValueError, match="one dtype"):
        quasar_ops.linear_attention(q, k.bfloat16(), v)
    with pytest.raises(ValueError, match="floating-point"):
        quasar_ops.flash_attention(q.int(), k.int(), v.int())
