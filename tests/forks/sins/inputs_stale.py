"""fork.inputs: reads its weights once, and does not see that they change."""
import copy

import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    first = []

    def forward(self, x):
        if not self.first:
            self.first.append(copy.deepcopy(self))
        return fla.plain.QuasarAttention.forward(self.first[0], x)
