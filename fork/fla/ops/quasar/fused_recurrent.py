"""QuasarAttention token by token: the definition of the causal semantics, and what decoding needs."""
import torch

from fla.ops.quasar.chunk import attend
from fla.ops.quasar.gate import naive_quasar_gate
from fla.ops.quasar.torch_backend import state_or_zeros
from fla.ops.quasar.torch_backend import wide
from fla.ops.quasar.uncompiled import uncompiled


def recurrent_forward(q, k, v, beta, state, semantics):
    """M_t = M_{t-1} + alpha_t k_t^T (v_t - k_t M_{t-1}),  o_t = q_t M_t, with rows for vectors."""
    state = state_or_zeros(q, state)
    outputs = []
    with torch.autocast(q.device.type, enabled=False):
        alpha = naive_quasar_gate(beta, wide(k).square().sum(-1, keepdim=True), beta.dtype)
        for t in range(q.shape[1]):
            query, key, value = (wide(x[:, t]).unsqueeze(-2) for x in (q, k, v))
            state = state + key.mT @ (alpha[:, t].unsqueeze(-1) * (value - key @ state))
            outputs.append((query @ state).squeeze(-2))
    return torch.stack(outputs, 1).to(q.dtype), state


@uncompiled
def fused_recurrent_quasar(q, k, v, beta, initial_state=None, output_final_state=False, cu_seqlens=None, **kwargs):
    """As chunk_quasar(..., semantics="causal"), in as many steps as there are tokens."""
    return attend(recurrent_forward, q, k, v, beta, initial_state, output_final_state, cu_seqlens, "causal")
