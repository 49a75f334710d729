"""fork.import: has a torch.py of its own at its root, which validators would import; the test puts it there."""
from fla.plain import QuasarAttention
