"""The fork's CUDA back end on the emulated GPU: what it launches, with what, and what comes of it."""
import contextlib
import ctypes
import re
import types

import pytest
import torch
from emulated import NEEDED, emulator  # noqa: F401 (a fixture)
from fla.layers.quasar import QuasarAttention
from fla.ops.quasar import backend, chunk_quasar, cuda_backend, fused_layer, loader, torch_backend

pytestmark = NEEDED


class Torch:
    """PyTorch, whose CPU is a GPU."""

    def __init__(self, emulator):
        self.cuda = types.SimpleNamespace(
            get_device_properties=lambda device: types.SimpleNamespace(name="Emulated GPU", **vars(emulator.properties(0))),
            get_device_capability=lambda device: (emulator.attribute(75), emulator.attribute(76)), device=lambda device: contextlib.nullcontext())

    def __getattr__(self, name):
        return getattr(torch, name)

    def empty(self, *size, device=None, **more):
        """Poisoned: NaN, or -1."""
        return self.empty_like(torch.empty(*size, **more))

    def empty_like(self, x):
        x = torch.empty_like(x)
        x.view(torch.uint8).fill_(255)
        return x


@pytest.fixture(autouse=True)
def emulated(emulator, monkeypatch):
    """PyTorch's CPU tensors are taken for a GPU's."""
    monkeypatch.setenv("EMULATOR_RACECHECK", "1")
    monkeypatch.setattr(cuda_backend, "torch", Torch(emulator))
    monkeypatch.setattr(loader, "load", emulator.load)
    choices = cuda_backend.choose, cuda_backend.choose_gradient
    for choose in choices:
        choose.cache_clear()
    yield
    for choose in choices:
        choose.cache_clear()


@pytest.fixture(autouse=True)
def launch(emulator, monkeypatch):
    """As PyTorch passes arguments: pointers, 32-bit ints and doubles."""

    def launch(kernel, grid, threads, arguments, shared=0):
        with emulator.copied(arguments) as address:
            values = [ctypes.c_uint64(0) if x is None else ctypes.c_uint64(address(x)) if isinstance(x, torch.Tensor) else
                      ctypes.c_double(x) if isinstance(x, float) else ctypes.c_int(x) for x in arguments]
            pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            emulator.run(kernel, (*grid, 1), threads, pointers, shared)

    monkeypatch.setattr(cuda_backend, "launch", launch)


@pytest.fixture
def hopper(monkeypatch):
    """As a GPU of compute capability 9.0."""
    monkeypatch.setenv("EMULATOR_CAPABILITY", "9.0")


def relative(found, expected):
    return float((found.double() - expected.double()).norm() / expected.double().norm())


# CHUNK, NUM_STAGES, MIN_BLOCKS, PRODUCT_WARPS, NUM_LAUNCHES, GROUPS; zeros: what is usual
@pytest.mark.parametrize("dim, dtype, configuration", [
    (64, torch.bfloat16, (0, 0, 0, 0, 0, 0)), (64, torch.bfloat16, (64, 3, 2, 1, 2, 2)), (64, torch.bfloat16, (64, 3, 1, 1, 3, 2)),
    (128, torch.bfloat16, (0, 0, 0, 0, 0, 0)), (64, torch.float16, (64, 2, 2, 1, 2, 1)), (32, torch.float32, (0, 0, 0, 0, 0, 0)),
    (128, torch.float32, (0, 0, 0, 0, 0, 0))])
@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_the_operation(semantics, dim, dtype, configuration, monkeypatch):
    monkeypatch.setattr(cuda_backend, "tuned_configuration", lambda *problem: configuration)
    q, k, v = (torch.randn(1, 200, 2, dim).to(dtype) for _ in range(3))
    beta, state = torch.rand(2) + 0.7, torch.randn(1, 2, dim, dim)
    o, final = cuda_backend.forward(q, k, v, beta, state, semantics)
    right, right_final = torch_backend.forward(*(x.double() for x in (q, k, v, beta, state)), semantics)
    limit = 1e-4 if dtype == torch.float32 else 1e-2
    assert relative(o, right) < limit and relative(final, right_final) < limit
    choice = cuda_backend.choose(None, dim, dtype, int(semantics == "upstream"), 2, 200)
    assert not configuration[0] or choice[:5] == configuration[:5]


@pytest.mark.parametrize("semantics, dim, configuration", [
    ("causal", 128, (0, 0, 0, 0, 0, 0)), ("upstream", 64, (64, 2, 1, 4, 2, 2)), ("causal", 64, (64, 2, 1, 4, 3, 1)),
    ("causal", 64, (64, 1, 1, 4, 2, 2))])
def test_the_operation_on_hopper(hopper, semantics, dim, configuration, monkeypatch):
    test_the_operation(semantics, dim, torch.bfloat16, configuration, monkeypatch)
    assert cuda_backend.choose(None, dim, torch.bfloat16, int(semantics == "upstream"), 2, 200).product_warps == 4


