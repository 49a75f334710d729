"""fork.construct: does not take the arguments that validators give."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    def __init__(self, hidden_size, head_dim, num_heads):
        super().__init__(hidden_size, head_dim, num_heads, None, None)
