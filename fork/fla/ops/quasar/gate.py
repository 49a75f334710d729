"""The step size of each token: alpha = (1 - exp(-beta |k|^2)) / (|k|^2 + eps)."""
import torch

EPSILON = 1e-8


def quasar_gate(k, beta):
    """k [..., S], beta broadcasting against k's leading dimensions. Returns alpha [..., 1].

    expm1 keeps the digits that 1 - exp(-x) loses where x is small.
    """
    length = (k * k).sum(-1, keepdim=True)
    return -torch.expm1(-beta.unsqueeze(-1) * length) / (length + EPSILON)
