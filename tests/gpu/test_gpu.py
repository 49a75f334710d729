"""What needs a GPU. Without one every test here is skipped, and says why."""
import json
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "build" / "tests-gpu"
QUASAR = pathlib.Path(os.environ.get("QUASAR", ROOT / "build" / "quasar"))


def kernel_tests():
    return re.findall(r"cmocka_unit_test\((\w+)\)", (ROOT / "tests" / "gpu" / "kernels.c").read_text())


@pytest.fixture(scope="session")
def gpu():
    listing = json.loads(subprocess.run([QUASAR, "gpus", "--json"], capture_output=True, text=True,
                                        check=True).stdout)
    if not listing["present"]:
        pytest.skip("no GPU: " + (listing["problem"] or "the driver shows none"))
    return listing["present"][0]


@pytest.mark.parametrize("name", kernel_tests())
def test_kernels(gpu, name):
    done = subprocess.run([KERNELS, name], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 test(s) run" in done.stdout + done.stderr


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_sanitizer(gpu, tool):
    try:
        subprocess.run(["compute-sanitizer", "--version"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("compute-sanitizer is not installed")
    for name in ("every_length", "decoding_follows_the_recurrence", "forward_substitution_inverts"):
        done = subprocess.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", KERNELS, name],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_bench(gpu, semantics):
    done = subprocess.run([QUASAR, "bench", "--op", "--device", "cuda", "--semantics", semantics,
                           "--seq", "4096", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["device"].startswith("cuda:0 (" + gpu["name"])
    assert 0 < document["results"][0]["floor_fraction"] < 1


def test_verify_compares_with_fp64(gpu):
    done = subprocess.run([QUASAR, "verify", "--fork", str(ROOT), "--device", "cuda", "--seq", "4096", "--json"],
                          capture_output=True, text=True)
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    for name in ("op.finite", "op.written", "op.repeat", "op.reference"):
        assert checks[name] == "ok"
    assert checks["layer"] == "skip"


def test_the_setting_leaves_the_layer_to_the_cpu(gpu):
    environment = {**os.environ, "DEVICE": "cuda:0"}
    done = subprocess.run([QUASAR, "verify", "--fork", str(ROOT), "--seq", "4096", "--budget", "1", "--json"],
                          capture_output=True, text=True, env=environment)
    verified = json.loads(done.stdout)
    assert verified["device"].startswith("cuda:0") and verified["layer_device"].startswith("cpu")
    assert {check["name"]: check["status"] for check in verified["checks"]}["layer.finite"] == "ok"
    done = subprocess.run([QUASAR, "bench", "--seq", "4096", "--json"], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and json.loads(done.stdout)["device"].startswith("cpu")
    insisted = subprocess.run([QUASAR, "bench", "--seq", "4096", "--device", "cuda"], capture_output=True, text=True)
    assert insisted.returncode == 3 and "only the operation" in insisted.stderr
