"""The QuasarAttention layer, as validators construct and time it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

from fla.ops.quasar import chunk_quasar
from fla.ops.quasar import fused_recurrent_quasar


class ShortConvolution(nn.Conv1d):
    """A causal convolution over time, each channel by itself, then SiLU. [B, T, D] to [B, T, D]."""

    def __init__(self, channels, width, bias):
        super().__init__(channels, channels, width, groups=channels, bias=bias)

    def forward(self, x):
        past = F.pad(x.transpose(1, 2), (self.kernel_size[0] - 1, 0))
        return F.silu(super().forward(past)).transpose(1, 2)


class GatedRMSNorm(nn.Module):
    """RMS norm over the last dimension, in fp32, times the sigmoid of a gate."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x, gate):
        wide = x.float()
        wide = wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + self.eps)
        return (wide * self.weight * torch.sigmoid(gate.float())).to(x.dtype)


class QuasarAttention(nn.Module):
    """x [B, T, hidden_size] to (o, None, None), o of the same shape.

    Whole sequences of one length only: no attention mask, no cache, no packing.
    """

    def __init__(self, hidden_size=2048, head_dim=128, num_heads=16, mode="chunk", use_short_conv=True,
                 conv_size=4, conv_bias=False, layer_idx=None, norm_eps=1e-5, **kwargs):
        super().__init__()
        if mode not in ("chunk", "fused_recurrent"):
            raise ValueError(f"mode {mode!r} is neither chunk nor fused_recurrent")
        size = num_heads * head_dim
        self.attend = chunk_quasar if mode == "chunk" else fused_recurrent_quasar
        self.head_dim, self.layer_idx = head_dim, layer_idx
        self.q_proj = nn.Linear(hidden_size, size, bias=False)
        self.k_proj = nn.Linear(hidden_size, size, bias=False)
        self.v_proj = nn.Linear(hidden_size, size, bias=False)
        self.q_conv1d = ShortConvolution(size, conv_size, conv_bias) if use_short_conv else nn.Identity()
        self.k_conv1d = ShortConvolution(size, conv_size, conv_bias) if use_short_conv else nn.Identity()
        self.v_conv1d = ShortConvolution(size, conv_size, conv_bias) if use_short_conv else nn.Identity()
        self.beta_log = nn.Parameter(torch.empty(num_heads).uniform_(1, 16).log())
        self.g_proj = nn.Sequential(nn.Linear(hidden_size, head_dim, bias=False), nn.Linear(head_dim, size))
        self.o_norm = GatedRMSNorm(head_dim, norm_eps)
        self.o_proj = nn.Linear(size, hidden_size, bias=False)

    def forward(self, hidden_states, attention_mask=None, past_key_values=None, use_cache=False,
                output_attentions=False, **kwargs):
        if attention_mask is not None or past_key_values is not None or kwargs.get("cu_seqlens") is not None:
            raise NotImplementedError("attention masks, caches and packed sequences are not supported")

        def heads(x):
            return x.unflatten(-1, (-1, self.head_dim))

        q = heads(self.q_conv1d(self.q_proj(hidden_states)))
        k = heads(self.k_conv1d(self.k_proj(hidden_states)))
        v = heads(self.v_conv1d(self.v_proj(hidden_states)))
        o, _ = self.attend(q, k, v, F.softplus(self.beta_log))
        o = self.o_norm(o, heads(self.g_proj(hidden_states)))
        return self.o_proj(o.flatten(-2)), None, None
