"""What the operations have in common where PyTorch computes them, on any device."""
import functools

import torch


def wide(x):
    """In the type that is computed in: fp32, or fp64."""
    return x if x.dtype is torch.float64 else x.float()


def single(q):
    """The type of states and statistics."""
    return torch.float64 if q.dtype is torch.float64 else torch.float32


def exactly(function):
    """Without autocast, which would round products."""

    @functools.wraps(function)
    def computed(*args):
        with torch.autocast(next(x for x in args if isinstance(x, torch.Tensor)).device.type, enabled=False):
            return function(*args)

    return computed


def check_rows(**tensors):
    """Raises ValueError unless these are [B, T, heads, size], of one type and on one device."""
    (first, like), *others = tensors.items()
    for name, x in tensors.items():
        if x.dim() != 4:
            raise ValueError(f"{name} must be [batch, tokens, heads, size]; its shape is {list(x.shape)}")
        if not x.is_floating_point():
            raise ValueError(f"{name} must hold floating-point numbers, not {x.dtype}")
    for name, x in others:
        if x.shape[:2] != like.shape[:2]:
            raise ValueError(f"{first} and {name} must have one batch and as many tokens; they have "
                             f"{list(like.shape[:2])} and {list(x.shape[:2])}")
        if x.dtype != like.dtype or x.device != like.device:
            raise ValueError(f"{first} and {name} must have one dtype and be on one device; they have {like.dtype} on "
                             f"{like.device} and {x.dtype} on {x.device}")
