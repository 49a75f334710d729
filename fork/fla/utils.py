"""What the operations ask about the machine, and the decorators they wear."""
import functools

import torch

IS_AMD = torch.version.hip is not None

DEVICE_TYPE = "cuda" if torch.cuda.is_available() else "cpu"

# for torch.autograd.Function: forward and backward see the same autocast state
autocast_custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=DEVICE_TYPE)
autocast_custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=DEVICE_TYPE)

# keyword arguments for triton.autotune
autotune_cache_kwargs = {}

# bytes of shared memory that a block may use on these cards
SHARED_MEMORY = {"ada": 101376, "ampere": 166912, "hopper": 232448}


def check_shared_mem(arch="none", tensor_idx=0):
    """Whether a block on the device may use as much shared memory as on a card of that architecture, or 100 KB."""
    if not torch.cuda.is_available():
        return False
    properties = torch.cuda.get_device_properties(tensor_idx)
    return getattr(properties, "shared_memory_per_block_optin", 0) >= SHARED_MEMORY.get(arch.lower(), 102400)


def input_guard(function):
    """Makes tensor arguments contiguous, and theirs the current device."""

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        def contiguous(value):
            return value.contiguous() if isinstance(value, torch.Tensor) else value

        args = [contiguous(value) for value in args]
        kwargs = {name: contiguous(value) for name, value in kwargs.items()}
        for value in (*args, *kwargs.values()):
            if isinstance(value, torch.Tensor) and value.is_cuda:
                with torch.cuda.device(value.device):
                    return function(*args, **kwargs)
        return function(*args, **kwargs)

    return guarded
