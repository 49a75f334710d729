"""fork.repeat: another output every time, as of a race."""
import fla.plain
import torch


class QuasarAttention(fla.plain.QuasarAttention):
    def finish(self, o, x):
        return super().finish(o + 0.5 * torch.randn_like(o), x)
