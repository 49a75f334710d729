"""What needs a GPU. Without one every test here is skipped, and says why; on an emulated one (tests/emulator) those run
that time nothing and have no need of NVIDIA's own libraries."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess

import picture
import pytest
from patience import LONG

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "build" / "tests-gpu"
QUASAR = pathlib.Path(os.environ.get("QUASAR", ROOT / "build" / "quasar"))


def c_tests(source):
    """The names of those in a C program."""
    return re.findall(r"(?:cmocka_unit_test|WITH_DIRECTORY)\((\w+)\),", (ROOT / "tests" / "gpu" / source).read_text())


@pytest.fixture(scope="session")
def gpu():
    listing = json.loads(subprocess.run([QUASAR, "gpus", "--json"], capture_output=True, text=True,
                                        check=True).stdout)
    if not listing["present"]:
        pytest.skip("no GPU: " + (listing["problem"] or "the driver lists none"))
    return listing["present"][0]


@pytest.fixture(scope="session")
def real_gpu(gpu):
    if "Emulated" in gpu["name"]:
        pytest.skip("the GPU is emulated")
    return gpu


def run_c_test(program, name):
    done = subprocess.run([program, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 test(s) run" in done.stdout + done.stderr
    if "SKIPPED" in done.stdout + done.stderr:
        pytest.skip("two GPUs or a real one are needed")


@pytest.mark.parametrize("name", c_tests("kernels.c"))
def test_kernels(gpu, name):
    run_c_test(KERNELS, name)


@pytest.mark.parametrize("name", c_tests("gradient.c"))
def test_gradient(gpu, name):
    run_c_test(KERNELS.with_name("tests-gpu-gradient"), name)


@pytest.mark.parametrize("name", c_tests("linear.c"))
def test_linear_attention(gpu, name):
    run_c_test(KERNELS.with_name("tests-gpu-linear"), name)


def sanitize(tool, program, names):
    """Runs tests of a C program with a tool of compute-sanitizer."""
    try:
        subprocess.run(["compute-sanitizer", "--version"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("compute-sanitizer is not installed")
    for name in names:
        done = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", program, name],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


OPERATIONS = ["every_length", "decoding_follows_the_recurrence", "forward_substitution_inverts"]


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "synccheck"])
def test_sanitizer(real_gpu, tool):
    sanitize(tool, KERNELS, OPERATIONS)
    sanitize(tool, KERNELS.with_name("tests-gpu-gradient"), ["every_length", "parts_and_groups"])


def test_sanitizer_of_the_layer(real_gpu):
    sanitize("memcheck", KERNELS, ["a_layer_serves_many_calls"])  # racecheck reports races of cuBLASLt's own kernels


def test_the_leaderboard_has_every_version(real_gpu):
    done = subprocess.run([QUASAR, "bench", "--op", "flash", "--leaderboard", "--seq", "64", "--runs", "1", "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["heads"] == 16 and document["head_dim"] == 64 and document["dtype"] == "bf16"
    first, *more = document["versions"]
    assert "atomics" in first["name"] and first["speedup"] == 1
    assert len(more) == (4 if real_gpu["compute_capability"] == 9.0 else 3)
    for version in document["versions"]:
        forward, backward, both = (version[part]["seconds"] for part in ("forward", "backward", "both"))
        assert min(forward, backward) > 0 and both > max(forward, backward) / 2
        assert version["speedup"] == pytest.approx(first["both"]["seconds"] / both)


@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_bench(real_gpu, semantics):
    done = subprocess.run([QUASAR, "bench", "--op", "--device", "cuda", "--semantics", semantics,
                           "--seq", "4096", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["device"].startswith("cuda:0 (" + real_gpu["name"])
    assert 0 < document["results"][0]["floor_fraction"] < 1


def test_roofs_and_operations_are_measured(gpu, tmp_path):
    path = tmp_path / "roofline.svg"
    done = subprocess.run([QUASAR, "roofline", "--op", "flash", "--seq", "64", "--runs", "1", "--device", "cuda", "--json", "--svg",
                           path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["device"].startswith("cuda:0 (" + gpu["name"]) and document["copy_bytes_per_second"] > 0
    assert [row["semantics"] for row in document["results"]] == ["causal", "bidirectional", "packed", "packed-bidirectional"]
    assert all(0 < row["roof_fraction"] < 1 for row in document["results"])
    picture.read(path)


def test_tuning_goes_on_when_its_store_takes_no_more(gpu, tmp_path):
    surroundings = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def tune(*args):
        done = subprocess.run([QUASAR, "tune", *args], env=surroundings, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    tune("--list")
    with contextlib.closing(sqlite3.connect(tmp_path / "cache/quasar/tuning.db")) as store, store:  # as a full disk does
        store.execute("CREATE TRIGGER full BEFORE INSERT ON tuning BEGIN SELECT RAISE(FAIL, 'disk is full'); END")
    done = tune("--op", "linear", "--seq", "32", "--heads", "1", "--head-dim", "32", "--budget", "3", "--json")
    assert "results will not be stored" in done.stderr
    found = json.loads(done.stdout)
    assert found["stored"] is False and found["tried"] > 1


def test_a_sweep_tries_the_tunables(gpu, tmp_path):
    path = tmp_path / "sweep.svg"
    done = subprocess.run([QUASAR, "bench", "--op", "flash", "--sweep", "--seq", "32,64", "--runs", "1", "--device", "cuda",
                           "--json", "--svg", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document, said = json.loads(done.stdout), picture.words(picture.read(path))
    assert len(document["configurations"]) > 5
    for row in document["configurations"]:
        assert row["bytes_per_second"] == pytest.approx(document["lengths"][-1]["bytes"] / row["seconds"])
        assert f"{row['tunable']}={row['value']}" in said


def test_packed_attention_against_fp64(gpu):
    done = subprocess.run([QUASAR, "verify", "--op", "flash", "--semantics", "packed", "--device", "cuda", "--seq", "100", "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert {check["status"] for check in json.loads(done.stdout)["checks"]} == {"ok"}


def test_verify_compares_with_fp64(real_gpu):
    done = subprocess.run([QUASAR, "verify", "--native", "--device", "cuda", "--seq", "4096", "--json"],
                          capture_output=True, text=True)
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    for what in ("op", "layer"):
        for name in ("finite", "written", "repeat", "reference"):
            assert checks[f"{what}.{name}"] == "ok"


def test_two_workspaces_on_two_gpus(gpu, quasar, environment, start_localnet, tmp_path):
    """Each mines on its own, at the same time, until both have revealed."""
    if len(quasar("gpus", "--json").json["present"]) < 2:
        pytest.skip("one GPU: two are needed")
    if subprocess.run(["python3", "-c", "import torch"]).returncode:
        pytest.skip("no torch: the fork's own layer is what is measured")
    localnet = start_localnet("--block-time", "0.2", "--blocks-until-reveal", "5", "--rate-limit", "0")
    surroundings = {**environment, "QUASAR_PYTHON": shutil.which("python3")}
    loops = []
    for number in range(2):
        name = f"gpu{number}"
        directory = tmp_path / name
        for command in (["wallet", "new", "--wallet", name],
                        ["init", directory, "--api", localnet.url, "--seq", "4096", "--wallet", name],
                        ["register", "-C", directory]):
            assert quasar(*command).code == 0
        with open(directory / ".env", "a") as settings:
            settings.write(f"DEVICE=cuda:{number}\n")
        loops.append(subprocess.Popen([QUASAR, "run", "-C", directory], env=surroundings, stdout=subprocess.PIPE,
                                      text=True))
    try:
        for number, loop in enumerate(loops):
            events = {}
            while "revealed" not in events:
                line = loop.stdout.readline()
                assert line, f"it ended: {events}"
                event = json.loads(line)
                events[event["event"]] = event
            assert events["bench"]["device"].startswith(f"cuda:{number}")
            assert events["bench"]["workload"] == "fork"
    finally:
        for loop in loops:
            loop.terminate()
    assert [loop.wait(timeout=LONG) for loop in loops] == [0, 0]


def test_the_settings_hide_gpus(gpu, quasar, workspace):
    """CUDA reads CUDA_VISIBLE_DEVICES from the environment only."""
    (workspace / ".env").write_text("CUDA_VISIBLE_DEVICES=-1\n")
    assert quasar("gpus", "--json", cwd=workspace).json["present"] == []
    assert quasar("gpus", "--json", cwd=workspace, env={"CUDA_VISIBLE_DEVICES": "0"}).json["present"]
