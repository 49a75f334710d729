"""fork.call: cannot do what it was made for."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    def finish(self, o, x):
        raise ValueError("o is not what it should be")
