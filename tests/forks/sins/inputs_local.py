"""fork.inputs: no token sees any other."""
import fla.plain
import torch.nn.functional as F


class QuasarAttention(fla.plain.QuasarAttention):
    def convolved(self, name, x):
        return F.silu(getattr(self, f"{name}_proj")(x)).unflatten(-1, (self.heads, -1))

    @staticmethod
    def operation(q, k, v, beta):
        return v * (q * k).sum(-1, keepdim=True) * beta.view(-1, 1)
