"""fork.compile: a bracket is missing."""
from fla.plain import QuasarAttention


def forgotten(:
    return QuasarAttention
