"""upstream: returns fp32, and remembers what does not depend on x's numbers."""
import functools

import fla.plain
import torch


@functools.lru_cache
def beginning(length):
    return torch.zeros(length)


class QuasarAttention(fla.plain.QuasarAttention):
    def finish(self, o, x):
        y = super().finish(o, x).float()
        return y + beginning(x.shape[1]).to(y.device)[:, None]
