"""quasar validate runs strangers' forks with a real PyTorch, on the GPU where there is one: what they try, and what
becomes of them."""
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest
import torch

from sample_fork import Fork
from scripted_server import reply

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
ROOT = pathlib.Path(__file__).resolve().parents[2]

LAYER = """
import torch

class QuasarAttention(torch.nn.Module):
    def __init__(self, hidden_size, head_dim, num_heads, mode, use_short_conv):
        super().__init__()
        self.project = torch.nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        return self.project(x), None, None
"""

PAUSE = 0.02  # seconds of each call
SLOW_LAYER = LAYER.replace("import torch", "import time, torch").replace("return", f"time.sleep({PAUSE}); return")


@pytest.fixture
def submit(tmp_path, localnet, alice):
    """Submits a fork whose layer is in that file, or in that directory; its number."""

    def submit(layer, **fields):
        fork = Fork(tmp_path / f"fork-{len(list(tmp_path.glob('fork-*')))}")
        if isinstance(layer, pathlib.Path):
            shutil.copytree(layer, fork.path, dirs_exist_ok=True)
        else:
            (fork.path / "fla" / "layers").mkdir()
            (fork.path / "fla" / "layers" / "quasar.py").write_text(layer)
        body = {"miner_hotkey": alice.address, "fork_url": fork.url, "commit_hash": fork.commit(),
                "target_sequence_length": 600, "tokens_per_sec": 1.0, "signature": "s",
                "benchmarks": {"600": {"tokens_per_sec": 1.0}}, **fields}
        return localnet.post("/submit_kernel", body, alice.headers).json["submission_id"]

    return submit


@pytest.fixture
def validate(quasar, localnet, tmp_path):
    clones = tmp_path / "clones"
    clones.mkdir()

    def validate(*args, device=DEVICE, url=localnet.url, **more):
        return quasar("validate", "--api", url, "--once", "--json", "--python", sys.executable,
                      "--device", device, *args, env={"TMPDIR": str(clones), "OMP_NUM_THREADS": "1", **more})

    yield validate
    assert list(clones.iterdir()) == []


def test_a_fork_is_judged_by_its_own_layer(submit, validate):
    """Ours, and one that computes something else, at the lengths that it gives numbers for."""
    ours = submit(ROOT / "build" / "fork")
    other = submit(SLOW_LAYER, benchmarks={"512": {"tokens_per_sec": 1.0}})
    done = validate()
    assert done.code == 0, done.err
    assert done.json["benchmark"] == "the fork's layer" and done.json["sandbox"]
    first, second = done.json["judged"]
    assert (first["submission_id"], second["submission_id"]) == (ours, other)
    assert [entry["seq"] for entry in first["benchmarks"]] == [600]
    assert [entry["seq"] for entry in second["benchmarks"]] == [512, 600]
    for judged in (first, second):
        measured = judged["benchmarks"][-1]["tokens_per_sec"]
        assert judged["valid"] and judged["score"] == pytest.approx(1 + (measured - 1))
    assert all(entry["tokens_per_sec"] < entry["seq"] / PAUSE for entry in second["benchmarks"])


@pytest.mark.parametrize("like", ["2026-04"])
def test_what_ranks_in_april_is_what_the_forks_layer_did(submit, validate, localnet, alice):
    ours = submit(ROOT / "build" / "fork", network="test", docker_image="me/image:1", tokens_per_sec=10.0)
    done = validate("--wallet", "judge", "--assume-verified", "--gpu-factor", "2")
    assert done.code == 0, done.err
    [judged] = done.json["judged"]
    checks = {check["name"]: check["status"] for check in judged["checks"]}
    assert judged["submission_id"] == ours and judged["score"] == 1 and checks["imports.ast"] == "ok"
    assert judged["normalized_tokens_per_sec"] == pytest.approx(judged["benchmarks"][0]["tokens_per_sec"] / 2)
    [weight] = localnet.get("/get_weights?network=test").json["weights"]
    assert weight["hotkey"] == alice.address


OPEN_FILES = """
import collections, os

def open_files():
    places = [f"/proc/self/fd/{fd}" for fd in range(100)]
    files = {os.readlink(place) for place in places if os.path.islink(place)}
    return collections.Counter(file.split(":[")[0] for file in files)
"""

