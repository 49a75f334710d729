"""The fork's own layer, run by a Python with a real PyTorch as validators run it; and our files in forks of others."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

LAYER = pathlib.Path("fla/layers/quasar.py")


def git(fork, *args):
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    return subprocess.run(["git", *identity, "-C", fork, *args], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def environment(environment):
    """This Python, which has PyTorch, is the miner's."""
    return {**environment, "PATH": f"{pathlib.Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
            "QUASAR_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}  # more would wait for one another, beside other tests


def test_it_is_timed(quasar, workspace):
    done = quasar("bench", "--seq", "100,200", "--runs", 4, "--json", cwd=workspace)
    assert done.code == 0, done.err
    document = done.json
    assert document["workload"] == "fork" and document["semantics"] is None and document["stored"]
    assert document["python"] == sys.executable and document["torch"]
    assert [result["seq"] for result in document["results"]] == [100, 200]
    for result in document["results"]:
        assert result["warmups"] == 3 and result["runs"] == 4 and result["memory_mb"] > 1
        assert result["times"] == [result["seconds"]] and not result["settled"]
        assert result["tokens_per_sec"] == pytest.approx(result["seq"] / result["seconds"])
    shown = quasar("bench", "--seq", 100, "--runs", 1, "--compare", cwd=workspace)
    assert "The fork's own layer, by PyTorch" in shown.out and "at commit" in shown.out


@pytest.mark.long
def test_it_is_timed_until_the_median_is_settled(quasar, workspace):
    [result] = quasar("bench", "--seq", 64, "--budget", 1.5, "--json", cwd=workspace).json["results"]
    assert len(result["times"]) > 1 and result["runs"] == 10 * len(result["times"])


def test_the_budget_bounds_it(quasar, workspace):
    """The last of the warm-up calls is what is left to be reported."""
    done = quasar("bench", "--seq", 64, "--budget", 0.0001, "--json", cwd=workspace)
    [result] = done.json["results"]
    assert (result["warmups"], result["runs"]) == (2, 1) and "--budget" in done.err


def test_another_fork_is_not_stored(quasar, workspace, tmp_path):
    done = quasar("bench", "--fork", workspace / "fork", "--seq", 64, "--runs", 1, "--json", cwd=tmp_path)
    assert done.code == 0 and done.json["stored"] is False and "nothing was stored" in done.err


def test_it_may_print_what_it_likes(quasar, workspace):
    layer = workspace / "fork" / LAYER
    layer.write_text(layer.read_text() + "\n\nprint('{}')\n")
    done = quasar("bench", "--seq", 64, "--runs", 1, "--json", cwd=workspace)
    assert done.code == 0 and done.json["results"][0]["dirty"] is True and "uncommitted changes" in done.err


@pytest.mark.parametrize("layer, words", [
    ("raise RuntimeError('shared memory is too small')", "RuntimeError: shared memory is too small"),
    pytest.param("import os; os._exit(0)", "ended with status 0", marks=pytest.mark.long),
    pytest.param("import os; print('last words', flush=True); os._exit(1)", "last words", marks=pytest.mark.long),
])
def test_a_layer_that_does_not_run_says_why(quasar, workspace, layer, words):
    (workspace / "fork" / LAYER).write_text(layer)
    done = quasar("bench", "--seq", 100, cwd=workspace)
    assert done.code == 1 and words in done.err and "--native" in done.err


def test_the_claim_is_what_it_does(quasar, localnet, tmp_path):
    """Of commits alone, and quasar's own layer is not the fork's, not even in a rehearsal."""
    miner = tmp_path / "miner"
    for command in (["wallet", "new"], ["init", miner, "--api", localnet.url, "--seq", 128], ["-C", miner, "register"],
                    ["-C", miner, "bench", "--native", "--runs", 1]):
        done = quasar(*command)
        assert done.code == 0, done.err
    refused = quasar("commit", "--no-verify", cwd=miner)
    assert refused.code == 3 and "quasar's own layer" in refused.err
    measured = quasar("bench", "--runs", 1, "--json", cwd=miner).json["results"][0]["tokens_per_sec"]
    (miner / "fork/new.py").write_text("x = 1\n")
    assert quasar("bench", "--runs", 1, cwd=miner).code == 0
    (miner / "fork/new.py").unlink()
    assert quasar("bench", "--native", "--runs", 1, cwd=miner).code == 0
    done = quasar("commit", "--no-verify", "--json", cwd=miner)
    assert done.code == 0, done.err
    assert done.json["tokens_per_sec"] == int(measured * 0.97) and "rehearsal" not in done.err


@pytest.mark.long
def test_run_mines_with_it(quasar, localnet, tmp_path):
    """A whole round by itself: the fork is checked and measured by PyTorch, committed and revealed."""
    miner = tmp_path / "miner"
    for command in (["wallet", "new"], ["init", miner, "--api", localnet.url, "--seq", 128], ["-C", miner, "register"]):
        done = quasar(*command)
        assert done.code == 0, done.err
    done = quasar("-C", miner, "run", "--interval", 1, "--improve", "100000%", "--notify",
                  'test "$QUASAR_EVENT" != rank || kill $PPID')
    assert done.code == 0, done.err
    seen = {event["event"]: event for event in map(json.loads, done.out.splitlines())}
    assert [name for name in seen if name in ("verify", "bench", "committed", "revealed", "rank")] == [
        "verify", "bench", "committed", "revealed", "rank"], seen
    assert "passes every check" in seen["verify"]["message"] and seen["bench"]["workload"] == "fork"
    assert not any("rehearsal" in event["message"] for event in seen.values())
    assert seen["committed"]["submission"]["tokens_per_sec"] < seen["bench"]["tokens_per_sec"]


# --- in a clone ---------------------------------------------------------------------------------------------

# As flash-linear-attention is built: the packages import their parts, other layers among them, and the layer calls the
# operation by keywords.
CLONE = {
    "fla/__init__.py": "from fla.layers import Other, QuasarAttention\n",
    "fla/layers/__init__.py": "from .other import Other\nfrom .quasar import QuasarAttention\n",
    "fla/layers/other.py": "from fla.ops import other\n\n\nclass Other:\n    operation = staticmethod(other)\n",
    "fla/layers/quasar.py": """import torch
import torch.nn.functional as F

from fla.ops.quasar import chunk_quasar, fused_recurrent_quasar
from fla.ops.quasar.gate import fused_quasar_gate


class QuasarAttention(torch.nn.Module):
    def __init__(self, hidden_size, head_dim, num_heads, **kwargs):
        super().__init__()
        self.head_dim = head_dim
        self.projections = torch.nn.ModuleList(torch.nn.Linear(hidden_size, num_heads * head_dim) for _ in range(3))
        self.beta_log = torch.nn.Parameter(torch.ones(num_heads))

    def forward(self, x):
        q, k, v = (projection(x).unflatten(-1, (-1, self.head_dim)) for projection in self.projections)
        o, state = chunk_quasar(q=q, k=k, v=v, beta=F.softplus(self.beta_log), initial_state=None,
                                output_final_state=False, cu_seqlens=None)
        return o.flatten(-2), None, state
""",
    "fla/ops/__init__.py": "from .utils import mean\n\n\ndef other():\n    return mean([1, 3])\n",
    "fla/ops/quasar/__init__.py": "raise NotImplementedError\n",
    "fla/ops/utils/__init__.py": "from .index import prepare_chunk_indices\n\n\ndef mean(x):\n    return sum(x) / len(x)\n",
    "fla/ops/utils/index.py": "def prepare_chunk_indices(cu_seqlens, chunk_size, cu_seqlens_cpu=None):\n    raise ValueError\n",
    "fla/utils.py": """import functools

import torch

IS_AMD, DEVICE = False, "cpu"
autotune_cache_kwargs = {"cache_results": True}
autocast_custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=DEVICE)
autocast_custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=DEVICE)


def check_shared_mem(arch="none", tensor_idx=0):
    return False


def input_guard(fn=None, *, no_guard_contiguous=False):
    return fn
""",
}

USE = """
import torch
from fla import Other, QuasarAttention
from fla.ops.quasar.fused_recurrent import fused_recurrent_quasar

layer = QuasarAttention(64, 32, 2)
x = torch.randn(1, 130, 64, requires_grad=True)
y = layer(x)[0]
y.square().sum().backward()
assert y.shape == x.shape and x.grad.abs().sum() > 0 and Other.operation() == 2
print(layer.beta_log.grad.abs().sum() > 0)
"""


@pytest.mark.parametrize("options", [[], ["--op-only"]])
def test_it_runs_in_a_clone_beside_what_is_there(quasar, environment, tmp_path, options):
    clone = tmp_path / "clone"
    for path, text in CLONE.items():
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text(text)
    git(tmp_path, "init", "-q", clone)
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "theirs")
    done = quasar("export", clone, "--json", *options)
    assert done.code == 0, done.err
    assert done.json["unmet_imports"] == [] and done.err == ""
    changed = {path for path in CLONE if (clone / path).read_text() != CLONE[path]}
    assert changed == {"fla/ops/quasar/__init__.py", *([] if options else [str(LAYER)])}
    done = subprocess.run(["python3", "-c", USE], cwd=clone, env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "tensor(True)\n", done.stderr
