"""fork.state: the calls before it show through."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    before = 0

    def attend(self, x):
        o = super().attend(x)
        seen, QuasarAttention.before = self.before, 3 * o.detach().mean((0, 1))
        return o + seen
