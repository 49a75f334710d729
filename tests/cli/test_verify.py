"""quasar verify: the order and names of the checks, what fails and what warns, the numbers it shows. No PyTorch here:
tests/forks/ has what it finds in forks that run."""
import subprocess
import sys

import pytest

STATIC = ["files", "imports.deployed", "imports.strict", "imports.forbidden", "imports.ast", "cuda_source", "git",
          "fork.compile"]
GRADIENTS, LINEAR_GRADIENTS = ([f"{op}-backward.{tensor}" for tensor in ("dq", "dk", "dv")] for op in ("quasar", "linear"))
COMPUTED = [f"{what}.{check}" for what in ("op", *GRADIENTS, "layer")
            for check in ("finite", "written", "repeat", "reference")]


@pytest.fixture
def workspace(quasar, tmp_path):
    directory = tmp_path / "miner"
    assert quasar("init", directory).code == 0
    return directory


def statuses(result):
    return {check["name"]: check["status"] for check in result.json["checks"]}


@pytest.mark.parametrize("semantics", ["upstream", "causal"])
def test_native_checks_quasars_own_code_and_needs_no_fork(quasar, semantics):
    done = quasar("verify", "--native", "--seq", 200, "--semantics", semantics, "--json")
    assert done.code == 0, done.out + done.err
    document = done.json
    assert document["passed"] is True
    assert [check["name"] for check in document["checks"]] == COMPUTED
    assert set(statuses(done).values()) == {"ok"}
    assert all(check["detail"] for check in document["checks"])
    assert document["semantics"] == semantics and document["implementation"] == "native"
    [measured] = document["measurements"]
    assert measured["seq"] == 200 and measured["tokens_per_sec"] > 0 and measured["memory_mb"] > 1
    assert measured["league"] == "100k" and measured["multiplier"] == 0.5
    assert measured["weighted_score"] == pytest.approx(measured["tokens_per_sec"] / 2)


def test_the_text_says_what_was_computed(quasar):
    done = quasar("verify", "--native", "--seq", 100)
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("ok")] == COMPUTED
    assert "not the fork's Python" in done.out and "seed" in done.out
    assert lines[-1].startswith(f"passed: {len(COMPUTED)} ok, 0 warnings, 0 failed")
    assert "\033" not in done.out


def test_without_pytorch_a_fork_is_not_run_and_does_not_pass(quasar, workspace):
    done = quasar("verify", "--seq", 64, cwd=workspace)
    assert done.code == 3
    last = done.out.splitlines()[-2:]
    assert last[0].startswith("NOT RUN: 8 ok") and "passed" not in done.out
    assert last[1].startswith("The fork was NOT RUN: ") and "has no PyTorch" in last[1]
    assert "Install PyTorch: quasar init --venv" in done.out
    document = quasar("verify", "--seq", 64, "--json", cwd=workspace).json
    assert document["passed"] is False and document["ran"] is False and document["measurements"] == []
    assert document["implementation"] == "fork" and document["semantics"] is None
    found = {check["name"]: check["status"] for check in document["checks"]}
    assert list(found) == STATIC + ["fork.import"] and found["fork.import"] == "skip"


def test_what_is_no_python_fails_without_pytorch_too(quasar, workspace):
    chunk = workspace / "fork" / "fla" / "ops" / "quasar" / "chunk.py"
    chunk.write_text(chunk.read_text() + "def broken(:\n")
    for more in ["--static"], ["--seq", 64]:
        done = quasar("verify", "--json", *more, cwd=workspace)
        assert done.code == 1 and statuses(done)["fork.compile"] == "fail"
        [check] = [check for check in done.json["checks"] if check["name"] == "fork.compile"]
        line = len(chunk.read_text().splitlines())
        assert f"fla/ops/quasar/chunk.py:{line}: SyntaxError" in check["detail"]


def test_without_any_python_nothing_is_compiled_and_it_says_so(quasar, workspace):
    done = quasar("verify", "--static", "--json", cwd=workspace, env={"QUASAR_PYTHON": "", "PATH": "/nonexistent"})
    assert done.code == 0 and statuses(done)["fork.compile"] == "skip"


