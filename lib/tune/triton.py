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


def start(request):
    """Imports what a validator's script does, and with it the kernels."""
    sys.path.insert(0, request["fork"])
    importlib.import_module("fla.layers.quasar")
    return {}


def kernel_of(build):
    from triton.runtime.jit import JITFunction
    thing = importlib.import_module(build["module"])
    for name in build["function"].split("."):
        thing = getattr(thing, name)
    while not isinstance(thing, JITFunction):  # the autotuner, heuristics
        thing = thing.fn
    return thing


def as_tuples(value):
    """JSON knows lists alone."""
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def compile_one(build, config):
    """What was made in one configuration, in another."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, make_backend
    made, target = json.loads(build["made_from"]), GPUTarget(*build["target"])
    signature = {name: as_tuples(kind) for name, kind in made["signature"].items()}
    constants = {tuple(place): triton.language.dtype(value) if is_type else value for place, value, is_type in build["constants"]}
    constants.update({(list(signature).index(name),): value for name, value in config["kwargs"].items()})
    options = {name: as_tuples(value) for name, value in made["options"].items()}
    options.update(num_warps=config["num_warps"], num_stages=config["num_stages"], num_ctas=config.get("num_ctas", 1),
                   maxnreg=config.get("maxnreg"))
    return triton.compile(
        ASTSource(kernel_of(build), signature, constants, dict(zip(map(tuple, made["attrs_keys"]), made["attrs_vals"]))),
        target=target, options=make_backend(target).parse_options(options).__dict__)


def compile_all(request):
    return {"shared_bytes": max(compile_one(build, request["config"]).metadata.shared for build in request["builds"])}


def words_of(error):
    """The last line that says something, of what was raised first."""
    while error.__cause__:
        error = error.__cause__
    lines = [line for line in str(error).splitlines() if line.strip(" ^~")]
    return lines[-1].strip() if lines else type(error).__name__


for line in requests:
    request = json.loads(line)
    opens = request["do"] == "open"
    try:
        answer = start(request) if opens else compile_all(request)
    except Exception as error:
        answer = {"error": words_of(error) if opens else f"cannot be compiled: {words_of(error)}",
                  "status": ENVIRONMENT if opens else CANDIDATE}
    answers.write(json.dumps(answer).encode() + b"\n")
