"""Linear attention and FlashAttention-2 for PyTorch, with gradients: CUDA kernels compiled on first use, no build step.

    import quasar_ops
    o = quasar_ops.linear_attention(q, k, v, causal=True)
    o = quasar_ops.flash_attention(q, k, v, causal=True)

Tensors are [batch, tokens, heads, size], of any strides: one that torch.nn.functional.scaled_dot_product_attention takes
is to be transposed (1, 2), which copies nothing. `quasar export --ops` writes this package.
"""
from quasar_ops.flash import flash_attention
from quasar_ops.linear import linear_attention

__all__ = ["flash_attention", "linear_attention"]
