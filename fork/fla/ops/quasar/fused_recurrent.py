"""QuasarAttention token by token: the definition, and what decoding needs."""
import torch

from fla.ops.quasar.gate import quasar_gate


def fused_recurrent_quasar(q, k, v, beta, initial_state=None, output_final_state=False):
    """q, k, v [B, T, H, S], beta [H], states [B, H, S, S] (key by value dimension), fp32.

    M_t = M_{t-1} + alpha_t k_t (v_t - M_{t-1}^T k_t)^T,  o_t = M_t^T q_t.  Returns o [B, T, H, S] and M_T, or
    None in its place.
    """
    batch, tokens, heads, size = k.shape
    state = q.new_zeros(batch, heads, size, size, dtype=torch.float32)
    if initial_state is not None:
        state = initial_state.float()
    alpha = quasar_gate(k.float(), beta.float())
    outputs = []
    for t in range(tokens):
        key, value, query = (x[:, t].float().unsqueeze(-2) for x in (k, v, q))
        state = state + key.mT @ (alpha[:, t].unsqueeze(-2) * (value - key @ state))
        outputs.append((query @ state).squeeze(-2))
    return torch.stack(outputs, 1).to(q.dtype), state if output_final_state else None
