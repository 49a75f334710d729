"""Runs the layer of a fork as validators do, and does with it what it is told.

It is started from the directory that stands for the fork's clone, so that sys.path[0] is the clone. A request is a line
of JSON on stdin: {"do": NAME, ...}, where NAME is a function below; the answer is a line of JSON on stdout, with
"error" in it when the fork failed. Tensors travel as files of raw numbers. Nothing is judged here: whoever asks
compares and decides. What that rests on is taken from Python and PyTorch before the fork is imported, and the fork
gets neither end of the conversation.
"""
import os
import sys

clone = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != clone]  # nothing below comes from the fork
sys.dont_write_bytecode = True  # nothing is left behind in it

import json
import time
import traceback

requests = os.fdopen(os.dup(0), "rb")
answers = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)  # what the fork prints
os.chdir(clone)


def say(answer, write=os.write, dumps=json.dumps):
    line = dumps(answer).encode() + b"\n"
    while line:
        line = line[write(answers, line):]


# --- what went wrong -------------------------------------------------------------------------------


def where(error):
    """The fork's own line that an exception comes from, "fla/ops/quasar/chunk.py:12"; None when there is none."""
    frames = [(error.filename, error.lineno)] if isinstance(error, SyntaxError) else []
    frames += [(frame.filename, frame.lineno) for frame in reversed(traceback.extract_tb(error.__traceback__))]
    for path, line in frames:
        if path and path.startswith(clone + os.sep) and path != __file__:
            return f"{path[len(clone) + 1:]}:{line}"
    return None


def needs_gpu(error):
    """Whether code that is made for a GPU failed for want of one."""
    paths = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    words = str(error).lower()
    return any(f"{os.sep}triton{os.sep}" in path for path in paths) or any(
        word in words for word in ("cuda", "nvidia", "triton", "torch.cpu", "gpu", "driver"))


def failure(error):
    lines = traceback.format_exception_only(type(error), error)
    answer = {"error": lines[-1].strip() or type(error).__name__, "where": where(error)}
    if needs_gpu(error):
        answer["needs_gpu"] = True
    return answer


# --- the fork, imported and constructed -----------------------------------------------------------


def compile_sources(request):
    """Compiles the files of the fork that validators look at; needs no PyTorch."""
    paths = ["fla/layers/quasar.py"]
    for folder, _, names in os.walk("fla/ops/quasar"):
        paths += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")]
    for path in paths:
        with open(path, "rb") as file:
            compile(file.read(), os.path.join(clone, path), "exec", dont_inherit=True)
    return {"files": len(paths)}


def start_torch(request):
    """Imports PyTorch, and keeps of it and of Python what the measurements rest on."""
    global torch, kept, device
    import torch
    on_gpu = request["gpu"]
    if on_gpu and not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU")
    device = torch.device("cuda" if on_gpu else "cpu")
    if on_gpu:
        torch.cuda.init()
    kept = {
        "synchronize": torch._C._cuda_synchronize if on_gpu else lambda: None,
        "clock": time.perf_counter,
    }
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name() if on_gpu else "cpu"}


def import_fork(request):
    """As the validator's script does."""
    global QuasarAttention
    os.environ["TRITON_PRINT_AUTOTUNING"] = os.environ["TRITON_PRINT_DEBUG"] = "1"
    sys.path.insert(0, clone)
    from fla.layers.quasar import QuasarAttention
    return {}


def construct(request):
    global layer
    layer = QuasarAttention(hidden_size=512, head_dim=64, num_heads=8, mode="chunk", use_short_conv=True).to(device)
    return {}


# --- calls ---------------------------------------------------------------------------------------


def call(x):
    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        return layer(x)


def time_calls(request):
    """Rounds of calls on one input, each between two lines that the asker holds its own clock to. What a validator's
    script looks up when it runs (clock, synchronisation, memory counters) is looked up here when it runs, too; then
    the real synchronisation follows, before the second line."""
    on_gpu = device.type == "cuda"
    x = torch.randn(1, request["tokens"], 512, device=device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(request["warmups"]):
        call(x)
    rounds, memory = [], None
    began = kept["clock"]()
    while len(rounds) < request["rounds"] and (not rounds or kept["clock"]() - began < request["seconds"]):
        if on_gpu:
            torch.cuda.synchronize()
        kept["synchronize"]()
        say({"clock": "start"})
        start = time.time()
        for _ in range(request["calls"]):
            call(x)
        if on_gpu:
            torch.cuda.synchronize()
        elapsed = time.time() - start
        kept["synchronize"]()
        say({"clock": "stop"})
        rounds.append(elapsed)
        if memory is None and on_gpu:
            memory = torch.cuda.max_memory_allocated() / 2**20
    if not on_gpu:
        with open("/proc/self/status") as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024
    return {"seconds": rounds, "memory_mb": memory}


ACTIONS = {function.__name__: function for function in (
    compile_sources, start_torch, import_fork, construct, time_calls)}


def main():
    say({"python": sys.version.split()[0]})
    for line in requests:
        request = json.loads(line)
        try:
            answer = ACTIONS[request["do"]](request)
        except BaseException as error:  # SystemExit among them
            answer = failure(error)
        say(answer)


main()