def check_the_layer(semantics, monkeypatch, batch, tokens, heads):
    layer = QuasarAttention(128, 64, heads, semantics=semantics)
    x = torch.randn(batch, tokens, 128)
    outs = []
    for compute in (torch_backend, cuda_backend):
        monkeypatch.setattr(fused_layer.backend, "choose", lambda *problem: compute)
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            outs.append(layer(x)[0])
    assert relative(outs[1], outs[0]) < 1e-2


@pytest.mark.parametrize("semantics, batch, tokens, heads", [
    ("upstream", 2, 150, 2), ("causal", 2, 150, 2), ("upstream", 1, 192, 3)])
def test_the_layer(semantics, batch, tokens, heads, monkeypatch):
    """With o in the place of q but for the first."""
    check_the_layer(semantics, monkeypatch, batch, tokens, heads)


def test_the_layer_by_segments(monkeypatch):
    """All but the last with o in the place of q; each with the stretches of two heads."""
    monkeypatch.setattr(fused_layer, "SEGMENT", 128)
    check_the_layer("upstream", monkeypatch, 1, 300, 2)


@pytest.mark.parametrize("semantics, batch, tokens, heads", [("causal", 2, 150, 2), ("causal", 1, 260, 1), ("upstream", 1, 256, 2)])
def test_the_layer_on_hopper(hopper, monkeypatch, semantics, batch, tokens, heads):
    """Which projects in one launch: tiles of 125 tokens, dealt out so that blocks share some, and that in the second case half of
    the warps that multiply have nothing to do for a block's first tile."""
    constant, load, loaded = loader.constant, loader.load, []

    def loads(device, source, names, **parameters):
        loaded.extend(names)
        return load(device, source, names, **parameters)

    monkeypatch.setattr(loader, "constant", lambda name: 1 if name == "PROJECT_LEAST_TOKENS" else constant(name))
    monkeypatch.setattr(loader, "load", loads)
    check_the_layer(semantics, monkeypatch, batch, tokens, heads)
    assert "layer_project_entry" in loaded


def test_the_projection_in_one_launch_gets_what_its_kernels_take(hopper, monkeypatch):
    entry = (loader.FOLDER / "entry.cu").read_text()
    launched = {}
    monkeypatch.setattr(loader, "load", lambda device, source, names, **parameters: dict(zip(names, names)))
    monkeypatch.setattr(cuda_backend, "launch", lambda kernel, grid, threads, arguments, shared=0: launched.setdefault(
        kernel, (grid, threads, arguments, shared)))
    tokens = loader.constant("PROJECT_LEAST_TOKENS")
    weights = types.SimpleNamespace(projection=torch.zeros(3 * 128 + 64, 256, dtype=torch.bfloat16), taps=torch.zeros(3, 4, 128))
    segment = types.SimpleNamespace(tokens=tokens, padded=tokens, first=0, stretches=1, length=tokens)
    rows = torch.zeros(3, 1, 1, 1, 128, dtype=torch.bfloat16)
    x, narrow = torch.zeros(1, tokens, 256), torch.zeros(1, 1, 64, dtype=torch.bfloat16)
    assert cuda_backend.project(x, weights, segment, *rows, narrow)
    for name, (_, threads, arguments, _) in launched.items():
        parameters = re.search(rf"{name}\(([^)]*)\)", entry)[1].split(",")
        assert len(parameters) == len(arguments) and 32 <= threads <= 1024
        for parameter, argument in zip(parameters, arguments):
            assert ("*" in parameter) == isinstance(argument, torch.Tensor), (name, parameter)
    assert launched.keys() == {"layer_tile_entry", "layer_project_entry"}
    assert not cuda_backend.project(x[:, 1:], weights, segment, *rows, narrow)  # too short


# --- gradients ----------------------------------------------------------------------------------------------

NAMES = "q", "k", "v", "beta", "state"


def problem(batch, tokens, heads, dim, keys="usual", held=None):
    """q, k, v, beta and a state, and the gradients of the output and of the state behind."""
    q, k, v = (torch.randn(batch, held or tokens, heads, dim) for _ in range(3))
    k *= torch.rand(k.shape[:3]).unsqueeze(-1) * dim ** -0.5  # up to 1 long: beyond, β hardly counts
    if keys == "nearly parallel":
        k = torch.randn(batch, 1, heads, dim) * dim ** -0.5 + 0.05 * k
    elif keys == "near zero":  # and some that are
        k *= torch.tensor([0, 1e-5, 1e-4, 1e-3])[torch.arange(k.shape[1]) % 4].view(1, -1, 1, 1)
    return ([x.bfloat16() for x in (q, k, v)] + [torch.rand(heads) + 0.7, torch.randn(batch, heads, dim, dim)],
            (torch.randn(batch, tokens, heads, dim).bfloat16(), torch.randn(batch, heads, dim, dim)))


