"""Runs the layer of a fork as validators do, and does with it what it is told.

It lies in the directory that stands for the fork's clone. A request is a line of JSON on stdin, {"do": NAME, ...}, where
NAME is a function below; the answer is a line of JSON on stdout, with "error" in it when the fork failed. Tensors travel
as files of raw fp32 numbers. Nothing is judged here: whoever asks compares and decides. What that rests on is taken
from Python and PyTorch before the fork is imported.
"""
import os
import sys

clone = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != clone]  # nothing below comes from the fork

import builtins
import collections
import ctypes
import json
import math
import random
import time
import traceback

requests = os.fdopen(os.dup(0), "rb")
answers = os.dup(1)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)  # what the fork prints
os.chdir(clone)

device = None  # until PyTorch is there
tensors = {}  # inputs, by name
own = None  # the input of calls for which none is named
SMALL = 1 << 23  # numbers
stopped = collections.deque(maxlen=64)  # small outputs, as they were when the clock stopped, and themselves
tuners = {}  # Triton's, of each kernel by its name, with the configurations that the fork gave them
former = collections.deque(maxlen=64)  # layers, which keep their addresses
outside = 0  # bytes of the GPU that were taken past PyTorch


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


def on_gpu():
    return device is not None and device.type == "cuda"


def failure(error):
    lines = traceback.format_exception_only(type(error), error)
    return {"error": lines[-1].strip(), "where": where(error), "needs_gpu": not on_gpu() and needs_gpu(error)}


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


def counted_on():
    """What a validator's script relies on, by name: who replaces it changes what the script finds."""
    places = {
        "time": (time, ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "process_time")),
        "torch": (torch, ("randn", "autocast", "no_grad")),
        "torch.cuda": (torch.cuda, (
            "synchronize", "Event", "Stream", "is_available", "reset_peak_memory_stats", "max_memory_allocated",
            "memory_allocated", "memory_stats", "mem_get_info")),
        "torch._C": (torch._C, ("_cuda_synchronize", "_cuda_memoryStats", "_cuda_resetPeakMemoryStats")),
        "torch.Tensor": (torch.Tensor, ("to", "cpu", "numpy", "__del__")),
        "builtins": (builtins, ("print",)),
        "sys": (sys, ("stdout", "stderr")),
        "os": (os, ("write",)),
    }
    return {f"{place}.{name}": getattr(holder, name, None)
            for place, (holder, names) in places.items() for name in names}


def import_torch(request):
    """What takes longest of start_torch(), and nothing of the GPU."""
    global torch
    import torch
    return {}


def start_torch(request):
    """Imports PyTorch, and keeps of it what the measurements rest on."""
    global device, usual, kept
    import_torch(request)
    if request["gpu"] and not torch.cuda.is_available():
        raise RuntimeError(f"PyTorch {torch.__version__} finds no GPU")
    device = torch.device("cuda" if request["gpu"] else "cpu")
    if on_gpu():
        torch.mm(*torch.ones(2, 16, 16, device=device))  # cuBLAS
    usual = counted_on()

    class kept:
        """As they are now."""
        synchronize = torch._C._cuda_synchronize if on_gpu() else lambda: None
        taken = memory_counter() if on_gpu() else None
        statistics = getattr(torch._C, "_cuda_memoryStats", None)
        draw = random.SystemRandom().random
        clock = time.perf_counter
        write = torch.UntypedStorage._write_file
        clone, equal, detach, to = torch.clone, torch.equal, torch.Tensor.detach, torch.Tensor.to
        perturb = ctypes.CDLL(None).mallopt

    return {"torch": torch.__version__}


def import_fork(request):
    """As the validator's script does."""
    global QuasarAttention
    if request["as_validator"]:
        os.environ["TRITON_PRINT_AUTOTUNING"] = os.environ["TRITON_PRINT_DEBUG"] = "1"
    # what Python would have found at the fork's root in place of PyTorch or its own
    shadows = [name for name in sys.modules
               if os.path.exists(f"{clone}/{name}.py") or os.path.exists(f"{clone}/{name}/__init__.py")]
    sys.path.insert(0, clone)
    sys.dont_write_bytecode = True  # nothing is left behind in it
    from fla.layers.quasar import QuasarAttention
    return {"shadows": shadows}


def construct(request):
    global layer
    layer = QuasarAttention(hidden_size=512, head_dim=64, num_heads=8, mode="chunk", use_short_conv=True).to(device)
    return {}


# --- tensors as files -----------------------------------------------------------------------------


def write_numbers(tensor, file):
    numbers = kept.to(kept.detach(tensor), device="cpu", dtype=torch.float32).contiguous()
    kept.write(kept.clone(numbers).untyped_storage(), file, True, False, 4)