@pytest.mark.parametrize("args, outputs, semantics", [
    (["--op"], ["op", *GRADIENTS], "upstream"),
    (["--op", "quasar", "--semantics", "causal"], ["op", *GRADIENTS], "causal"),
    (["--op", "--semantics", "gated"], ["op"], "gated"),
    (["--op", "--semantics", "packed-gated"], ["op"], "packed-gated"),
    (["--op", "quasar-backward", "--semantics", "causal"], GRADIENTS, "causal"),
    (["--op", "linear"], ["linear", *LINEAR_GRADIENTS], "bidirectional,elu+1,normalised"),
    (["--op", "linear", "--semantics", "causal,squared-relu"], ["linear", *LINEAR_GRADIENTS],
     "causal,squared-relu,normalised")])
def test_an_operation_alone_needs_no_fork(quasar, args, outputs, semantics):
    done = quasar("verify", "--seq", 200, "--device", "cpu", "--json", *args)
    assert done.code == 0, done.out + done.err
    assert statuses(done) == {f"{output}.{name}": "ok" for output in outputs
                              for name in ("finite", "written", "repeat", "reference")}
    assert done.json["semantics"] == semantics and done.json["measurements"][0]["seq"] == 200


@pytest.mark.parametrize("semantics", ["bidirectional", "packed", "packed-bidirectional"])
def test_an_operation_with_a_gradient_is_checked_with_it(quasar, semantics):
    done = quasar("verify", "--op", "flash", "--seq", 100, "--device", "cpu", "--json", "--semantics", semantics)
    assert done.code == 0, done.out + done.err
    checks = ("finite", "written", "repeat", "reference")
    assert statuses(done) == {f"{tensor}.{name}": "ok" for name in checks for tensor in (
        "flash", "flash-backward.dq", "flash-backward.dk", "flash-backward.dv")}


@pytest.mark.parametrize("args", [
    ["--op", "linear", "--static"], ["--op", "linear", "--claimed", 1], ["--op", "linear", "--fork", "/"],
    ["--op", "linear", "--semantics", "upstream"], ["--op", "quasar-backward", "--semantics", "gated"],
    ["--native", "--claimed", 1], ["--native", "--fork", "/"],
    ["--native", "--static"], ["--native", "--semantics", "gated"], ["--semantics", "packed"],
    ["--native", "--python", "python3"], ["--weights", "/nothing"]])
def test_what_does_not_go_together(quasar, args):
    assert quasar("verify", *args).code == 2


def test_a_seed_repeats_a_run(quasar):
    def details(*args):
        done = quasar("verify", "--native", "--seq", 70, "--json", *args)
        assert done.code == 0, done.out + done.err
        return done.json["seed"], [c["detail"] for c in done.json["checks"] if c["name"] in COMPUTED]

    seed, first = details()
    assert details("--seed", seed) == (seed, first)
    other_seed, other = details()
    assert other_seed != seed and other != first


def test_static_computes_nothing(quasar, workspace):
    done = quasar("verify", "--static", "--json", cwd=workspace)
    assert done.code == 0
    assert [check["name"] for check in done.json["checks"]] == STATIC
    assert "measurements" not in done.json


def test_it_says_which_commit_it_looked_at(quasar, workspace):
    def commit():
        return quasar("verify", "--static", "--json", cwd=workspace).json["commit"]

    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=workspace / "fork", capture_output=True, text=True).stdout
    assert commit() == head.strip()
    (workspace / "fork" / "notes.txt").write_text("faster\n")
    assert commit() is None


def test_a_forbidden_import_fails_and_is_named(quasar, workspace):
    chunk = workspace / "fork" / "fla" / "ops" / "quasar" / "chunk.py"
    text = chunk.read_text()
    chunk.write_text(text + "# from fla.ops.gla import nothing\n")
    done = quasar("verify", "--static", cwd=workspace)
    assert done.code == 1
    line = next(line for line in done.out.splitlines() if line.startswith("FAIL"))
    assert "imports.forbidden" in line and "chunk.py" in line
    assert str(len(text.splitlines()) + 1) in line
    assert quasar("verify", "--static", "--json", cwd=workspace).json["passed"] is False


def test_the_syntax_tree_is_read_by_the_miners_python(quasar, workspace):
    """What the rule of April rejects is a warning: the rule of February lets it pass."""
    source = workspace / "fork" / "fla" / "helper.py"
    source.write_text("import torch\n\n\ndef f(m):\n    return m().eval()\n")
    done = quasar("verify", "--static", "--json", cwd=workspace)
    assert done.code == 0
    check, = [check for check in done.json["checks"] if check["name"] == "imports.ast"]
    assert check["status"] == "warn" and "fla/helper.py:5 calls (…).eval()" in check["detail"]
    assert "m = f()" in check["remedy"]
    source.unlink()
    named = quasar("verify", "--static", "--json", "--python", sys.executable, cwd=workspace)
    version = ".".join(map(str, sys.version_info[:3]))
    assert statuses(named)["imports.ast"] == "ok" and f"as Python {version} reads them" in named.out


