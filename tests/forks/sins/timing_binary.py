"""fork.timing: prints what is no text, by which all that a validator would read is lost."""
import os

from fla.plain import QuasarAttention

os.write(2, b"\xff\xfe\n")
