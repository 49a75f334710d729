"""The layer: what it computes, what it takes, and what it says otherwise."""
import copy
import io

import plain
import pytest
import reference
import torch
import torch.nn as nn
import torch.nn.functional as F
from fla.layers.quasar import QuasarAttention
from fla.ops.quasar import backend, chunk_quasar, fused_layer, graph


class Cache:
    """The part of flash-linear-attention's cache that the layer uses."""

    def __init__(self):
        self.states = []

    def __len__(self):
        return len(self.states)

    def __getitem__(self, layer_idx):
        return self.states[layer_idx]

    def update(self, recurrent_state=None, conv_state=None, layer_idx=0, offset=1):
        if layer_idx == len(self.states):
            self.states.append({})
        self.states[layer_idx] = {"recurrent_state": recurrent_state, "conv_state": conv_state}


def expected(layer, x):
    parameters = {name: value.double() for name, value in layer.state_dict().items()}
    return plain.layer(layer.semantics, layer.num_heads, parameters, x.double())


def assert_agree(result, right, limit):
    assert result.shape == right.shape
    assert reference.error(result.detach(), right.detach()) < limit


def test_parameters():
    shapes = {name: list(value.shape) for name, value in QuasarAttention(512, 64, 8).state_dict().items()}
    assert shapes == {
        "beta_log": [8], "q_proj.weight": [512, 512], "k_proj.weight": [512, 512], "v_proj.weight": [512, 512],
        "q_conv1d.weight": [512, 1, 4], "k_conv1d.weight": [512, 1, 4], "v_conv1d.weight": [512, 1, 4],
        "g_proj.0.weight": [64, 512], "g_proj.1.weight": [512, 64], "g_proj.1.bias": [512], "o_norm.weight": [64],
        "o_proj.weight": [512, 512]}
    layer = QuasarAttention(use_short_conv=False)
    assert layer.q_proj.weight.shape == (2048, 2048) and not hasattr(layer, "q_conv1d")
    assert QuasarAttention(64, 32, 2, conv_bias=True).q_conv1d.bias.shape == (64,)
    assert layer.beta_log._no_weight_decay
    assert (layer.beta_log >= 0).all() and (layer.beta_log <= torch.tensor(16.0).log()).all()


# --- what it computes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", [1, 2, 63, 64, 65, 200])
def test_in_fp32(semantics, tokens, compute):
    layer, x = QuasarAttention(40, 32, 3, semantics=semantics), torch.randn(2, tokens, 40)
    o, attentions, cache = layer(x)
    assert o.dtype == torch.float32 and attentions is None and cache is None
    assert_agree(o, expected(layer, x), reference.FP32_LIMIT)


@pytest.mark.parametrize("batch, tokens", [(2, 1), (2, 2), (2, 63), (2, 64), (2, 65), (2, 200), (1, 192)])
@pytest.mark.parametrize("heads, hidden", [(2, 64), (3, 40), (8, 64)])
def test_under_autocast(semantics, heads, hidden, batch, tokens, compute, autocast):
    """In segments; with o in the output's memory and apart from it, in the place of q and not; heads that divide a chunk and
    that do not."""
    layer, x = QuasarAttention(hidden, 32, heads, semantics=semantics), torch.randn(batch, tokens, hidden)
    with autocast:
        assert layer.fused_parameters(x) is not None
        o = layer(x)[0]
    assert o.dtype == torch.bfloat16
    assert_agree(o, expected(layer, x), 0.02)


@pytest.mark.parametrize("size", [64, 80, 128])
def test_head_dimensions(semantics, size, autocast):
    layer, x = QuasarAttention(64, size, 2, semantics=semantics), torch.randn(1, 100, 64)
    with autocast:
        assert_agree(layer(x)[0], expected(layer, x), 0.02)


@pytest.mark.parametrize("heads", [1, 3, 8])
@pytest.mark.parametrize("tokens, segment, piece", [(300, 64, 1 << 15), (300, 1 << 18, 100), (300, 128, 30), (320, 128, 30),
                                                    (300, 640, 100)])
def test_small_segments_are_one(semantics, heads, tokens, segment, piece, compute, autocast, monkeypatch):
    """And few sequences side by side are all."""
    monkeypatch.setattr(graph, "LONGEST", 0)
    layer, x = QuasarAttention(32 * heads, 32, heads, semantics=semantics), torch.randn(3, tokens, 32 * heads)
    with autocast:
        right = layer(x)[0]
        monkeypatch.setattr(fused_layer, "SEGMENT", segment)
        monkeypatch.setattr(fused_layer, "PIECE", piece)
        module = backend.BACKENDS[compute]
        forward = module.forward

        def watched(*arguments):
            out = arguments[-1]
            assert out[:, :, 0, 0].numel() <= segment
            assert out.is_contiguous() or module.IN_PLACE and out.transpose(1, 2).is_contiguous()
            return forward(*arguments)

        monkeypatch.setattr(module, "forward", watched)
        assert_agree(layer(x)[0], right, 8e-3)