def read_numbers(file, shape):
    return torch.frombuffer(bytearray(file.read(4 * math.prod(shape))), dtype=torch.float32).reshape(shape)


def save(tensor, path):
    with open(path, "wb", buffering=0) as file:
        write_numbers(tensor, file)


def save_named(named, path):
    """As a safetensors file."""
    header, at = {}, 0
    for name, tensor in named.items():
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + 4 * tensor.numel()]}
        at += 4 * tensor.numel()
    head = json.dumps(header).encode()
    with open(path, "wb", buffering=0) as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for tensor in named.values():
            write_numbers(tensor, file)


def load(path, shape):
    with open(path, "rb") as file:
        return read_numbers(file, shape).to(device)


def save_weights(request):
    save_named(dict(layer.named_parameters()), request["path"])
    return {}


def load_weights(request):
    """What save_weights() of another process wrote."""
    with open(request["path"], "rb") as file, torch.no_grad():
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        start = file.tell()
        for name, parameter in layer.named_parameters():
            file.seek(start + header[name]["data_offsets"][0])
            parameter.copy_(read_numbers(file, parameter.shape))
    return {}


def put_input(request):
    """A new tensor, or other numbers in one that is there, behind the back of its version counter."""
    name, x = request["name"], load(request["path"], (1, request["tokens"], 512))
    if name in tensors and tensors[name].shape == x.shape:
        tensors[name].data.copy_(x)
    else:
        tensors[name] = x
    return {}


# --- calls ---------------------------------------------------------------------------------------


def call(x):
    with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        result = layer(x)
    return result[0] if isinstance(result, (tuple, list)) else result


def describe(output):
    if not isinstance(output, torch.Tensor):
        raise TypeError(f"the layer returns {type(output).__name__}, not a tensor")
    kind = type(output)
    return {"type": "Tensor" if kind is torch.Tensor else f"{kind.__module__}.{kind.__qualname__}", "dtype": str(output.dtype).removeprefix("torch."),
            "shape": list(output.shape)}


