"""upstream: nothing special."""
from fla.plain import QuasarAttention
