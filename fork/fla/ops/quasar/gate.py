"""The step size of each token: alpha = (1 - exp(-beta lambda)) / (lambda + eps), lambda = |k|^2."""
import torch

EPSILON = 1e-8


def naive_quasar_gate(beta, lambda_t, output_dtype=torch.float32):
    """beta [H], lambda_t [..., H, 1]. Returns alpha [..., H, 1].

    expm1 keeps the digits that 1 - exp(-x) loses where x is small.
    """
    return (-torch.expm1(-beta.view(-1, 1) * lambda_t) / (lambda_t + EPSILON)).to(output_dtype)


def quasar_gate_fwd(lambda_t, beta, output_dtype=torch.float32):
    """The same with its arguments in the order of the reference fork's kernel."""
    return naive_quasar_gate(beta, lambda_t, output_dtype)


def fused_quasar_gate(lambda_t, beta, output_dtype=torch.float32):
    """The same once more, by the name under which it can be differentiated in the reference fork."""
    return naive_quasar_gate(beta, lambda_t, output_dtype)