ATTACK = """
import collections, ctypes, glob, os, re, signal, socket, sys
done = []

def reads(path):
    with open(path, "rb") as file:
        if b"SECRET" in file.read():
            done.append(path)

def attempt(work, *arguments):
    try:
        if work(*arguments) is not None:
            done.append(f"{work.__name__}{arguments}")
    except Exception:
        pass

def writes(path):
    with open(path, "w"):
        done.append(path)

def overwrites(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)  # in a /tmp of its own
    with open(path, "w") as file:
        file.write("mine")

def signals(pid):
    os.kill(pid, signal.SIGKILL)
    done.append(f"kill {pid}")

def connects(family, address):
    with socket.socket(family) as client:
        client.connect(address)
        done.append(f"connect {address}")

def traces(pid):
    if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0:
        done.append(f"ptrace {pid}")

for path in PATHS + glob.glob("/proc/*/environ") + ["/root/.ssh/id_ed25519", "/etc/shadow"]:
    attempt(reads, path)
for path in [__file__, "/usr/lib/evil.py", "/etc/ld.so.preload", sys.prefix + "/evil.py", "/evil",
                     "/proc/sys/kernel/core_pattern"]:
    attempt(writes, path)
for path in PATHS:
    attempt(overwrites, path)
for pid in PIDS:
    attempt(signals, pid)
    attempt(traces, pid)
attempt(connects, socket.AF_INET, ("127.0.0.1", PORT))
attempt(connects, socket.AF_UNIX, ABSTRACT)
if not os.fork():  # a daemon
    os.setsid()
    os.execlp("sleep", "sleep", MARK)
if any("SECRET" in value for value in os.environ.values()):
    done.append("environment")
exec(OPEN_FILES)
more = open_files() - collections.Counter(OF_THE_DEVICE)
if more - collections.Counter({"socket": 1, "pipe": more["pipe"], "/dev/null": more["/dev/null"]}):  # it is talked with
    done.append(more)
for path in glob.glob("/dev/nvidia*"):
    if path not in ("/dev/nvidiactl", "/dev/nvidia-uvm") and not re.fullmatch("/dev/nvidia[0-9]+", path):
        done.append(path)
print("\\033]0;evil\\007\\033[2J")
if done:
    raise RuntimeError(f"it could: {done}")
"""


