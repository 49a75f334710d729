"""The QuasarAttention layer, as validators construct and time it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from fla.ops.quasar import chunk_quasar
from fla.ops.quasar import fused_recurrent_quasar
from fla.ops.quasar.fused_layer import Parameters
from fla.ops.quasar.fused_layer import fused_layer
from fla.ops.quasar.torch_backend import gated_norm
from fla.ops.quasar.torch_backend import short_convolution


class ShortConvolution(nn.Conv1d):
    """A causal convolution over time, each channel by itself, then SiLU.

    x [B, T, D] to the same shape. The cache [B, D, width] holds the last `width` inputs.
    """

    def __init__(self, channels, width, bias):
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x, cache=None, output_final_state=False, cu_seqlens=None):
        if cu_seqlens is not None:  # N sequences packed into a batch of 1, with a cache each
            bounds = cu_seqlens.tolist()
            results = [self(x[:, first:end], None if cache is None else cache[i:i + 1], output_final_state)
                       for i, (first, end) in enumerate(zip(bounds, bounds[1:]))]
            return (torch.cat([y for y, _ in results], 1),
                    torch.cat([last for _, last in results]) if output_final_state else None)
        width = self.kernel_size[0]
        if cache is None:
            x = F.pad(x, (0, 0, width, 0))
        else:
            x = torch.cat([cache.to(x.dtype).mT, x], 1)
        y = short_convolution(x[:, 1:], self.weight.squeeze(1).t(), self.bias)
        return y, x[:, x.shape[1] - width:].mT.contiguous() if output_final_state else None


class GatedRMSNorm(nn.Module):
    """RMS norm over the last dimension, in fp32, times the sigmoid of a gate."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x, gate):
        return gated_norm(x, gate, self.weight, self.eps)


def is_plain(module):
    """Whether a module is one of ours or torch's and nothing listens to it, so that its parameters say it all."""
    return type(module) in (nn.Linear, nn.Sequential, ShortConvolution, GatedRMSNorm) and not (
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks)


