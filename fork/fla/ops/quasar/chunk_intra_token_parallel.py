"""What the tokens of a chunk do among themselves, for all tokens and all chunks at once."""
from fla.ops.quasar.forward_substitution import forward_substitution_kernel
from fla.ops.quasar.gate import quasar_gate


def chunk_intra_token_parallel(k, v, beta):
    """k, v [..., C, S], beta broadcasting against [..., C]. Returns W, U [..., C, S], such that from a state
    M before the chunk, its tokens add the values U - W M."""
    alpha = quasar_gate(k, beta)
    inverse = forward_substitution_kernel(alpha * (k @ k.mT))
    return inverse @ (alpha * k), inverse @ (alpha * v)