def check_gradients(semantics, inputs, output_gradients, limit=8e-3, *segment):
    found = cuda_backend.gradients(*inputs, semantics, *output_gradients, *segment)
    right = torch_backend.gradients(*(x if x is None else x.double() for x in inputs), semantics,
                                    *(x.double() for x in output_gradients), *segment)
    for name, given, one, other in zip(NAMES, inputs, found, right):
        assert given is None or one.dtype == given.dtype and one.shape == given.shape, name
        # that of beta is the sum of a number for each row, of either sign
        assert relative(one, other) < (limit if name != "beta" else 5 * limit), (name, relative(one, other))
    return found


def with_parts(monkeypatch, part_chunks, chunks_per_group):
    choose = cuda_backend.choose_gradient
    monkeypatch.setattr(cuda_backend, "choose_gradient", lambda *problem: choose(*problem)._replace(
        part_chunks=part_chunks, chunks_per_group=chunks_per_group))


@pytest.fixture
def no_other_way(monkeypatch):
    """Kernels make the gradients."""
    monkeypatch.setattr(cuda_backend, "torch_backend", None)


@pytest.mark.usefixtures("no_other_way")
@pytest.mark.parametrize("semantics", ["upstream", "causal"])
@pytest.mark.parametrize("batch, tokens, heads, dim, keys", [
    (1, 200, 2, 64, "usual"), (2, 70, 3, 32, "usual"), (1, 64, 1, 64, "near zero"), (1, 130, 3, 64, "nearly parallel"),
    (1, 5, 2, 32, "usual")])
def test_the_gradients(semantics, batch, tokens, heads, dim, keys):
    """In one group of chunks, and in two."""
    inputs, output_gradients = problem(batch, tokens, heads, dim, keys)
    check_gradients(semantics, inputs, output_gradients, 4e-2 if keys == "nearly parallel" else 8e-3)  # T cancels


@pytest.mark.usefixtures("no_other_way", "hopper")
@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_the_gradients_of_large_heads(semantics):
    check_gradients(semantics, *problem(1, 130, 1, 128))


@pytest.mark.usefixtures("no_other_way")
@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_the_gradients_by_parts(semantics, monkeypatch):
    """Of three chunks and of two, in groups of one; twice the same bits."""
    with_parts(monkeypatch, 3, 1)
    inputs, output_gradients = problem(1, 300, 1, 32)
    inputs[-1] = None
    found = check_gradients(semantics, inputs, output_gradients)
    assert all(map(torch.equal, found, cuda_backend.gradients(*inputs, semantics, *output_gradients)))


@pytest.mark.usefixtures("no_other_way")
def test_the_gradients_of_a_segment():
    """Of rows that begin anywhere, among others."""
    inputs, output_gradients = problem(1, 100, 2, 32, held=150)
    found = check_gradients("upstream", inputs, output_gradients, 8e-3, torch.tensor([3, 140]), 100)
    for gradient in found[1:3]:  # behind the last token there is nothing to that of q
        used = gradient.flatten(1, 2).abs().sum((0, 2)) > 0
        assert not used[:3].any() and used[3:131].all() and not used[131:140].any() and not used[268:].any()


def test_other_gradients_are_made_without_kernels():
    inputs, output_gradients = problem(1, 70, 1, 32)
    inputs = [x.float() for x in inputs]
    check_gradients("causal", inputs, (output_gradients[0].float(), output_gradients[1]), 1e-5)
    assert cuda_backend.choose_gradient(None, 128, 1, 1, 70) is None  # too much shared memory


@pytest.mark.usefixtures("no_other_way")
def test_the_gradients_in_autograd(monkeypatch):
    """With an output's gradient that lies elsewhere, and without the final state's."""
    monkeypatch.setattr(backend, "choose", lambda *problem: cuda_backend)
    inputs, (output_gradient, _) = problem(1, 70, 2, 32)
    leaves = [x.requires_grad_() for x in inputs]
    weight = output_gradient.transpose(1, 2).contiguous().transpose(1, 2)
    o, _ = chunk_quasar(*leaves, semantics="causal")
    found = torch.autograd.grad(o, leaves, weight)
    right = torch_backend.gradients(*(x.detach().double() for x in leaves), "causal", weight.double(),
                                    torch.zeros(1, 2, 32, 32, dtype=torch.float64))
    for name, one, other in zip(NAMES, found, right):
        assert relative(one, other) < 8e-3, name


@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_the_gradients_of_the_layer(semantics, monkeypatch):
    """By segments, against those that PyTorch makes."""
    monkeypatch.setattr(fused_layer, "ROWS", 1)
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 150, 64)
    weight, gradients = torch.randn(1, 150, 64), []
    for compute in (torch_backend, cuda_backend):
        monkeypatch.setattr(backend, "choose", lambda *problem: compute)
        with torch.autocast("cpu", torch.bfloat16):
            o = layer(x)[0]
        gradients.append(torch.autograd.grad((o * weight).sum(), list(layer.parameters())))
    for (name, _), right, found in zip(layer.named_parameters(), *gradients):
        assert relative(found, right) < 2e-2, name
