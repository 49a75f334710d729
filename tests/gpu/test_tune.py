"""quasar tune on a GPU: what it finds is not slower, computes the same, is used at once, and survives Ctrl-C."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest
from patience import LONG

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUASAR = pathlib.Path(os.environ.get("QUASAR", ROOT / "build" / "quasar"))
LENGTH = ["--seq", "4096"]


@pytest.fixture(autouse=True)
def gpu():
    listing = json.loads(subprocess.run([QUASAR, "gpus", "--json"], capture_output=True, text=True, check=True).stdout)
    if not listing["present"]:
        pytest.skip("no GPU: " + (listing["problem"] or "the driver lists none"))
    if "Emulated" in listing["present"][0]["name"]:
        pytest.skip("the GPU is emulated")
    return listing["present"]


@pytest.fixture
def surroundings(tmp_path):
    """A store of its own, and the compiled kernels of everybody."""
    kernels = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "quasar" / "kernels"
    kernels.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache" / "quasar").mkdir(parents=True)
    (tmp_path / "cache" / "quasar" / "kernels").symlink_to(kernels)
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def quasar(surroundings):
    def run(*args, status=0):
        done = subprocess.run([QUASAR, *args], capture_output=True, text=True, env=surroundings)
        assert done.returncode == status, done.stderr
        return json.loads(done.stdout) if "--json" in args else done

    return run


@pytest.mark.parametrize("options", [[], ["--semantics", "causal"], ["--head-dim", "128"], ["--dtype", "fp32"]], ids=" ".join)
def test_what_is_found_is_not_slower_and_used(quasar, gpu, options):
    found = quasar("tune", *LENGTH, "--budget", "60", "--json", *options)
    best = found["kernels"][0]
    assert found["predicted"] is False and found["device"] == gpu[0]["name"] and found["stored"]
    assert 0 < best["ms"] <= found["untuned_ms"] and best["registers"] > 0 and 0 < best["occupancy"] <= 1
    assert found["tried"] > 4 and all(row["ms"] > 0 for row in found["kernels"])
    [listed] = quasar("tune", "--list", "--json")["results"]
    assert listed["parameters"] == best["parameters"] and listed["ms"] == best["ms"]
    if not options:
        checks = quasar("verify", "--native", "--device", "cuda", *LENGTH, "--json")["checks"]
        assert {check["status"] for check in checks if check["name"].startswith("op.")} == {"ok"}


def trials(store):
    """As many as are stored."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as database:
            return database.execute("SELECT count(*) FROM trial").fetchone()[0]
    except sqlite3.OperationalError:  # there is no store yet
        return 0


def test_ctrl_c_keeps_what_was_found_and_resume_goes_on(quasar, surroundings):
    tuning = subprocess.Popen([QUASAR, "tune", *LENGTH, "--strategy", "exhaustive", "--json"], env=surroundings,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    store = pathlib.Path(surroundings["XDG_CACHE_HOME"]) / "quasar" / "tuning.db"
    tried = 0
    while tuning.poll() is None and tried < 5:
        try:
            tuning.wait(timeout=0.2)
        except subprocess.TimeoutExpired:
            tried = trials(store)
    tuning.send_signal(signal.SIGINT)
    out, err = tuning.communicate(timeout=LONG)
    assert tuning.returncode == 130 and "what was found until then is kept" in err
    assert json.loads(out)["complete"] is False
    found = quasar("tune", *LENGTH, "--strategy", "exhaustive", "--resume", "--json")
    assert found["tried"] > tried
    assert len(quasar("tune", "--list", "--json")["results"]) == 1


def test_two_devices(quasar, gpu):
    if len(gpu) < 2 or gpu[0]["name"] != gpu[1]["name"]:
        pytest.skip("one GPU: two alike are needed")
    assert quasar("tune", *LENGTH, "--devices", "0,1", "--budget", "60", "--json")["tried"] > 4


def test_the_fork_takes_what_was_found(quasar, tmp_path, surroundings):
    if subprocess.run([sys.executable, "-c", "import torch"]).returncode:
        pytest.skip("no torch: the fork cannot be run")
    quasar("tune", *LENGTH, "--budget", "60", "--json")
    subprocess.run(["make", "-s", "build/fork"], cwd=ROOT, check=True)
    fork = tmp_path / "fork"
    shutil.copytree(ROOT / "build" / "fork", fork)
    subprocess.run("git init -q && git add -A && git -c user.name=a -c user.email=a@b.c commit -qm a", shell=True, cwd=fork,
                   check=True)
    assert quasar("tune", "--apply", "--fork", fork, "--json")["configurations"] == 1
    asked = ("import sys; sys.path.insert(0, sys.argv[1]); import torch; from fla.ops.quasar import cuda_backend as b, tuned; "
             "[want] = tuned.CONFIGURATIONS.values(); c = b.choose(0, 64, torch.bfloat16, 1, 8, 4096); "
             "assert (c.chunk, c.num_stages, c.min_blocks, c.product_warps, c.num_launches) == want[:5], (c, want)")
    done = subprocess.run([sys.executable, "-c", asked, fork], capture_output=True, text=True, env=surroundings)
    assert done.returncode == 0, done.stderr
    checks = quasar("verify", "--fork", fork, "--python", sys.executable, "--device", "cuda", *LENGTH, "--json")["checks"]
    assert "fail" not in {check["status"] for check in checks if check["name"].startswith("fork.")}


def test_the_triton_back_end_is_tuned_in_place(quasar, tmp_path):
    if subprocess.run([sys.executable, "-c", "import torch, triton"]).returncode:
        pytest.skip("no torch: the fork cannot be run")
    subprocess.run(["make", "-s", "build/fork"], cwd=ROOT, check=True)
    fork = tmp_path / "fork"
    shutil.copytree(ROOT / "build" / "fork", fork)
    start = fork / "fla" / "__init__.py"
    start.write_text("import os\nos.environ['QUASAR_BACKEND'] = 'triton'\n" + start.read_text())

    def speed():
        measured = quasar("bench", "--fork", fork, "--python", sys.executable, "--seq", "100000", "--budget", "20", "--json")
        return measured["results"][0]["tokens_per_sec"]

    before = speed()
    found = quasar("tune", "--triton", "--write", "--fork", fork, "--python", sys.executable, "--seq", "100000", "--budget",
                   "120", "--json")
    assert {row["kernel"] for row in found["kernels"]} >= {"chunk_transition", "chunk_output"}
    assert found["tuned_ms"] <= found["untuned_ms"] * 1.02
    text = (fork / "fla" / "ops" / "quasar" / "triton_kernels.py").read_text()
    assert text.count("@tuned(triton.Config(") == len(found["changed"])
    assert speed() > 0.97 * before  # in a process of its own
