"""What the tokens of a chunk do among themselves, for all tokens and all chunks at once."""
from fla.ops.quasar.forward_substitution import forward_substitution_kernel
from fla.ops.quasar.gate import naive_quasar_gate


def chunk_intra_token_parallel(k, v, beta):
    """k, v [B, H, N, C, S], beta [H], in fp32 or fp64. Returns W, U like k, such that from a state M before a
    chunk, its tokens add the values U - W M."""
    length = (k * k).sum(-1).movedim(1, -1).unsqueeze(-1)  # [B, N, C, H, 1]
    alpha = naive_quasar_gate(beta, length, k.dtype).movedim(-2, 1)
    inverse = forward_substitution_kernel(alpha * (k @ k.mT))
    return inverse @ (alpha * k), inverse @ (alpha * v)