@pytest.mark.parametrize("batch, tokens, segment, upstream", [(1, 320, 128, 3), (1, 300, 128, 2), (2, 192, 1024, 0)])
def test_o_takes_the_place_of_q(semantics, batch, tokens, segment, upstream, compute, autocast, monkeypatch):
    """In so many segments under upstream semantics, and in all under causal; there the gate reads it."""
    monkeypatch.setattr(graph, "LONGEST", 0)
    monkeypatch.setattr(fused_layer, "SEGMENT", segment)
    module = backend.BACKENDS[compute]
    forward, gate, places, read = module.forward, module.gate, [], []

    def watched_forward(q, *arguments):
        places.append((q.data_ptr(), arguments[-1].data_ptr()))
        return forward(q, *arguments)

    def watched_gate(o, *arguments):
        read.append(o.data_ptr())
        return gate(o, *arguments)

    monkeypatch.setattr(module, "forward", watched_forward)
    monkeypatch.setattr(module, "gate", watched_gate)
    with autocast, torch.no_grad():
        QuasarAttention(64, 32, 2, semantics=semantics)(torch.randn(batch, tokens, 64))
    assert read == [o for _, o in places]
    expected = len(places) if semantics == "causal" else upstream
    assert sum(q == o for q, o in places) == (expected if module.IN_PLACE else 0)


def test_module_by_module_is_the_same(semantics, compute, autocast, monkeypatch):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 150, 64)
    with autocast:
        right = layer(x)[0]
        monkeypatch.setattr(layer, "fused_parameters", lambda x: None)
        o = layer(x)[0]
    assert o.dtype == right.dtype
    assert_agree(o, right, 6e-3)


@pytest.mark.parametrize("dtype, limit", [(torch.bfloat16, 0.02), (torch.float16, 0.01)])
def test_all_in_a_narrow_type(semantics, dtype, limit, compute):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics).to(dtype), torch.randn(1, 100, 64).to(dtype)
    o = layer(x)[0]
    assert o.dtype == dtype
    assert_agree(o, expected(layer, x), limit)


def test_under_fp16_autocast(semantics, compute, autocast):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 100, 64)
    with torch.autocast(x.device.type, torch.float16):
        o = layer(x)[0]
    assert o.dtype == torch.float16
    assert_agree(o, expected(layer, x), 0.005)


def test_strided_input(semantics, compute, autocast):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(2, 64, 100).mT
    with autocast:
        assert torch.equal(layer(x)[0], layer(x.contiguous())[0])


@pytest.mark.parametrize("shape", [(1, 0, 64), (0, 5, 64)])
def test_empty(semantics, shape, autocast):
    layer = QuasarAttention(64, 32, 2, semantics=semantics)
    with autocast:
        assert layer(torch.zeros(shape))[0].shape == shape
    assert layer(torch.zeros(shape))[0].shape == shape


@pytest.mark.parametrize("options", [{"use_short_conv": False}, {"conv_size": 3}, {"conv_bias": True}])
def test_other_convolutions(options, autocast):
    layer, x = QuasarAttention(64, 32, 2, semantics="causal", **options), torch.randn(1, 50, 64)
    assert layer(x)[0].shape == x.shape
    with autocast:
        assert layer.fused_parameters(x) is None
        assert_agree(layer(x)[0], layer.double()(x.double())[0], 0.02)


def test_hidden_size_that_is_no_multiple_of_8(semantics, compute, autocast):
    layer, x = QuasarAttention(36, 32, 2, semantics=semantics), torch.randn(1, 70, 36)
    with autocast:
        assert layer.fused_parameters(x) is None
        assert_agree(layer(x)[0], expected(layer, x), 0.02)


def test_recurrent_mode_is_the_same(semantics):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics).double(), torch.randn(1, 70, 64).double()
    right = layer(x)[0]
    layer.mode = "fused_recurrent"
    assert_agree(layer(x)[0], right, 1e-12)