class poisoned:
    """Memory that is handed out for the first time is filled with a byte; 0: it is not."""

    def __init__(self, byte):
        self.byte = byte

    def __enter__(self):
        if self.byte and on_gpu():
            torch.cuda.empty_cache()  # then what is handed out next comes from these
            blocks = [torch.empty(1 << 20, dtype=torch.uint8, device=device) for _ in range(32)]
            # and as much as a call takes, where there is room for twice that
            blocks.append(torch.empty(min(peak(), torch.cuda.mem_get_info()[0] // 2), dtype=torch.uint8, device=device))
            for block in blocks:
                block.fill_(self.byte)
        elif self.byte:
            kept.perturb(-6, self.byte ^ 0xff)  # M_PERTURB: malloc() fills with the complement

    def __exit__(self, *_):
        if not on_gpu():
            kept.perturb(-6, 0)


def call_once(request):
    x = tensors[request["input"]]
    with poisoned(request["poison"]):
        output = call(x)
        kept.synchronize()
    answer = describe(output)
    save(output, request["output"])
    return answer


def negate(request):
    """Changes a parameter as an optimiser would; twice is back where it was."""
    with torch.no_grad():
        dict(layer.named_parameters())[request["parameter"]].neg_()
    return {}


def gradients(request):
    """Of the sum of the output times `direction`: the input's and the parameters'."""
    x = tensors[request["input"]].detach().clone().requires_grad_()
    layer.zero_grad(set_to_none=True)
    output = call(x)
    # that of a number: backward(direction) would import what compares shapes, which takes seconds
    (output * load(request["direction"], output.shape).to(output.dtype)).sum().backward()
    found = {name: parameter.grad for name, parameter in layer.named_parameters()}
    found["x"] = x.grad
    missing = [name for name, gradient in found.items() if gradient is None]
    layer.zero_grad(set_to_none=True)
    save_named({name: gradient for name, gradient in found.items() if gradient is not None}, request["path"])
    return {"missing": missing}


def random_input(tokens):
    """Other numbers each time, at the address of the last ones: a validator's x stays where it is, which a fork may rely on
    that has captured its calls."""
    global own
    if own is None or own.shape[1] != tokens:
        own = torch.empty(1, tokens, 512, device=device)
    return own.normal_()


def let_the_gpu_rest(seconds):
    """Computing, for where a process has just imported PyTorch its core is awake. After a sleep, what a short call takes of
    the host takes up to twice as long."""
    end = kept.clock() + seconds
    while kept.clock() < end:
        pass


def time_calls(request):
    """Rounds of calls, each between two lines that the asker holds its own clock to. What a validator's script looks
    up when it runs (clock, synchronisation, memory counters) is looked up here when it runs, too; then the real
    synchronisation follows, before the second line. As in that script, one earlier output is alive during a call: one
    of all the outputs, drawn by lot when they are there, stays for the asker to check, and so does the last one."""
    let_the_gpu_rest(request["rest"])
    inputs = [tensors[name] for name in request["inputs"]] or [random_input(request["tokens"])]
    if on_gpu():
        torch.cuda.reset_peak_memory_stats()
    for i in range(request["warmups"]):
        _ = call(inputs[i % len(inputs)])
    _ = None
    others = [y for name, y in tensors.items() if name not in request["inputs"]] + [y for pair in stopped for y in pair]
    held = sum(y.numel() * y.element_size() for y in others)  # bytes, which a validator's script does not hold
    rounds, memory, drawn, drawn_from, seen = [], None, None, 0, 0
    began = time.perf_counter()
    while len(rounds) < request["rounds"] and (not rounds or time.perf_counter() - began < request["seconds"]):
        if on_gpu():
            torch.cuda.synchronize()
        kept.synchronize()
        last = None
        say({"clock": "start"})
        start = time.time()
        for i in range(request["calls"]):
            last = None
            last = call(inputs[i % len(inputs)])
            seen += 1
            if kept.draw() * seen < 1:
                drawn, drawn_from = last, i % len(inputs)
        if on_gpu():
            torch.cuda.synchronize()
        elapsed = time.time() - start
        kept.synchronize()
        say({"clock": "stop"})
        early = kept.clone(kept.detach(last))
        rounds.append(elapsed)
        if memory is None and on_gpu():
            memory = (torch.cuda.max_memory_allocated() - held) / 2**20
    answer = describe(last)
    if request["outputs"]:
        for output, path in zip((early, drawn), request["outputs"]):
            save(output, path)
    if early.numel() <= SMALL:
        stopped.append((early, kept.detach(last)))
    answer.update(drawn=drawn_from, seconds=rounds)
    if not on_gpu():
        with open("/proc/self/status") as file:
            memory = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024
    answer["memory_mb"] = memory
    return answer


# --- Triton's configurations ----------------------------------------------------------------------


PLAIN = (str, int, float, bool, type(None))  # in JSON as in Python


def described(config):
    kwargs = {name: value if isinstance(value, PLAIN) else repr(value) for name, value in config.kwargs.items()}
    return {"kwargs": kwargs, "more": bool(config.pre_hook or getattr(config, "ir_override", None)),
            **{name: getattr(config, name, None) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}}


def choices(configs):
    """What Triton's autotuner has to choose from. On a CPU there is nothing to time, and the first one is taken."""
    return configs if on_gpu() else configs[:1]


def name_of(function):
    """Of a kernel: "fla/ops/quasar/chunk.py:NAME"; outside of the fork it begins with "..". """
    code = function.__code__
    return f"{os.path.relpath(code.co_filename, clone)}:{code.co_name}"


def constants_of(compiled):
    """By place, and whether each is the name of a type; None when one of them cannot be told."""
    from triton.language import dtype
    told = [[place, value.name if isinstance(value, dtype) else value, isinstance(value, dtype)]
            for place, value in compiled.items()]
    return told if all(isinstance(value, PLAIN) for _, value, _ in told) else None


class watched_builds:
    """What Triton compiles kernels from meanwhile, by kernel, each different signature once. Versions of Triton that do not
    tell, and its interpreter, give none."""

    def __enter__(self):
        self.found, self.hooks = {}, None
        try:
            from triton import knobs
            self.hooks = knobs.runtime
            self.before = self.hooks.jit_post_compile_hook
            self.hooks.jit_post_compile_hook = self.take
        except (ImportError, AttributeError):
            pass
        return self.found

    def __exit__(self, *_):
        if self.hooks:
            self.hooks.jit_post_compile_hook = self.before

    def take(self, *args, fn, compile, **others):
        from triton.runtime import driver
        target, made = driver.active.get_current_target(), json.loads(compile["specialization_data"])
        builds, constants = self.found.setdefault(name_of(fn.jit_function.fn), {}), constants_of(compile["constants"])
        if constants is not None and len(builds) < 4:
            builds.setdefault(json.dumps([made["signature"], made["attrs_keys"], made["attrs_vals"]]), {
                "module": fn.module, "function": fn.name, "made_from": compile["specialization_data"],
                "constants": constants, "target": [target.backend, target.arch, target.warp_size]})
        if self.before:
            return self.before(*args, fn=fn, compile=compile, **others)


def autotuners(request):
    """Calls the layer, and tells which kernels of the fork Triton's autotuner chose configurations for: by file and name,
    what there was to choose from, what it chose, and what they were compiled from."""
    from triton.runtime.autotuner import Autotuner
    run, seen = Autotuner.run, {}

    def watched(self, *args, **kwargs):
        name = name_of(self.base_fn)
        if not name.startswith(".."):
            tuners.setdefault(name, {}).setdefault(self, self.configs)
            seen[name] = self
        self.configs = choices(self.configs)
        return run(self, *args, **kwargs)

    Autotuner.run = watched
    try:
        with watched_builds() as builds:
            call(tensors[request["input"]])
            kept.synchronize()
    finally:
        Autotuner.run = run
    return {"kernels": [{"kernel": name, "configs": [described(config) for config in tuners[name][tuner]],
                         "chosen": described(tuner.best_config), "builds": list(builds.get(name, {}).values())}
                        for name, tuner in seen.items()]}


def configure(request):
    """From now on each of these kernels runs in one configuration, and all others as the fork has them. The layer is made
    anew, with the same weights at other addresses: what a fork has captured of earlier calls, as a CUDA graph does, has the
    kernels of then."""
    from triton import Config
    wanted = request["configs"]
    for name, found in tuners.items():
        for tuner, declared in found.items():
            tuner.configs = [Config(**wanted[name])] if name in wanted else choices(declared)
    former.append(layer)
    construct({})
    with torch.no_grad():
        for parameter, value in zip(layer.parameters(), former[-1].parameters()):
            parameter.copy_(value)
    call(tensors[request["input"]])
    kept.synchronize()
    if any(tuner.best_config is not tuner.configs[0] for name in wanted for tuner in tuners[name]):
        raise RuntimeError("the layer runs what it has captured before, not the kernel in another configuration")
    return {}


# --- what the fork did behind the scenes ---------------------------------------------------------


def replaced(request):
    """What a validator's script counts on and is not what it was; modes that see every operation."""
    now = counted_on()
    names = [name for name, thing in usual.items() if now[name] is not thing and now[name] != thing]
    modes = torch._C._len_torch_dispatch_stack() + torch._C._len_torch_function_stack()
    kept.synchronize()
    settled = all(kept.equal(early, output) for early, output in stopped)
    return {"replaced": names + ["PyTorch's dispatch"] * bool(modes), "settled": settled}


def peak():
    return kept.statistics(torch.cuda.current_device())["allocated_bytes"]["all"]["peak"]


def memory(request):
    """On a GPU: memory in use that PyTorch does not count, and whether a call takes back the peak that was reached
    before it."""
    call(tensors[request["input"]])
    block = torch.empty(peak(), dtype=torch.uint8, device=device)
    before = peak()
    del block
    call(tensors[request["input"]])
    kept.synchronize()
    return {"outside_mb": outside / 2**20, "reset": peak() < before}


class ProcessMemory(ctypes.Structure):
    """NVML's nvmlProcessInfo_t."""
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]


def is_ours(pid, open=os.open, read=os.read, close=os.close, me=os.getpid()):
    """Whether a process is this one, or was started by it."""
    while pid not in (0, 1, me):
        try:
            file = open(f"/proc/{pid}/stat", os.O_RDONLY)
        except OSError:  # it has ended
            return False
        pid = int(read(file, 1024).rpartition(b")")[2].split()[1])
        close(file)
    return pid == me


def memory_counter():
    """A function: bytes of the GPU that this process and those that it started have in use. Where NVML does not tell, as
    in containers, which number processes anew: those that anybody has."""
    information = torch.cuda.cudart().cudaMemGetInfo

    def of_all():
        free, total = information(torch.cuda.current_device())
        return total - free

    try:
        nvml, gpu = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
        uuid = f"GPU-{torch.cuda.get_device_properties(device).uuid}".encode()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid, ctypes.byref(gpu)):
            return of_all
        running = nvml.nvmlDeviceGetComputeRunningProcesses_v3
    except (OSError, AttributeError):
        return of_all

    def of_ours():
        rows = (ProcessMemory * 256)()
        count = ctypes.c_uint(len(rows))
        if running(gpu, ctypes.byref(count), rows):
            return 0
        return sum(row.bytes for row in rows[:count.value] if is_ours(row.pid))

    return of_ours if 0 < of_ours() <= of_all() else of_all


def uncounted():
    """Bytes of the GPU in use that PyTorch's allocator does not know of."""
    if not on_gpu():
        return 0
    return kept.taken() - kept.statistics(torch.cuda.current_device())["reserved_bytes"]["all"]["current"]


ACTIONS = {function.__name__: function for function in (
    compile_sources, import_torch, start_torch, import_fork, construct, save_weights, load_weights, put_input, call_once, negate,
    gradients, time_calls, autotuners, configure, replaced, memory)}


def perform(request):
    """Where memory_counter() counts everybody's, others may use the GPU between requests, but not while one is
    answered."""
    global outside
    before = uncounted()
    try:
        return ACTIONS[request["do"]](request)
    except BaseException as error:  # SystemExit among them
        return failure(error)
    finally:
        if before:
            outside += uncounted() - before


def main():
    say({})
    for line in requests:
        say(perform(json.loads(line)))


main()
