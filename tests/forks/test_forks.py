"""`quasar verify` on forks that sin, each in its own way, and on honest ones that look as if they did.

A fork is fla/plain.py, which is right, and a layer made of it: a file of sins/ or honest/. The first word of a file tells what
verify has to find: the check that fails, or the function that the fork computes.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import torch

from sample_fork import FILES, NAMES

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[1]
GPU = torch.cuda.is_available()


def first_word(path):
    """Of the docstring; a fork need not be valid Python."""
    return path.read_text().removeprefix('"""').split(":")[0]


# they stand for the others where time is short: each way in which verify finds something, once
QUICK = {"compile_syntax", "import_missing", "call_dies", "written_tail", "state_carried", "reference_forgets", "casts"}


def forks(folder):
    return [pytest.param(path, id=path.stem, marks=[] if path.stem in QUICK else pytest.mark.long)
            for path in sorted((HERE / folder).glob("*.py"))]


@pytest.fixture
def fork(tmp_path):
    """Makes a fork of such a file."""

    def make(layer):
        package = tmp_path / "fork" / "fla"
        operators = package / "ops" / "quasar"
        operators.mkdir(parents=True)
        (package / "layers").mkdir()
        for name in FILES:
            (operators / f"{name}.py").write_text("")
        (operators / "chunk.py").write_text("".join(f"from fla.utils import {name}\n" for name in NAMES))
        (package / "utils.py").write_text("".join(f"{name} = None\n" for name in NAMES))
        shutil.copy(HERE / "plain.py", package)
        shutil.copy(layer, package / "layers" / "quasar.py")
        if layer.stem == "import_shadow":
            (package.parent / "torch.py").write_text("")
        return package.parent

    return make


def surroundings():
    """One thread for each of the tests that run side by side; libraries of CUDA where PyTorch found them."""
    return {"OMP_NUM_THREADS": "1", **{name: value for name, value in os.environ.items() if name.startswith("LD_")}}


@pytest.fixture
def verify(quasar, fork):
    """Runs `quasar verify` on such a file, at a length that costs little."""

    def run(layer, *args):
        return quasar("verify", "--fork", fork(layer), "--python", sys.executable, "--json", "--seq", 64, *args,
                      env=surroundings())

    return run


def statuses(done):
    return {check["name"]: check["status"] for check in done.json["checks"]}


@pytest.mark.parametrize("sin", forks("sins"))
def test_a_sin_is_named_by_its_check(verify, sin):
    if "Needs a GPU" in sin.read_text() and not GPU:
        pytest.skip("commits its sin on a GPU only")
    done = verify(sin)
    assert done.code in (0, 1), done.err
    found = statuses(done)
    expected = "warn" if sin.stem.startswith("gradient") else "fail"
    assert found.get(first_word(sin)) == expected, done.out
    assert done.json["passed"] is (expected == "warn") and done.code == (expected == "fail")


@pytest.mark.parametrize("layer", forks("honest"))
def test_no_honest_fork_fails(verify, layer):
    done = verify(layer, "--claimed", 1, "--target", 64)
    assert done.code == 0 and done.json["passed"] and done.json["ran"], done.out + done.err
    assert statuses(done)["claim"] == "ok"
    assert done.json["semantics"] == first_word(layer)
    found = {name: status for name, status in statuses(done).items() if name.startswith("fork.")}
    assert found.pop("fork.memory") == ("ok" if GPU else "skip")
    assert found.pop("fork.gradient") in ("ok", "warn")  # what is kept in bf16 has none
    assert set(found.values()) == {"ok"}, done.out


def test_what_git_ignores_is_not_there_for_validators(quasar, fork, tmp_path):
    """A module that the layer needs, and beside it one that is ignored and committed all the same."""
    layer = tmp_path / "layer.py"
    layer.write_text("import fla.kept.both, fla.kept.mine\nfrom fla.plain import QuasarAttention\n")
    directory = fork(layer)
    (directory / "fla" / "kept").mkdir()
    for name in ("both", "mine"):
        (directory / "fla" / "kept" / f"{name}.py").write_text("")
    (directory / ".gitignore").write_text("both*\nmine*\n")
    for command in (["init", "-q"], ["add", "-A"], ["add", "-f", "fla/kept/both.py"],
                    ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=directory, check=True)
    done = quasar("verify", "--fork", directory, "--python", sys.executable, "--json", "--seq", 64, env=surroundings())
    [detail] = [check["detail"] for check in done.json["checks"] if check["name"] == "fork.import"]
    assert done.code == 1 and "No module named 'fla.kept.mine'" in detail, done.out