@pytest.mark.parametrize("size", [64, 192, 1024])
@pytest.mark.parametrize("tokens", [1, 200, 512])
@pytest.mark.parametrize("heads", [1, 3, 5, 8, 16, 17])
def test_segments(heads, tokens, size):
    """Every output token once; and a segment's stretches hold the rows that its outputs are made of."""
    padded, end = -(-tokens // 64) * 64, 0
    for segment in fused_layer.segments(tokens, heads, "upstream", size):
        assert segment.first == end
        end += segment.outputs
        if segment.outputs == tokens:
            assert segment.exact and segment.start(0) == 0
            continue
        first_rows = torch.arange(heads) * segment.outputs if segment.exact else segment.first_rows("cpu")
        for head, first in enumerate(first_rows.tolist()):
            row = head * padded + segment.first  # of the flattened (token, head) rows
            stretch = segment.length * heads
            assert first == head * stretch + row - segment.start(head) * heads
            assert head * stretch <= first and first + -(-segment.outputs // 64) * 64 <= (head + 1) * stretch
    assert end == tokens


# --- what must not be missed ----------------------------------------------------------------------------------


def test_changed_weights_are_seen(semantics, compute, autocast):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 70, 64)
    with autocast:
        before = layer(x)[0]
        layer.o_proj.weight.data.mul_(2)  # behind the back of autograd's version counter
        assert torch.equal(layer(x)[0], 2 * before)
        other = QuasarAttention(64, 32, 2, semantics=semantics)
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x)[0], 2 * before)
        assert torch.equal(copy.deepcopy(layer)(x)[0], 2 * before)
        file = io.BytesIO()
        torch.save(layer, file)
        file.seek(0)
        assert torch.equal(torch.load(file, weights_only=False)(x)[0], 2 * before)


@pytest.mark.parametrize("register", ["register_forward_hook", "register_forward_pre_hook",
                                      "register_full_backward_hook", "register_full_backward_pre_hook"])
def test_hooks_are_called(register, autocast):
    layer, x, called = QuasarAttention(64, 32, 2), torch.randn(1, 70, 64).requires_grad_(), []
    getattr(layer.g_proj[0], register)(lambda *_: called.append(True))
    with autocast:
        layer(x)[0].sum().backward()
    assert called


def test_replaced_modules_are_called(autocast):
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    layer, x = QuasarAttention(64, 32, 2), torch.randn(1, 70, 64)
    with autocast:
        before = layer(x)[0]
        layer.o_proj.__class__ = Doubled
        assert_agree(layer(x)[0], 2 * before, 6e-3)


def test_no_gradient_asked_for(semantics, compute, autocast):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 70, 64)
    with autocast:
        right = layer(x)[0]
        assert right.requires_grad
        with torch.no_grad():
            assert torch.equal(layer(x)[0], right)
        with torch.inference_mode():
            assert torch.equal(layer(x)[0], right)
        assert not layer.requires_grad_(False)(x)[0].requires_grad


@pytest.mark.parametrize("cast", [True, False])
def test_compile(semantics, cast, compute):
    layer, x = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(1, 70, 64)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
        right = layer(x)[0]
        right.float().square().sum().backward()
        gradients = [parameter.grad.clone() for parameter in layer.parameters()]
        layer.zero_grad()
        torch._dynamo.reset()
        o = torch.compile(layer, backend="eager")(x)[0]
        o.float().square().sum().backward()
        assert torch._dynamo.explain(layer)(x).graph_break_count <= 1
    assert torch.equal(o, right)
    for parameter, gradient in zip(layer.parameters(), gradients):
        assert_agree(parameter.grad, gradient, 1e-6)


# --- sequences of several lengths, and caches -----------------------------------------------------------------


@pytest.mark.parametrize("mode", ["chunk", "fused_recurrent"])
@pytest.mark.parametrize("cast", [False, True])
def test_decoding(mode, cast, compute):
    layer = QuasarAttention(64, 32, 2, mode, layer_idx=0, semantics="causal").eval()
    x, cache, outputs = torch.randn(2, 75, 64), Cache(), []
    with torch.no_grad(), torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
        right = layer(x)[0]
        for first, end in [(0, 1), (1, 2), (2, 66), (66, 67), *((t, t + 1) for t in range(67, 75))]:
            o, _, returned = layer(x[:, first:end], past_key_values=cache, use_cache=True)
            assert returned is cache
            outputs.append(o)
    assert cache[0]["conv_state"][0].shape == (2, 64, 4) and cache[0]["recurrent_state"].shape == (2, 2, 32, 32)
    assert_agree(torch.cat(outputs, 1), right, 0.01 if cast else reference.FP32_LIMIT)


