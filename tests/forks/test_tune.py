"""`quasar tune --triton`: the kernels of a fork, tuned in place within its layer. Where there is no GPU, Triton's interpreter
runs them: slowly, and the same way."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from conftest import ROOT
from sample_fork import Fork

pytest.importorskip("triton")
HERE = pathlib.Path(__file__).parent
LAYER = "fla/layers/quasar.py"
KERNEL = "fla/layers/quasar.py:copy"
ATTEMPTS = 8  # on a busy machine noise may hide what is faster


@pytest.fixture
def fork(tmp_path):
    fork = Fork(tmp_path / "fork")
    (fork.path / "fla" / "layers").mkdir()
    shutil.copy(HERE / "tunable.py", fork.path / LAYER)
    (fork.path / "fla" / "utils.py").write_text("")
    (fork.operators / "chunk.py").write_text("")
    fork.commit()
    return fork


@pytest.fixture
def tune(quasar, fork):
    def tune(*args):
        surroundings = {name: value for name, value in os.environ.items() if name.startswith("LD_")}
        if not torch.cuda.is_available():
            surroundings.update(TRITON_INTERPRET="1", OMP_NUM_THREADS="1")
        return quasar("tune", "--triton", "--fork", fork.path, "--python", sys.executable, "--seq", 64, "--strategy", "local",
                      "--budget", 120, *args, env=surroundings)

    return tune


def test_a_kernel_is_tuned_checked_and_written(tune, fork):
    before = (fork.path / LAYER).read_text()
    for _ in range(ATTEMPTS):
        fork.git("checkout", "-q", LAYER)
        done = tune("--write", "--json")
        assert done.code == 0, done.err
        [row] = done.json["kernels"]
        if done.json["written"] and row["parameters"]["BLOCK"] >= 64 and "BLOCK=256" in done.err:
            break
    assert row["kernel"] == "copy" and done.json["predicted"] is False and done.json["written"]
    assert row["parameters"]["BLOCK"] != 256 and "BLOCK=256" in done.err and "computes something else" in done.err
    if not torch.cuda.is_available():  # by a fraction of the programs
        assert row["parameters"]["BLOCK"] >= 64 and done.json["tuned_ms"] < 0.7 * done.json["untuned_ms"]
    after = (fork.path / LAYER).read_text()
    assert after.count("triton.Config(") == 1 and "# one for each taste\n" in after and "# always the same" in after
    lines = [line for line in fork.git("diff", "-U0").splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert [line[0] for line in lines] == ["-", "-", "+"] and f"'BLOCK': {row['parameters']['BLOCK']}" in lines[2]
    assert before.splitlines()[:8] == after.splitlines()[:8]
    assert done.json["changed"] == [KERNEL]
    told = subprocess.run([sys.executable, "-c", "from fla.layers.quasar import copy; print([c.kwargs for c in copy.configs])"],
                          cwd=fork.path, capture_output=True, text=True, check=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert told.stdout.strip() == str([{"BLOCK": row["parameters"]["BLOCK"]}])


def test_where_nothing_is_better_nothing_changes(tune, layer, fork):
    layer(("SOME = 512", "SOME = 16"))  # one program, whatever BLOCK is
    done = tune("--write", "--budget", 5)
    assert done.code == 0, done.err
    assert "Nothing better was found" in done.out and "Written" not in done.out
    assert fork.git("status", "--porcelain") == ""


CALL = "copy[lambda meta: (triton.cdiv(SOME, meta['BLOCK']),)](x, y, SOME)"
# As a fork with CUDA graphs does: what a call ran once is run again, in the configuration of then. {key} is of the layer.
CAPTURED = """if {key} not in captured:
            """ + CALL + """
            captured[{key}] = copy.best_config.kwargs
            if len(captured) > 32:
                del captured[next(iter(captured))]
        else:
            block = captured[{key}]
            copy.fn[(triton.cdiv(SOME, block['BLOCK']),)](x, y, SOME, **block)"""


@pytest.fixture
def layer(fork):
    """Changes the fork's layer: layer((before, after), …)."""

    def change(*changes):
        text = (fork.path / LAYER).read_text()
        for before, after in changes:
            assert before in text
            text = text.replace(before, after)
        (fork.path / LAYER).write_text(text)
        fork.commit()

    return change


def capturing(key):
    return (CALL, CAPTURED.format(key=key)), ("SOME = 512\n", "SOME = 256\ncaptured = {}\n")


def test_what_a_fork_has_captured_is_not_what_is_timed(tune, layer):
    if torch.cuda.is_available():
        pytest.skip("the interpreter's time goes with the number of programs, a GPU's does not")
    layer(*capturing("self.scale.data_ptr()"))
    for _ in range(ATTEMPTS):
        done = tune("--json")
        assert done.code == 0, done.err
        if done.json["tuned_ms"] < 0.7 * done.json["untuned_ms"]:
            break
    assert done.json["tuned_ms"] < 0.7 * done.json["untuned_ms"] and done.json["kernels"][0]["parameters"]["BLOCK"] >= 64


