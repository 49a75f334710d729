"""Gradients, against numeric ones in fp64 and against autograd through the fp64 references."""
import pytest
import plain
import reference
import torch
import torch.nn.functional as F
from fla.layers.quasar import QuasarAttention
from fla.ops.quasar import chunk_quasar, fused_layer, fused_recurrent_quasar, torch_backend


def make(batch, tokens, heads, size, dtype=torch.float64):
    shapes = [(batch, tokens, heads, size)] * 3 + [(heads,), (batch, heads, size, size)]
    values = [torch.randn(shape, dtype=torch.float64).mul(0.5) for shape in shapes]
    values[3] = values[3].exp()
    return [x.to(dtype).requires_grad_() for x in values]


@pytest.mark.parametrize("tokens", [1, 64, 65, 130])
def test_gradcheck(semantics, tokens):
    assert torch.autograd.gradcheck(lambda *x: chunk_quasar(*x, True, semantics=semantics),
                                    make(2, tokens, 3, 4), fast_mode=True)


def test_gradcheck_of_every_element(semantics):
    assert torch.autograd.gradcheck(lambda *x: chunk_quasar(*x, True, semantics=semantics), make(1, 5, 2, 3))


def test_gradcheck_of_recurrence():
    assert torch.autograd.gradcheck(lambda *x: fused_recurrent_quasar(*x, True), make(1, 70, 2, 4), fast_mode=True)


def test_gradcheck_of_packed_sequences():
    q, k, v, beta, _ = make(1, 80, 2, 4)
    states = torch.randn(2, 2, 4, 4, dtype=torch.float64).requires_grad_()
    bounds = torch.tensor([0, 10, 80])
    assert torch.autograd.gradcheck(lambda *x: chunk_quasar(*x, True, bounds, "causal"), (q, k, v, beta, states),
                                    fast_mode=True)


def test_without_a_state(semantics):
    q, k, v, beta, _ = make(1, 70, 2, 4)
    assert torch.autograd.gradcheck(lambda *x: chunk_quasar(*x, semantics=semantics)[0], (q, k, v, beta),
                                    fast_mode=True)


@pytest.mark.parametrize("dtype, limit", [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_small_parts_are_one(semantics, dtype, limit, compute, monkeypatch):
    inputs = make(2, 300, 3, 32, dtype)
    weights = torch.randn(2, 300, 3, 32), torch.randn(2, 3, 32, 32)

    def gradients():
        o, state = chunk_quasar(*inputs, True, semantics=semantics)
        return torch.autograd.grad((o * weights[0]).sum() + (state * weights[1]).sum(), inputs)

    expected = gradients()
    monkeypatch.setattr(torch_backend, "ROWS", 1)
    for found, right, given in zip(gradients(), expected, inputs):
        assert found.dtype == given.dtype
        assert reference.error(found, right) < limit


@pytest.mark.parametrize("tokens, size", [(300, 32), (1000, 64), (130, 128)])
def test_bf16(semantics, tokens, size, compute):
    """By kernels, where there are some: as far from fp64 as bf16 factors are."""
    inputs = make(2, tokens, 3, size)
    inputs[1] = (inputs[1] * torch.rand(2, tokens, 3, 1) * size ** -0.5).detach()
    inputs = [x.detach().to(torch.float32 if x.dim() == 1 or x.shape[1] == 3 else torch.bfloat16).requires_grad_()
              for x in inputs]
    weights = torch.randn(2, tokens, 3, size).bfloat16(), torch.randn(2, 3, size, size)
    results = chunk_quasar(*inputs, True, semantics=semantics)
    found = torch.autograd.grad(results, inputs, weights)
    right = torch_backend.gradients(*(x.detach().double() for x in inputs), semantics, *(x.double() for x in weights))
    for name, one, other in zip(("q", "k", "v", "beta", "state"), found, right):
        assert reference.error(one, other) < (4e-2 if name == "beta" else 8e-3), name
    again = torch.autograd.grad(chunk_quasar(*inputs, True, semantics=semantics), inputs, weights)
    assert all(map(torch.equal, found, again))


def test_empty_and_strided(semantics):
    q, k, v, beta, state = make(1, 0, 2, 4)
    o, after = chunk_quasar(q, k, v, beta, state, True, semantics=semantics)
    (o.sum() + after.sum()).backward()
    assert q.grad.shape == q.shape and torch.equal(state.grad, torch.ones_like(state))
    q, k, v, beta, state = make(1, 70, 2, 4)
    strided = [x.detach().mT.contiguous().mT.requires_grad_() for x in (q, k, v)]
    weight = torch.randn_like(q)
    for given in ((q, k, v), strided):
        (chunk_quasar(*given, beta, state, semantics=semantics)[0] * weight).sum().backward()
    for one, other in zip((q, k, v), strided):
        torch.testing.assert_close(one.grad, other.grad)


def test_autocast_in_the_backward_pass_changes_nothing(semantics, autocast):
    inputs = make(1, 100, 2, 32, torch.float32)
    loss = chunk_quasar(*inputs, semantics=semantics)[0].square().sum()
    right = torch.autograd.grad(loss, inputs, retain_graph=True)
    with autocast:
        assert all(map(torch.equal, torch.autograd.grad(loss, inputs), right))


def test_no_second_derivative(semantics):
    q, k, v, beta, _ = make(1, 5, 2, 4)
    o = chunk_quasar(q, k, v, beta, semantics=semantics)[0]
    first = torch.autograd.grad((o * o).sum(), q, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


# --- the layer ----------------------------------------------------------------------------------------------


def test_gradcheck_of_layer(semantics):
    layer = QuasarAttention(8, 4, 2, semantics=semantics).double()
    x = torch.randn(2, 70, 8, dtype=torch.float64).requires_grad_()
    names = [name for name, _ in layer.named_parameters()]

    def call(x, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (x,))[0]

    assert torch.autograd.gradcheck(call, (x, *layer.parameters()), fast_mode=True)


@pytest.mark.parametrize("heads, tokens", [(2, 130), (3, 100)])
@pytest.mark.parametrize("rows", [1, 1 << 17])
def test_fused_layer(semantics, heads, tokens, rows, compute, autocast, monkeypatch):
    """Under bf16 autocast, in segments of one chunk and in one, against autograd in fp64."""
    monkeypatch.setattr(fused_layer, "ROWS", rows)
    monkeypatch.setattr(fused_layer, "PIECE", 100)
    layer = QuasarAttention(48, 32, heads, semantics=semantics)
    x, weight = torch.randn(2, tokens, 48).requires_grad_(), torch.randn(2, tokens, 48)
    with autocast:
        assert layer.fused_parameters(x) is not None
        o = layer(x)[0]
    found = torch.autograd.grad((o * weight).sum(), (x, *layer.parameters()))
    wide = x.detach().double().requires_grad_()
    parameters = dict(layer.double().named_parameters())
    right = plain.layer(semantics, heads, parameters, wide)
    right = torch.autograd.grad((right * weight).sum(), (wide, *parameters.values()))
    for name, one, other in zip(["x", *parameters], found, right):
        assert one.dtype == torch.float32, name
        assert F.cosine_similarity(one.double().flatten(), other.flatten(), 0) > 0.999, name
        assert reference.error(one, other) < 0.03, name