def test_a_relative_tmpdir_is_no_fault_of_the_forks(quasar, fork, tmp_path):
    (tmp_path / "scratch").mkdir()
    done = quasar("verify", "--fork", fork(HERE / "plain.py"), "--python", sys.executable, "--json", "--seq", 64,
                  env={**surroundings(), "TMPDIR": "scratch"})
    assert done.code == 0 and done.json["passed"], done.out
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.long
def test_what_is_asked_for_is_held_against_the_fork(verify):
    done = verify(HERE / "honest" / "plain.py", "--semantics", "causal", "--claimed", 10**9, "--target", 64)
    assert statuses(done)["claim"] == "fail" and statuses(done)["fork.reference"] == "fail" and done.code == 1, done.out
    [measured] = [row for row in done.json["measurements"] if row["seq"] == 64]
    assert measured["runs"] >= 10 and measured["warmups"] == 3 and measured["tokens_per_sec"] > 1


def test_a_claim_that_was_not_measured_is_not_kept(verify):
    done = verify(HERE / "sins" / "finite_nan.py", "--claimed", 1, "--target", 64)
    assert statuses(done)["claim"] == "fail" and done.json["measurements"] == []


def test_a_fork_that_needs_a_gpu_is_not_run_without_one(verify, tmp_path):
    layer = tmp_path / "layer.py"
    layer.write_text((HERE / "plain.py").read_text().replace("def forward(self, x):\n", "def forward(self, x):\n"
                                                             "        x = x.cuda()\n"))
    done = verify(layer)
    if GPU:
        assert done.code == 0, done.out
    else:
        assert done.code == 3 and done.json["ran"] is False and done.json["passed"] is False, done.out
        assert statuses(done)["fork.call"] == "skip"