def files_of_the_device():
    """What a process has open for a GPU that it uses, whoever it is."""
    counted = (OPEN_FILES + "before = open_files()\nimport torch\n"
               f"torch.zeros(1, device={DEVICE!r})\nimport json\nprint(json.dumps(open_files() - before))")
    done = subprocess.run([sys.executable, "-c", counted], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_what_a_fork_tries_fails(submit, validate, home, tmp_path):
    (home / ".ssh").mkdir()
    secrets = [home / ".ssh" / "id_ed25519", home / "key", tmp_path / ".env"]
    for path in secrets:
        path.write_text("SECRET\n")
    mark = f"{os.getpid()}00000.5"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0evil-{os.getpid()}")
        abstract.listen()
        known = {"PATHS": [str(path) for path in secrets], "PIDS": [os.getpid(), os.getppid()],
                 "PORT": server.getsockname()[1], "ABSTRACT": abstract.getsockname(), "MARK": mark,
                 "OPEN_FILES": OPEN_FILES, "OF_THE_DEVICE": files_of_the_device()}
        submit("".join(f"{name} = {value!r}\n" for name, value in known.items()) + ATTACK + LAYER)
        done = validate(GITHUB_TOKEN="SECRET", VALIDATOR_KEY="SECRET", SOMETHING="SECRET")
    judged, = done.json["judged"]
    assert judged["valid"] and judged["score"] > 0, judged["reason"]
    assert "\033" not in done.out + done.err
    assert [path.read_text() for path in secrets] == ["SECRET\n"] * 3
    assert subprocess.run(["grep", "-qsz", f"^{mark}$", *pathlib.Path("/proc").glob("[0-9]*/cmdline")]).returncode


FORGED = LAYER + """
import os, time
time.time = iter(i * 1e-6 for i in range(10**6)).__next__
forward = QuasarAttention.forward
calls = 0

def slow(self, x):
    global calls
    calls += 1
    if calls < 13:
        time.sleep(0.1)
    else:
        for fd in range(3, 20):
            try:
                os.write(fd, b'{"clock": "start"}\\n')
            except OSError:
                pass
    return forward(self, x)

QuasarAttention.forward = slow
"""


def test_no_round_begins_twice(submit, validate):
    submit(FORGED)
    judged, = validate().json["judged"]
    assert not judged["valid"] and "rounds that it did not run" in judged["reason"]


def test_what_cannot_be_told_keeps_no_other_verdict(submit, validate, tmp_path):
    """A claim of next to nothing, and a fork that holds what no other place may hold that a sandbox shows."""
    (tmp_path / "odd" / "fla" / "layers").mkdir(parents=True)
    (tmp_path / "odd" / "fla" / "layers" / "quasar.py").write_text(LAYER)
    (tmp_path / "odd" / ".env").write_text("A=1\n")
    submit(LAYER, tokens_per_sec=1e-307)
    submit(tmp_path / "odd")
    submit(LAYER)
    done = validate()
    assert done.code == 0 and not done.json["pending"], done.err
    assert all(judged["valid"] and judged["score"] > 0 for judged in done.json["judged"])


def test_a_folder_where_the_script_belongs_is_no_way_to_stay_pending(submit, validate, tmp_path):
    (tmp_path / "odd" / "test_temp_600.py").mkdir(parents=True)
    (tmp_path / "odd" / "test_temp_600.py" / "file").touch()
    (tmp_path / "odd" / "fla" / "layers").mkdir(parents=True)
    (tmp_path / "odd" / "fla" / "layers" / "quasar.py").write_text(LAYER)
    submit(tmp_path / "odd")
    done = validate()
    assert done.code == 0 and done.json["judged"][0]["score"] > 0, done.err


BAD = {
    "No module named 'missing'": "import missing",
    "it ran more than 512 processes and threads": "import os, time\n"
        "os.fork() or os.execlp('sh', 'sh', '-c', 'bomb() { bomb | bomb & }; bomb; sleep 600')\n"
        "time.sleep(600)",
    "status 3": "import os; os._exit(3)",
    "takes longer than the 30 s": "while True: pass",
    "answers with something else": "import os\nfor fd in range(3, 20):\n"
                                   "    try: os.write(fd, b'\\xff\\x1b[31mgarbage\\n')\n"
                                   "    except OSError: pass",
}


@pytest.mark.long
def test_bad_forks_get_nothing_and_good_ones_their_due(localnet, submit, validate, alice):
    """Side by side: one fork's end is not another's."""
    for code in BAD.values():
        submit(f"{code}\n{LAYER}", tokens_per_sec=1e15)
    good = submit(LAYER)
    done = validate("--budget", "30", "--finalize", device=f"{DEVICE},{DEVICE}")
    assert done.code == 0, done.err
    *bad, last = sorted(done.json["judged"], key=lambda judged: judged["submission_id"])
    assert last["submission_id"] == good and last["valid"] and last["score"] > 0
    for words, judged in zip(BAD, bad, strict=True):
        assert words in judged["reason"], judged["reason"]
        assert not judged["valid"] and judged["score"] == 0
    assert localnet.get("/verification_stats").json["verified_failed"] == len(BAD)
    assert done.json["round"]["winner"] == alice.address


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="two GPUs are needed")
def test_every_gpu_judges(submit, validate):
    """Ours, as often as there are GPUs: on each one's own memory, and with the same result."""
    for _ in range(torch.cuda.device_count()):
        submit(ROOT / "build" / "fork")
    done = validate(device="all")
    assert done.code == 0, done.err
    assert len(done.json["devices"]) == torch.cuda.device_count() == len(done.json["judged"])
    for judged in done.json["judged"]:
        assert judged["valid"] and judged["score"] > 0, judged


def test_a_fork_for_gpus_stays_pending_on_a_cpu(localnet, submit, validate):
    submit("import torch\nclass QuasarAttention(torch.nn.Module):\n    def __init__(self, **options):\n"
           "        super().__init__()\n        torch.zeros(1, device='cuda')\n")
    good = submit(LAYER)
    done = validate(device="cpu")
    assert done.code == 3 and "stays pending: the fork needs a GPU" in done.err
    assert [judged["submission_id"] for judged in done.json["judged"]] == [good]
    pending, = done.json["pending"]
    assert "needs a GPU" in pending["reason"]
    waiting = localnet.get("/get_submission_stats").json["recent_submissions"]
    assert [entry["id"] for entry in waiting] == [pending["submission_id"]]


