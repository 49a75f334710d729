"""`quasar tune --triton`: the kernels of a fork, tuned in place within its layer. Where there is no GPU, Triton's interpreter
runs them: slowly, and the same way."""
import os
import pathlib
import shutil
import sys

import pytest
import torch

from sample_fork import Fork

pytest.importorskip("triton")
HERE = pathlib.Path(__file__).parent
LAYER = "fla/layers/quasar.py"
KERNEL = "fla/layers/quasar.py:copy"


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
    done = tune("--write", "--json")
    assert done.code == 0, done.err
    [row] = done.json["kernels"]
    assert row["kernel"] == "copy" and done.json["predicted"] is False and done.json["written"]
    assert row["parameters"]["BLOCK"] != 256 and "BLOCK=256" in done.err and "computes something else" in done.err
    if not torch.cuda.is_available():  # by a fraction of the programs
        assert row["parameters"]["BLOCK"] >= 64 and done.json["tuned_ms"] < 0.7 * done.json["untuned_ms"]
    after = (fork.path / LAYER).read_text()
    assert after.count("triton.Config(") == 1 and "# one for each taste\n" in after and "# always the same" in after
    lines = [line for line in fork.git("diff", "-U0").splitlines() if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert [line[0] for line in lines] == ["-", "-", "+"] and f"'BLOCK': {row['parameters']['BLOCK']}" in lines[2]
    assert before.splitlines()[:8] == after.splitlines()[:8]


@pytest.mark.long
def test_without_write_the_change_is_only_shown(tune, fork):
    done = tune("--kernel", "copy", "--budget", 2)
    assert done.code == 0, done.err
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
