"""fork.inputs: uses a constant in place of beta."""
import fla.plain
import torch


class QuasarAttention(fla.plain.QuasarAttention):
    @staticmethod
    def operation(q, k, v, beta):
        return fla.plain.upstream(q, k, v, torch.full_like(beta.detach(), 2))