def test_only_the_target_has_to_work(submit, validate):
    picky = LAYER.replace("return", "assert x.shape[1] == 600\n        return")
    submit(picky, benchmarks={"512": {"tokens_per_sec": 1}, "550": {"tokens_per_sec": 1}})
    submit(picky, benchmarks={"700": {"tokens_per_sec": 1}}, target_sequence_length=700)
    right, wrong = validate().json["judged"]
    assert right["valid"] and right["score"] > 0 and "512: fla/layers/quasar.py" in next(
        check["detail"] for check in right["checks"] if check["name"] == "benchmark" and check["status"] == "warn")
    assert not wrong["valid"] and "AssertionError" in wrong["reason"]


def test_a_clock_that_lies_is_not_believed(submit, validate):
    """The process's clock stands still, ours does not."""
    submit(LAYER)
    submit(LAYER + "import time\ntime.time = iter(i * 1e-6 for i in range(10**6)).__next__\n")
    honest, liar = validate().json["judged"]
    assert liar["score"] < 10 * honest["score"]


def test_without_a_sandbox_nothing_is_run_unless_asked_to(submit, validate, tmp_path, home):
    witness = tmp_path / "witness"
    submit(f"open({str(witness)!r}, 'w')\n{LAYER}")
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("choom", "prlimit", "env", "sh"):
        (bare / program).symlink_to(shutil.which(program))
    refused = validate(PATH=str(bare))
    assert refused.code == 3 and "sandbox" in refused.err and "apt install bubblewrap" in refused.err
    assert not witness.exists()
    done = validate("--no-sandbox", PATH=str(bare))
    assert done.code == 0 and "without a sandbox" in done.err and not done.json["sandbox"]
    assert done.json["judged"][0]["score"] > 0 and witness.exists()


# --- strangers' addresses ------------------------------------------------------------------------------

INSIDE = ["http://127.0.0.1:{}/x", "http://localhost:{}/x", "https://localhost:{}/x", "http://[::1]:{}/x",
          "http://[::ffff:127.0.0.1]:{}/x", "http://2130706433:{}/x", "http://0.0.0.0:{}/x"]
NEARBY = ["http://169.254.169.254/latest", "http://10.0.0.1/x", "http://192.168.0.1:8080/x", "https://[fe80::1]/x",
          "http://[64:ff9b::10.0.0.1]/x"]


@pytest.fixture
def from_afar(localnet, validate):
    """As validate, through a name that is not known to be this machine."""
    return lambda *args: validate(*args, url=localnet.url.replace("127.0.0.1", "0.0.0.0"))


def reasons(done):
    assert done.code == 0, done.err
    return [judged["reason"] for judged in done.json["judged"]]


def test_a_stranger_leads_to_public_addresses_only(submit, from_afar, serve):
    server = serve(reply(404))
    for url in INSIDE + NEARBY:
        submit(LAYER, fork_url=url.format(server.port))
    for url, reason in zip(INSIDE + NEARBY, reasons(from_afar()), strict=True):
        assert "no public address" in reason, (url, reason)
    assert server.requests == []


def test_an_operator_may_allow_any_address(submit, from_afar, serve):
    server = serve(reply(404))
    submit(LAYER, fork_url=INSIDE[0].format(server.port))
    assert "404" in reasons(from_afar("--local-forks"))[0] and server.requests


def test_a_rehearsal_on_this_machine_stays_on_it(submit, validate, serve):
    server = serve(reply(404))
    for url in [INSIDE[0].format(server.port), *NEARBY]:
        submit(LAYER, fork_url=url)
    first, *rest = reasons(validate())
    assert "404" in first and server.requests
    assert all("no public address" in reason for reason in rest)


def test_local_forks_are_for_local_validators(submit, from_afar):
    submit(LAYER)
    reason, = reasons(from_afar())
    assert "not a URL that validators clone" in reason
    submit(LAYER)
    assert from_afar("--local-forks").json["judged"][0]["valid"]