def test_a_layer_that_runs_nothing_but_what_it_has_captured_is_not_timed(tune, layer):
    layer(*capturing("0"))
    done = tune()
    assert done.code == 1 and "runs what it has captured before" in done.err


def test_a_kernel_whose_list_cannot_be_replaced_is_not_tuned(tune, layer):
    layer(("@triton.autotune(\n", "tuned = triton.autotune(\n"), ("@triton.jit\n", "\n\n@tuned\n@triton.jit\n"))
    done = tune()
    assert done.code == 1 and "copy has no decorator with configurations" in done.err


@pytest.mark.long
def test_a_candidate_that_fails_does_not_change_the_weights(tune, layer):
    layer(("torch.ones(hidden_size)", "torch.randn(hidden_size)"), ('tl.static_assert(KIND == "bf16")', "tl.static_assert(BLOCK != 64)"))
    done = tune("--json")
    assert done.code == 0, done.err
    wrong = [line for line in done.err.splitlines() if "computes something else" in line]
    assert "BLOCK=64" in done.err and all("BLOCK=256" in line for line in wrong)


# In place of Triton's own: a kernel says what it would run in, and calls with another `count` like another BLOCK.
CHOOSING = """
import json, os, runpy, sys
room = runpy.run_path("probe.py")["configure"].__globals__  # there are no requests: it only defines what it can do
sys.path.insert(0, os.getcwd())
import torch
from triton.runtime import autotuner, jit
from fla.layers.quasar import QuasarAttention
launched, timed = [], []

def bench(self, *args, config, **others):
    timed.append(config)
    return [abs(config.kwargs["BLOCK"] - args[2] / 2)] * 3

class Kept:
    synchronize = staticmethod(lambda: None)

jit.JITFunction.run = lambda self, x, y, count, BLOCK, **others: launched.append([count, BLOCK])
autotuner.Autotuner._bench = bench
room.update(torch=torch, device=torch.device("cpu"), kept=Kept, QuasarAttention=QuasarAttention, choices=lambda configs: configs,
            tensors={"x": torch.randn(1, 64, 512)})

def ask(name, **request):
    launched.clear()
    timed.clear()
    return {"answer": room[name]({"input": "x", **request}), "launched": list(launched), "timed": len(timed)}

room["construct"]({})
[kernel] = (first := ask("autotuners"))["answer"]["kernels"]
said = [first, ask("configure", configs={kernel["kernel"]: {"kwargs": {"BLOCK": 64}, "num_warps": 4}}), ask("configure", configs={})]
json.dump(said, open("said.json", "w"))
"""


def test_a_kernel_is_told_its_configuration_and_let_go(fork, layer):
    layer((CALL, CALL + "\n        " + CALL.replace("SOME)", "64)")))
    shutil.copy(ROOT / "lib/probe/probe.py", fork.path)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", CHOOSING], cwd=fork.path, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    first, told, let_go = json.loads((fork.path / "said.json").read_text())
    assert first["launched"] == [[512, 128], [64, 32]] and first["timed"] == 4
    assert told["launched"] == [[512, 64], [64, 64]] and told["timed"] == 0
    assert let_go["launched"] == first["launched"] and let_go["timed"] == 0


@pytest.mark.long
def test_a_candidate_that_destroys_the_weights_is_the_only_one_to_fail(tune, layer):
    layer(("        return y", "        if copy.best_config.kwargs['BLOCK'] == 256:\n            self.scale.data.zero_()\n        return y"))
    for _ in range(ATTEMPTS):
        done = tune("--json")
        assert done.code == 0, done.err
        wrong = [line for line in done.err.splitlines() if "computes something else" in line]
        assert all("BLOCK=256" in line for line in wrong)
        if done.json["changed"]:
            break
    assert done.json["changed"] == [KERNEL] and done.json["kernels"][0]["parameters"]["BLOCK"] in (64, 128)


# --- compiled ahead, for a GPU that need not be there ------------------------------------------------

# In place of the session: what it would run is compiled for a GPU, and nothing runs.
SESSION = """
import importlib.util, json, os, runpy, subprocess, sys
probe = runpy.run_path("probe.py")  # there are no requests: it only defines what it can do
sys.path.insert(0, os.getcwd())
import torch, triton
from triton.runtime.driver import driver
from triton.backends.compiler import GPUTarget

class Driver:
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0

driver.set_active(Driver())
from fla.layers.quasar import copy
seen = []
triton.knobs.compilation.listener = lambda cache_hit, **others: seen.append(cache_hit)

def call(block, warps):
    config = triton.Config({"BLOCK": block}, num_warps=warps, num_stages=3)
    copy.fn.warmup(torch.float32, torch.float32, 512, grid=(1,), **config.all_kwargs())

with probe["watched_builds"]() as builds:
    call(32, 4)
[kernel] = builds
lines = [{"do": "open", "fork": os.getcwd()}] + [
    {"do": "build", "builds": list(builds[kernel].values()),
     "config": {"kwargs": {name: value}, "num_warps": 8, "num_stages": 3}} for name, value in (("BLOCK", 64), ("BLOCK", 48))]
done = subprocess.run([sys.executable, "-c", open(sys.argv[1]).read()], input="\\n".join(map(json.dumps, lines)),
                      stdout=subprocess.PIPE, text=True)
call(64, 8)
call(128, 8)
json.dump({"kernel": kernel, "answers": [json.loads(line) for line in done.stdout.splitlines()], "seen": seen},
          open("said.json", "w"))
"""


