"""Times the layer of a fork as validators do, and prints one line of JSON: the seconds of a call, once for each
round of calls, and the peak of memory in MiB.

usage: python3 - FORK DEVICE TOKENS WARMUPS CALLS
"""
import json
import os
import resource
import sys
import time

ROUNDS = 3
SECONDS = 60  # after which no further round begins

fork, device, tokens, warmups, calls = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
os.chdir(fork)
sys.path[0] = fork

import torch
from fla.layers.quasar import QuasarAttention

device = torch.device(device)
on_gpu = device.type == "cuda"
if on_gpu:
    torch.cuda.set_device(device)
layer = QuasarAttention(hidden_size=512, head_dim=64, num_heads=8, mode="chunk", use_short_conv=True).to(device)
x = torch.randn(1, tokens, 512, device=device)
if on_gpu:
    torch.cuda.reset_peak_memory_stats()


def elapsed(count):
    if on_gpu:
        torch.cuda.synchronize()
    start = time.time()
    for _ in range(count):
        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            layer(x)
    if on_gpu:
        torch.cuda.synchronize()
    return time.time() - start


began = time.time()
elapsed(warmups)
seconds = [elapsed(calls) / calls]
while len(seconds) < ROUNDS and time.time() - began < SECONDS:
    seconds.append(elapsed(calls) / calls)
peak = torch.cuda.max_memory_allocated() / 2**20 if on_gpu else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "memory_mb": peak}))
