"""The Triton back end against fp64: on a GPU where there is one, else by Triton's interpreter, at small sizes."""
import pytest
import torch

import reference
from conftest import DEVICE, GPU
from fla.ops.quasar import triton_backend
from fla.ops.quasar.fused_layer import segments

LARGEST_ERROR = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    """Mends Triton 3.6's interpreter, which cuts bf16 off instead of rounding it, takes it for integers in products
    and, with NumPy 2.4, cannot loop up to a number that a kernel computes. And lets there be several groups."""
    if GPU:
        return
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    patch_tensor, create_dot, cast = interpreter._patch_lang_tensor, builder.create_dot, builder.cast_impl

    def patch_tensor_further(tensor, scope):
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def cast_rounding(self, source, kind):
        if kind.scalar == tl.bfloat16 and source.dtype.scalar == tl.float32:
            rounded = torch.from_numpy(source.data).bfloat16().view(torch.uint16).numpy()
            return interpreter.TensorHandle(rounded, kind.scalar)
        return cast(self, source, kind)

    def create_dot_widened(self, a, b, *args):
        a, b = (cast(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b))
        return create_dot(self, a, b, *args)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor_further)
    monkeypatch.setattr(builder, "create_dot", create_dot_widened)
    monkeypatch.setattr(builder, "cast_impl", cast_rounding)
    monkeypatch.setattr(builder, "create_fp_trunc", cast_rounding)
    monkeypatch.setattr(triton_backend, "multiprocessors", lambda device: 4)


def problem(batch, tokens, heads, size, dtype=torch.float32, keys=1.0):
    """q, k, v, beta, state."""
    q, k, v = torch.randn(3, batch, tokens, heads, size)
    beta, state = torch.rand(heads) * 2 + 0.1, torch.randn(batch, heads, size, size) / 4
    return *(x.to(dtype) for x in (q, k * keys, v)), beta, state


def check(semantics, q, k, v, beta, state, **kwargs):
    o, final = triton_backend.forward(q, k, v, beta, state, semantics, **kwargs)
    expected, expected_final = reference.operation(semantics, q, k, v, beta, state, **kwargs)
    assert o.dtype == q.dtype and final.dtype == torch.float32
    assert o.shape == expected.shape and final.shape == expected_final.shape
    assert reference.error(o, expected) < LARGEST_ERROR[q.dtype]
    assert reference.error(final, expected_final) < LARGEST_ERROR[q.dtype]


@pytest.mark.parametrize("semantics", ("causal", "upstream"))
@pytest.mark.parametrize("dtype, size", (
    (torch.float32, 32), (torch.float32, 64), (torch.float32, 128), (torch.bfloat16, 64), (torch.bfloat16, 128),
    (torch.float16, 32)), ids=str)
def test_dtypes_and_head_dimensions(semantics, dtype, size):
    check(semantics, *problem(1, 70, 3, size, dtype))


@pytest.mark.parametrize("semantics", ("causal", "upstream"))
@pytest.mark.parametrize("tokens", (1, 63, 64, 65))
def test_ragged(semantics, tokens):
    check(semantics, *problem(1, tokens, 2, 32))


@pytest.mark.parametrize("semantics", ("causal", "upstream"))
def test_batch_and_no_state(semantics):
    q, k, v, beta, _ = problem(2, 100, 2, 32)
    check(semantics, q, k, v, beta, None)


@pytest.mark.parametrize("semantics", ("causal", "upstream"))
@pytest.mark.parametrize("keys", (1.0, 0.01), ids=("forget", "remember"))
def test_groups(semantics, keys, monkeypatch):
    """Groups of more chunks than are composed between two looks, whose past is forgotten or not."""
    monkeypatch.setattr(triton_backend, "cut_into_groups", lambda chunks, most: (3, 9))
    check(semantics, *problem(1, 64 * 20, 1, 32, keys=keys))


@pytest.mark.parametrize("semantics", ("causal", "upstream"))
def test_parts(semantics, monkeypatch):
    """A sequence that is worked off in parts, for the sake of memory."""
    monkeypatch.setattr(triton_backend, "MOST_INVERSES", 4)
    check(semantics, *problem(1, 300, 2, 32))


def test_parallel_keys():
    """They make the triangle's inverse cancel."""
    for dtype, most in ((torch.float32, 1e-4), (torch.bfloat16, 5e-2)):
        q, k, v, beta, state = problem(1, 192, 1, 64, dtype)
        k = k[:, :1] + k * 0.01
        o, final = triton_backend.forward(q, k, v, beta, state, "causal")
        expected, expected_final = reference.recurrence(q, k, v, beta, state)
        assert reference.error(o, expected) < most and reference.error(final, expected_final) < most


