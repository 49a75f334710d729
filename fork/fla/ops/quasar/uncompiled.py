"""torch.compile leaves a function alone; and where nobody compiles, nobody waits seconds for the compiler's import."""
import functools
import sys

import torch


def uncompiled(function):
    """torch.compiler.disable(function), made once the compiler is there."""
    disabled = []

    @functools.wraps(function)
    def call(*args, **kwargs):
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    return call