@pytest.mark.parametrize("semantics", ["upstream", pytest.param("causal", marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["cuda", "triton", "torch"])
def test_the_fork_of_init_passes(quasar, tmp_path, backend, semantics):
    if backend != "torch" and not GPU:
        pytest.skip("this back end needs a GPU")
    fork = tmp_path / "fork"
    shutil.copytree(ROOT / "build" / "fork", fork)
    start, layer = fork / "fla" / "__init__.py", fork / "fla" / "layers" / "quasar.py"
    start.write_text(f"import os\nos.environ['QUASAR_BACKEND'] = '{backend}'\n" + start.read_text())
    layer.write_text(layer.read_text().replace('semantics="upstream"', f'semantics="{semantics}"'))
    done = quasar("verify", "--fork", fork, "--python", sys.executable, "--json", "--seq", 200, "--semantics", semantics,
                  env=surroundings())
    assert done.code == 0 and done.json["passed"] and done.json["semantics"] == semantics, done.out


@pytest.mark.parametrize("clock", ["lambda: 5.0", "iter(range(10**9, 0, -1)).__next__"])
def test_a_clock_that_does_not_advance_measures_nothing(quasar, fork, tmp_path, clock):
    layer = tmp_path / "layer.py"
    layer.write_text(f"from fla.plain import QuasarAttention\nimport time\ntime.time = {clock}\n")
    done = quasar("bench", "--fork", fork(layer), "--python", sys.executable, "--seq", 64, "--budget", 5, "--json",
                  env=surroundings())
    assert done.code == 1 and "a clock that does not advance" in done.json["error"]["message"], done.out


@pytest.fixture
def calls(fork, tmp_path):
    """A fork that does something else before each call, in Python that knows `self.calls`, how many there were of the layer,
    and `again`: an earlier process has imported it."""

    def make(before):
        layer, mark = tmp_path / "layer.py", tmp_path / "imported"
        lines = [f"        {line}\n" for line in ["self.calls = getattr(self, 'calls', 0) + 1", *before]]
        layer.write_text(f"import os, sys, time\nagain = os.path.exists({str(mark)!r})\nopen({str(mark)!r}, 'w').close()\n"
                         + (HERE / "plain.py").read_text().replace("def forward(self, x):\n", "def forward(self, x):\n"
                                                                   + "".join(lines)))
        return ["--fork", fork(layer), "--python", sys.executable, "--seq", 64]

    return make


BEGINS_SLOWLY = "time.sleep(0.1 if self.calls <= 12 else 0)"  # all but one of the calls that validators time


@pytest.mark.long
def test_where_times_differ_it_counts_how_a_process_begins(quasar, calls):
    """Validators take the first round of a process. Here that is slower than all others."""
    done = quasar("bench", *calls([BEGINS_SLOWLY]), "--budget", 10, "--json", env=surroundings())
    assert done.code == 0, done.err
    [result] = done.json["results"]
    assert result["processes"] == len(result["times"]) == 6 and result["runs"] == 60
    assert min(result["times"]) >= 0.09  # nine of ten calls
    assert result["tokens_per_sec"] == pytest.approx(64 / result["seconds"])
    assert "the first rounds of 6 processes" in done.err


@pytest.mark.long
def test_progress_begins_again_with_new_processes(terminal, calls):
    run = terminal("bench", *calls([BEGINS_SLOWLY]), "--budget", 5, size=(24, 60), env={"TERM": "xterm", **surroundings()})
    for done in range(10, 60, 10):
        run.expect(f"] {done}/60 runs")
    assert run.finish() == 0 and run.screen.widest <= 60 and "measuring new processes" in run.out


@pytest.mark.long
@pytest.mark.parametrize("sin, said", [("raise ValueError('no more')", "ValueError: no more"),
                                       ("os.kill(os.getpid(), 9)", "ended by signal 9"),
                                       ("return x[:, :5]", "the output's shape is [1,5,512]"),
                                       ("time.time = lambda: 5.0", "a clock that does not advance")])
def test_what_runs_in_one_process_and_not_in_the_next_is_told_so(quasar, calls, sin, said):
    done = quasar("bench", *calls([BEGINS_SLOWLY, f"if again: {sin}"]), "--budget", 5, "--json", env=surroundings())
    assert done.code == 1, done.out
    assert "it ran in one process, but not in another one" in done.json["error"]["message"]
    assert said in done.json["error"]["message"]


@pytest.mark.long
def test_a_budget_that_ends_amid_a_call(quasar, calls):
    """After the calls that warm up, of which the last one is slow, time is left, but not for another one."""
    done = quasar("bench", *calls(["time.sleep(3 if self.calls == 3 else 0)"]), "--budget", 5, "--json", env=surroundings())
    assert done.code == 0, done.err
    [result] = done.json["results"]
    assert result["runs"] == len(result["times"]) == 1 and result["warmups"] == 2 and result["seconds"] >= 3


@pytest.mark.long
def test_a_large_budget_leaves_a_session_enough_for_the_rounds_that_have_begun(quasar, calls):
    """Rounds begin in the first third of what the session may take. The call says how long they may."""
    asked = ["frame = sys._getframe()", "while 'request' not in frame.f_locals: frame = frame.f_back",
             "raise ValueError(frame.f_locals['request']['seconds'])"]
    done = quasar("bench", *calls(asked), "--budget", 10**6, "--json", env=surroundings())
    assert done.code == 1 and "ValueError: 100" in done.json["error"]["message"], done.out


def test_bench_says_at_once_that_uncommitted_changes_make_no_claim(quasar, fork):
    directory = fork(HERE / "plain.py")
    for command in (["init", "-q"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=directory, check=True)
    done = quasar("bench", "--fork", directory, "--python", sys.executable, "--seq", 64, "--runs", 1, "-q", env=surroundings())
    assert done.code == 0 and "no claim is made from measuring them. Commit and push them" in done.err, done.err