def test_tiny_keys():
    """1 - exp(-x) would lose all digits."""
    check("causal", *problem(1, 64, 1, 32, keys=1e-4))
    check("causal", *problem(1, 64, 1, 32, keys=0.0))


def test_given_output():
    q, k, v, beta, state = problem(1, 70, 2, 32)
    out = torch.full_like(q, torch.nan)
    o, _ = triton_backend.forward(q, k, v, beta, state, "causal", out=out)
    assert o is out and torch.equal(o, triton_backend.forward(q, k, v, beta, state, "causal")[0])


@pytest.mark.parametrize("heads", (2, 3))
def test_first_rows(heads):
    """A segment's stretches, beginning anywhere in more rows than are used, in a batch."""
    q, k, v, beta, state = problem(1, 190, heads, 32)
    first_rows = torch.tensor([5, 129, 300][:heads])
    check("upstream", q, k, v, beta, state, first_rows=first_rows, tokens=100)


def test_unavailable():
    if GPU:
        assert triton_backend.unavailable(DEVICE) is None
        assert "GPU" in triton_backend.unavailable(torch.device("cpu"))
    else:
        assert triton_backend.unavailable(DEVICE) is None  # by the interpreter


def test_without_triton(monkeypatch):
    monkeypatch.setattr(triton_backend, "triton", None)
    assert "not installed" in triton_backend.unavailable(DEVICE)


# --- around the operation -----------------------------------------------------------------------------------


def stretches(segment):
    """The tokens of each of a segment's stretches."""
    for stretch in range(segment.stretches):
        first = (stretch * segment.padded + segment.first) // segment.stretches
        yield range(first, first + segment.length)


SEGMENTS = [(tokens, heads, segment) for tokens, heads, semantics in ((150, 3, "upstream"), (100, 1, "causal"))
            for segment in segments(tokens, heads, semantics, 128)]


@pytest.mark.parametrize("tokens, heads, segment", SEGMENTS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16), ids=str)
def test_gather(tokens, heads, segment, dtype):
    x = torch.randn(2, tokens, 40).to(dtype)
    padded = torch.nn.functional.pad(x.bfloat16(), (0, 0, 3, segment.padded))
    expected = torch.cat([padded[b, place[0]: place[-1] + 4] for b in range(2) for place in stretches(segment)])
    assert torch.equal(triton_backend.gather(x, segment), expected)


@pytest.mark.parametrize("tokens, heads, segment", SEGMENTS)
def test_convolve(tokens, heads, segment):
    size, width, batch, at, held = 32, 64, 2, 5, segment.length + 7
    count = segment.stretches
    x = torch.randn(batch, tokens, 3 * width + size).bfloat16()
    weight = torch.randn(3, 4, width)
    padded = torch.nn.functional.pad(x, (0, 0, 3, segment.padded))
    projected = torch.cat([padded[b, place[0]: place[-1] + 4] for b in range(batch) for place in stretches(segment)])
    rows = torch.full((3, batch, count, held, width), torch.nan, dtype=torch.bfloat16)
    narrow = torch.full((batch, tokens, size), torch.nan, dtype=torch.bfloat16)
    triton_backend.convolve(projected, weight, segment, *rows[:, :, :, at:], narrow, held)
    assert rows[:, :, :, :at].isnan().all() and rows[:, :, :, at + segment.length:].isnan().all()
    for b in range(batch):
        seen = set()
        for stretch, place in enumerate(stretches(segment)):
            real = [token for token in place if token < tokens]
            seen.update(real)
            for which in range(3):
                convolved = reference.convolution(x[b, :, which * width: (which + 1) * width], weight[which])
                written = rows[which, b, stretch, at: at + segment.length]
                torch.testing.assert_close(written[: len(real)].double(), convolved[real], rtol=1e-2, atol=1e-2)
                assert not written[len(real):].any()
        others = [token for token in range(tokens) if token not in seen]
        assert torch.equal(narrow[b, sorted(seen)], x[b, sorted(seen), 3 * width:]) and narrow[b, others].isnan().all()


@pytest.mark.parametrize("heads, size", ((3, 32), (2, 64), (1, 128)))
def test_gate(heads, size):
    o = torch.randn(heads, 150, size).bfloat16().transpose(0, 1)
    narrow, weight = (torch.randn(n, size).bfloat16() for n in (150, heads * size))
    bias, norm = torch.randn(heads * size).bfloat16(), torch.randn(size)
    expected = reference.gated_norm(o.flatten(1), narrow, weight, bias, norm, 1e-5)
    y = torch.full((150, heads * size), torch.nan, dtype=torch.bfloat16)
    triton_backend.gate(o, narrow, weight, bias, norm, 1e-5, y)
    torch.testing.assert_close(y.double(), expected, rtol=2e-2, atol=2e-2)