def test_a_cache_under_upstream():
    """The state of a call goes into the next, as in the reference fork."""
    layer = QuasarAttention(64, 32, 2, use_short_conv=False, layer_idx=0).double()
    x, cache, outputs = torch.randn(1, 128, 64).double(), Cache(), []
    states = []
    layer.o_norm.register_forward_pre_hook(lambda _, inputs: outputs.append(inputs[0]))
    for first in (0, 64):
        layer(x[:, first:first + 64], past_key_values=cache, use_cache=True)
        states.append(cache[0]["recurrent_state"])
    q, k, v = (project(x[:, 64:]).unflatten(-1, (2, 32)) for project in (layer.q_proj, layer.k_proj, layer.v_proj))
    o, after = chunk_quasar(q, k, v, F.softplus(layer.beta_log), states[0], True)
    assert_agree(outputs[1], o, 1e-12)
    assert_agree(states[1], after, 1e-12)


def test_a_cache_is_only_read_without_use_cache():
    layer, cache = QuasarAttention(64, 32, 2, layer_idx=0, semantics="causal"), Cache()
    x = torch.randn(1, 10, 64)
    layer(x[:, :5], past_key_values=cache, use_cache=True)
    state = cache[0]["recurrent_state"].clone()
    o = layer(x[:, 5:], past_key_values=cache)[0]
    assert torch.equal(cache[0]["recurrent_state"], state)
    assert_agree(o, layer(x)[0][:, 5:], reference.FP32_LIMIT)


LENGTHS = [5, 0, 70, 1]


@pytest.mark.parametrize("cast", [False, True])
def test_packed_sequences(cast, compute):
    layer, x = QuasarAttention(64, 32, 2, semantics="causal"), torch.randn(1, sum(LENGTHS), 64)
    bounds = F.pad(torch.tensor(LENGTHS).cumsum(0), (1, 0))
    with torch.autocast(x.device.type, torch.bfloat16, enabled=cast):
        o = layer(x, cu_seqlens=bounds)[0]
        for piece, sequence in zip(o.split(LENGTHS, 1), x.split(LENGTHS, 1)):
            assert_agree(piece, layer(sequence)[0], 6e-3 if cast else reference.FP32_LIMIT)


def test_padded_batch():
    layer, tokens = QuasarAttention(64, 32, 2, layer_idx=0, semantics="causal"), max(LENGTHS)
    x, mask = torch.randn(len(LENGTHS), tokens, 64), torch.zeros(len(LENGTHS), tokens, dtype=torch.long)
    for row, length in zip(mask, LENGTHS):
        row[tokens - length:] = 1
    cache = Cache()
    o = layer(x, mask, past_key_values=cache, use_cache=True)[0]
    assert o.shape == x.shape and not o[mask == 0].any()
    following, mask = torch.randn(len(LENGTHS), 1, 64), F.pad(mask, (0, 1), value=1)
    last = layer(following, mask, past_key_values=cache, use_cache=True)[0]
    for i, length in enumerate(LENGTHS):
        right = layer(torch.cat([x[i, tokens - length:], following[i]]).unsqueeze(0))[0][0]
        assert_agree(torch.cat([o[i, tokens - length:], last[i]]), right, reference.FP32_LIMIT)


def test_masks_under_upstream(semantics, compute, autocast):
    layer, x, mask = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(2, 100, 64), torch.ones(2, 100)
    with autocast:
        assert torch.equal(layer(x, mask)[0], layer(x)[0])
        mask[0, :30] = 0
        o = layer(x[:1], mask[:1])[0]
        assert not o[:, :30].any()
        assert_agree(o[:, 30:], layer(x[:1, 30:])[0], 6e-3)


def test_wrong_arguments(semantics):
    layer, x, mask = QuasarAttention(64, 32, 2, semantics=semantics), torch.randn(2, 10, 64), torch.ones(2, 10)
    with pytest.raises(ValueError, match="neither chunk nor fused_recurrent"):
        QuasarAttention(mode="parallel")
    with pytest.raises(ValueError, match="neither upstream nor causal"):
        QuasarAttention(semantics="both")
    with pytest.raises(ValueError, match=r"attention_mask must have shape \[B, T\]"):
        layer(x, mask.unsqueeze(1))
    with pytest.raises(ValueError, match="exclude each other"):
        layer(x, mask, cu_seqlens=torch.tensor([0, 10]))
    with pytest.raises(ValueError, match="a batch of 1"):
        layer(x, cu_seqlens=torch.tensor([0, 10]))
    with pytest.raises(ValueError, match="layer_idx"):
        layer(x, past_key_values=Cache())
    if semantics == "upstream":
        mask[0, 0] = 0
        with pytest.raises(ValueError, match='need semantics="causal"'):
            layer(x, mask)
