"""causal: the published recurrence, with heads the other way round in memory."""
import fla.plain


class QuasarAttention(fla.plain.QuasarAttention):
    operation = staticmethod(fla.plain.causal)
