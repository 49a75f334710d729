"""upstream: prints, reads the clock and the command line, and leaves the directory."""
import os
import sys
import time
import warnings

import fla.plain
import torch

print("RESULTS will follow", *sys.argv)
warnings.warn("this fork is experimental")
os.chdir("/")


def synchronize_later():
    """Not what it sounds like."""
    return time.time()


class QuasarAttention(fla.plain.QuasarAttention):
    def forward(self, x):
        began = synchronize_later()
        result = super().forward(x)
        print("forward:", time.time() - began, torch.cuda.is_available(), file=sys.stderr)
        return result
