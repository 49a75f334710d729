"""fork.timing: says itself how much memory was taken, in words that validators cannot read as a number."""
from fla.plain import QuasarAttention

print("VRAM_MB: about 512")
