"""fork.finite: divides by what may be zero."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    def finish(self, o, x):
        y = super().finish(o, x)
        return y / (x[..., :1] > -2)  # one token in forty is below
