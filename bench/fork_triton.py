"""Times the fork's Triton back end on this GPU, and each of its kernels: PYTHONPATH=fork python3 bench/fork_triton.py

One sequence, 8 heads of 64, bf16. The first call of a kind compiles and tunes, and is not timed.
"""
import torch
import triton

from fla.ops.quasar import triton_backend
from fla.ops.quasar import triton_kernels

for tokens in (2048, 100_000, 1_000_000):
    q, k, v = (torch.randn(1, tokens, 8, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    beta = torch.rand(8, device="cuda") + 0.5
    for semantics in ("upstream", "causal"):
        call = lambda: triton_backend.forward(q, k, v, beta, None, semantics)
        time = triton.testing.do_bench(call)
        print(f"{tokens:9,} tokens, {semantics}: {time:.3f} ms, {tokens / time / 1e3:.0f} M tokens/s")
        with torch.profiler.profile() as profile:
            call()
        for event in sorted(profile.key_averages(), key=lambda event: -event.device_time_total)[:3]:
            tuned = getattr(triton_kernels, event.key, None)
            print(f"          {event.key} {event.device_time_total / 1e3:.3f} ms", getattr(tuned, "best_config", ""))