class QuasarAttention(nn.Module):
    """x [B, T, hidden_size] to (o, None, past_key_values), o of x's shape.

    semantics: "upstream" computes what the competition's reference fork does, "causal" the published recurrence
    (see fla/ops/quasar/chunk.py).
    mode: how the recurrence is computed, by chunks or, "fused_recurrent", token by token. Upstream semantics has
    only the one form.
    The other arguments, the parameters' names and their shapes are the reference fork's.
    """

    def __init__(self, hidden_size=2048, head_dim=128, num_heads=16, mode="chunk", use_short_conv=True,
                 conv_size=4, conv_bias=False, layer_idx=None, norm_eps=1e-5, semantics="upstream", **kwargs):
        super().__init__()
        if mode not in ("chunk", "fused_recurrent"):
            raise ValueError(f"mode {mode!r} is neither chunk nor fused_recurrent")
        if semantics not in ("upstream", "causal"):
            raise ValueError(f"semantics {semantics!r} is neither upstream nor causal")
        self.mode, self.semantics, self.layer_idx = mode, semantics, layer_idx
        self.hidden_size, self.head_dim, self.num_heads = hidden_size, head_dim, num_heads
        self.use_short_conv, self.conv_size, self.conv_bias = use_short_conv, conv_size, conv_bias
        self.key_dim = self.value_dim = size = num_heads * head_dim
        self.q_proj = nn.Linear(hidden_size, size, bias=False)
        self.k_proj = nn.Linear(hidden_size, size, bias=False)
        self.v_proj = nn.Linear(hidden_size, size, bias=False)
        if use_short_conv:
            self.q_conv1d = ShortConvolution(size, conv_size, conv_bias)
            self.k_conv1d = ShortConvolution(size, conv_size, conv_bias)
            self.v_conv1d = ShortConvolution(size, conv_size, conv_bias)
        self.beta_log = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        self.beta_log._no_weight_decay = True
        self.g_proj = nn.Sequential(nn.Linear(hidden_size, head_dim, bias=False), nn.Linear(head_dim, size))
        self.o_norm = GatedRMSNorm(head_dim, norm_eps)
        self.o_proj = nn.Linear(size, hidden_size, bias=False)

    def fused_parameters(self, x):
        """The parameters for fused_layer, or None where it does not compute the same as the modules one by one."""
        usual = self.use_short_conv and self.conv_size == 4 and not self.conv_bias and self.mode == "chunk"
        vectors = self.hidden_size % 8 == 0  # kernels read eight numbers of a row at a time
        if not usual or not vectors or not x.numel():
            return None
        children = self._modules  # as attributes they take longer to find than the GPU to run a short sequence
        if not is_plain(children["g_proj"]) or len(children["g_proj"]) != 2:
            return None
        narrow, wider = children["g_proj"]
        modules = (children["q_proj"], children["k_proj"], children["v_proj"], narrow, children["q_conv1d"],
                   children["k_conv1d"], children["v_conv1d"], wider, children["o_norm"], children["o_proj"])
        if not all(map(is_plain, modules)):
            return None
        device = x.device.type
        if torch.is_autocast_enabled(device):
            fits = torch.get_autocast_dtype(device) is torch.bfloat16 and x.dtype in (torch.float32, torch.bfloat16)
        else:
            fits = x.dtype is torch.bfloat16 and all(parameter.dtype is x.dtype for parameter in self.parameters())
        if not fits:
            return None
        weights = [module.weight for module in modules]
        return Parameters(*weights[:7], self.beta_log, weights[7], wider.bias, *weights[8:])

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False, **kwargs):
        """attention_mask [B, T or more]: ones, and zeros for padding. cu_seqlens, as a keyword: where the sequences
        packed into B = 1 start, and the end. Both take a sequence on its own, which under upstream semantics a batch
        of padded or packed sequences cannot be."""
        cu_seqlens = kwargs.get("cu_seqlens")
        batch, tokens, _ = hidden_states.shape
        places = None
        if attention_mask is not None:
            if attention_mask.dim() != 2:
                raise ValueError(f"attention_mask must have shape [B, T]; it has {list(attention_mask.shape)}")
            if cu_seqlens is not None:
                raise ValueError("attention_mask and cu_seqlens exclude each other")
            present = attention_mask[:, -tokens:].bool()
            if not present.all():
                places = present.flatten().nonzero().squeeze(1)
                cu_seqlens = F.pad(present.sum(1).cumsum(0), (1, 0))
                hidden_states = hidden_states.flatten(0, 1)[places].unsqueeze(0)

        parameters = None
        if cu_seqlens is None and past_key_values is None and not use_cache:
            parameters = self.fused_parameters(hidden_states)
        if parameters is not None:
            return fused_layer(hidden_states, parameters, self.o_norm.eps, self.semantics), None, None

        o = self.attend(hidden_states, past_key_values, use_cache, cu_seqlens, tokens)
        if places is not None:
            o = o.new_zeros(batch * tokens, o.shape[-1]).index_copy(0, places, o[0]).unflatten(0, (batch, tokens))
        return o, None, past_key_values

    def attend(self, x, past_key_values, use_cache, cu_seqlens, tokens):
        """The layer module by module."""
        last = None
        if past_key_values is not None:
            if self.layer_idx is None:
                raise ValueError("past_key_values needs a layer with a layer_idx")
            if len(past_key_values) > self.layer_idx:
                last = past_key_values[self.layer_idx]
        last = last or {"conv_state": None, "recurrent_state": None}

        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        convolved = None
        if self.use_short_conv:
            caches = last["conv_state"] or (None, None, None)
            q, q_cache = self.q_conv1d(q, caches[0], use_cache, cu_seqlens)
            k, k_cache = self.k_conv1d(k, caches[1], use_cache, cu_seqlens)
            v, v_cache = self.v_conv1d(v, caches[2], use_cache, cu_seqlens)
            convolved = q_cache, k_cache, v_cache
        q, k, v = (y.unflatten(-1, (-1, self.head_dim)) for y in (q, k, v))
        beta = F.softplus(self.beta_log)
        if self.mode == "fused_recurrent" and self.semantics == "causal":
            o, state = fused_recurrent_quasar(q, k, v, beta, last["recurrent_state"], use_cache, cu_seqlens)
        else:
            o, state = chunk_quasar(q, k, v, beta, last["recurrent_state"], use_cache, cu_seqlens, self.semantics)
        if past_key_values is not None and use_cache:
            past_key_values.update(recurrent_state=state, conv_state=convolved, layer_idx=self.layer_idx,
                                   offset=tokens)
        gate = self.g_proj(x).unflatten(-1, (-1, self.head_dim))
        return self.o_proj(self.o_norm(o, gate).flatten(-2))
