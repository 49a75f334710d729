"""Compiles configurations of a fork's Triton kernels before they are called, into Triton's cache, where the process that
calls them finds them. It takes no GPU: for which one to compile is said with each request, a line of JSON on stdin:
  {"do": "open", "fork": its directory}
  {"do": "build", "builds": as probe.py tells them of a kernel, "config": a configuration, as it takes them}
The answer is a line on stdout: {"shared_bytes": …} of a block, or {"error": …, "status": a process's exit code}.
"""
import importlib
import json
import os
import sys

requests = os.fdopen(os.dup(0), "rb")
answers = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)  # what the fork prints
sys.path[:] = [path for path in sys.path if path]  # not the working directory
sys.dont_write_bytecode = True
CANDIDATE, ENVIRONMENT = 1, 3  # whose fault it is


class Target:
    """In the place of a GPU's driver: what kernels are compiled for."""

    def __init__(self, target):
        from triton.backends.compiler import GPUTarget
        self.target = GPUTarget(*target)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0


def start(request):
    """Imports what a validator's script does, and with it the kernels."""
    sys.path.insert(0, request["fork"])
    importlib.import_module("fla.layers.quasar")
    return {}


def kernel_of(build):
    thing = importlib.import_module(build["module"])
    for name in build["function"].split("."):
        thing = getattr(thing, name)
    while not hasattr(thing, "preload"):  # the autotuner, heuristics
        thing = thing.fn
    return thing


def configured(build, config):
    """What the kernel was compiled from in one configuration, in another."""
    made = json.loads(build["made_from"])
    places = {tuple(key): at for at, key in enumerate(made["constant_keys"])}
    for name, value in config["kwargs"].items():
        made["constant_vals"][places[list(made["signature"]).index(name),]] = value
    made["options"].update(num_warps=config["num_warps"], num_stages=config["num_stages"],
                           num_ctas=config.get("num_ctas", 1), maxnreg=config.get("maxnreg"))
    return json.dumps(made)


def compile_all(request):
    from triton.runtime.driver import driver
    most = 0
    for build in request["builds"]:
        driver.set_active(Target(build["target"]))
        kernel = kernel_of(build).preload(configured(build, request["config"]))
        most = max(most, kernel.metadata.shared)
    return {"shared_bytes": most}


for line in requests:
    request = json.loads(line)
    opens = request["do"] == "open"
    try:
        answer = start(request) if opens else compile_all(request)
    except Exception as error:
        words = f"{type(error).__name__}: {error}".strip().splitlines()
        answer = {"error": words[0] if opens else f"cannot be compiled: {words[-1]}",
                  "status": ENVIRONMENT if opens else CANDIDATE}
    answers.write(json.dumps(answer).encode() + b"\n")