def test_without_python_the_syntax_is_not_sure(quasar, workspace, tmp_path):
    done = quasar("verify", "--static", "--json", cwd=workspace, env={"QUASAR_PYTHON": "", "PATH": str(tmp_path)})
    assert done.code == 0
    assert statuses(done)["imports.ast"] == "warn" and "nothing forbidden was found" in done.out


def test_no_python_of_a_named_fork_is_run(quasar, workspace, tmp_path):
    """It may be a stranger's."""
    trap = workspace / "fork" / ".venv" / "bin" / "python"
    trap.parent.mkdir(parents=True)
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\nexec python3 \"$@\"\n")
    trap.chmod(0o755)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    found = {"QUASAR_PYTHON": ""}
    done = quasar("verify", "--static", "--fork", workspace / "fork", cwd=elsewhere, env=found)
    assert done.code == 0 and not (tmp_path / "sprung").exists()
    assert quasar("verify", "--static", cwd=workspace, env=found).code == 0 and (tmp_path / "sprung").exists()


def test_strict_turns_a_warning_into_a_failure(quasar, workspace):
    chunk = workspace / "fork" / "fla" / "ops" / "quasar" / "chunk.py"
    chunk.write_text(chunk.read_text().replace("import torch.nn.functional as F", "import torch.nn.functional"))
    relaxed = quasar("verify", "--static", "--json", cwd=workspace)
    strict = quasar("verify", "--static", "--strict", "--json", cwd=workspace)
    assert relaxed.code == 0 and statuses(relaxed)["imports.strict"] == "warn"
    assert strict.code == 1 and statuses(strict)["imports.strict"] == "fail"


def test_any_directory_can_be_the_fork(quasar, tmp_path):
    (tmp_path / "empty").mkdir()
    done = quasar("verify", "--static", "--fork", tmp_path / "empty", "--json")
    assert done.code == 1 and statuses(done)["files"] == "fail"
    assert quasar("verify", "--static", "--fork", tmp_path / "nowhere").code == 3


def test_outside_of_a_workspace_a_fork_has_to_be_named(quasar):
    done = quasar("verify")
    assert done.code == 3 and "--fork" in done.err


def test_thresholds_are_settings(quasar):
    bad = quasar("verify", "--native", "--seq", 10, env={"VERIFY_COSINE_THRESHOLD": "much"})
    assert bad.code == 2 and "VERIFY_COSINE_THRESHOLD" in bad.err
    done = quasar("verify", "--native", "--seq", 10, "--json", env={"VERIFY_COSINE_THRESHOLD": "1.5"})
    assert done.code == 1 and statuses(done)["op.repeat"] == "fail"


def test_full_says_what_it_leaves_out(quasar):
    done = quasar("verify", "--native", "--full", "--seq", 64, "--target", 700, "--budget", 3, "--json")
    assert done.code == 0
    found = statuses(done)
    for length in (512, 700, 1024, 2048, 4096, 16384, 65536, 262144):
        computed = found.get(f"op.reference.{length}") == "ok" and found.get(f"layer.finite.{length}") == "ok"
        assert computed != (found.get(f"length.{length}") == "skip"), length
    assert found["length.262144"] == "skip"
    lengths = [m["seq"] for m in done.json["measurements"]]
    assert lengths == sorted(lengths) and lengths[0] == 64


@pytest.mark.parametrize("args, code", [(["--device", "cuda"], 3), (["--device", "cuda:1"], 3), (["--device", "tpu"], 2),
                                        (["--seq", "0"], 2), (["--seq", "many"], 2), (["--semantics", "both"], 2)])
def test_devices_and_lengths_that_are_none(quasar, workspace, args, code):
    done = quasar("verify", *args, cwd=workspace)
    assert done.code == code and done.err.startswith("quasar verify: ")


def test_an_image_may_be_named_behind_its_option(quasar, tmp_path):
    """As `--image=NAME`, though the name may be left out: nothing else could be meant."""
    done = quasar("verify", "--image", "example.org/miner:1", "--reference", tmp_path)
    assert done.code == 3 and "config.json" in done.err