def test_what_is_compiled_ahead_is_what_the_session_looks_for(fork, tmp_path):
    if not hasattr(pytest.importorskip("triton"), "knobs"):
        pytest.skip("this Triton does not tell what it compiles")
    shutil.copy(ROOT / "lib/probe/probe.py", fork.path)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", SESSION, ROOT / "lib/tune/triton.py"], cwd=fork.path, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**environment, "TRITON_CACHE_DIR": str(tmp_path / "cache")})
    assert done.returncode == 0, done.stderr
    said = json.loads((fork.path / "said.json").read_text())
    assert said["kernel"] == KERNEL
    opened, built, failed = said["answers"]
    assert opened == {} and built["shared_bytes"] >= 0
    assert failed["status"] == 1 and "cannot be compiled" in failed["error"]  # 48 is no power of two
    assert said["seen"] == [False, True, False]  # its own; that which was compiled ahead; one that was not


# --- stored, as what is found on a GPU is ---------------------------------------------------------------

# In place of Python where there is no GPU: the emulated one is quasar's alone, and the fork runs in Triton's interpreter.
INTERPRETED = """#!/bin/sh
unset LD_LIBRARY_PATH
export TRITON_INTERPRET=1 OMP_NUM_THREADS=1
sed -u 's/"gpu":true/"gpu":false/' | '{python}' "$@" | sed -u 's|"path": "{python}"|"path": "{own}"|'
"""


@pytest.fixture
def tune_for_gpu(quasar, fork, tmp_path):
    """Tunes with little effort, and returns the document and what is stored."""
    python, libraries = pathlib.Path(sys.executable), os.environ.get("LD_LIBRARY_PATH", "")
    if not torch.cuda.is_available():
        python, libraries = tmp_path / "python", str(ROOT / "build" / "emulator")
        assert os.path.exists(f"{libraries}/libcuda.so.1"), "make emulator"
        python.write_text(INTERPRETED.format(python=sys.executable, own=python))
        python.chmod(0o755)

    def tune():
        surroundings = {"LD_LIBRARY_PATH": libraries}
        done = quasar("tune", "--triton", "--fork", fork.path, "--python", python, "--seq", 64, "--budget", 5, env=surroundings)
        assert done.code == 0, done.err
        return done, quasar("tune", "--list", "--json", env=surroundings).json["results"]

    return tune


def test_what_is_found_is_stored_for_its_source(tune_for_gpu):
    done, [stored] = tune_for_gpu()
    assert stored["kernel"] == KERNEL and len(stored["source"]) == 64 and "not stored" not in done.err


def test_what_is_found_is_not_stored_for_a_source_that_changed_meanwhile(tune_for_gpu, layer):
    layer(("        return y", "        open(__file__, 'a').write('# edited\\n')\n        return y"))
    done, stored = tune_for_gpu()
    assert not stored and f"not stored: {LAYER} was changed" in done.err


@pytest.mark.long
def test_what_is_found_is_not_written_into_a_source_that_changed_meanwhile(tune, layer, fork):
    layer(("        return y", "        open(__file__, 'a').write('# edited\\n')\n        return y"))
    for _ in range(ATTEMPTS):
        done = tune("--write")
        assert "for BLOCK in [32, 128]" in (fork.path / LAYER).read_text()
        if "Nothing better was found" not in done.out:
            break
    assert done.code == 1 and f"{LAYER} was changed" in done.err and "Tune again" in done.err


@pytest.mark.long
def test_what_is_found_is_written_through_a_link(tune, fork):
    (fork.path / LAYER).rename(fork.path / "fla/layers/real.py")
    (fork.path / LAYER).symlink_to("real.py")
    fork.commit()
    for _ in range(ATTEMPTS):
        done = tune("--write")
        assert done.code == 0, done.err
        if "Written" in done.out:
            break
    assert fork.git("status", "--porcelain").split() == ["M", "fla/layers/real.py"]


@pytest.mark.long
def test_without_write_the_change_is_only_shown(tune, fork):
    for _ in range(ATTEMPTS):
        done = tune("--kernel", "copy")
        assert done.code == 0, done.err
        if "Nothing better was found" not in done.out:
            break
    assert "+        triton.Config({'BLOCK': " in done.out and "Nothing was written" in done.out
    assert fork.git("status", "--porcelain") == ""


@pytest.mark.long
def test_a_layer_without_such_kernels_says_so(tune, fork):
    (fork.path / LAYER).write_text("import torch\n\n\nclass QuasarAttention(torch.nn.Identity):\n    pass\n")
    done = tune()
    assert done.code == 1 and "runs no kernel that Triton's autotuner" in done.err
    shutil.copy(HERE / "tunable.py", fork.path / LAYER)
    done = tune("--kernel", "other")
    assert done.code == 1 and "runs no kernel other" in done.err
