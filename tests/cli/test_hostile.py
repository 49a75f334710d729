"""Validators and networks that lie, stall, cut and double: commit, reveal and submit in front of them."""
import email.utils
import signal
import subprocess
import time

import pytest

from conftest import QUASAR
from lossy import Change, Cut, LossyProxy, Say
from test_faults import Commit, FULL, Reveal, Submit, make_scene, report, sample  # noqa: F401: one is a fixture

POST = {"commit": ("POST", "/commit_submission"), "reveal": ("POST", "/reveal_submission"),
        "submit": ("POST", "/submit_kernel")}
PENDING, STATS = ("GET", "/pending_reveals"), ("GET", "/get_submission_stats")
TASKS = pytest.mark.parametrize("task", [Commit, Reveal, Submit], ids=lambda task: task.name)


@pytest.fixture
def scene(make_scene):  # noqa: F811
    proxies = []

    def between(url):
        proxies.append(LossyProxy(url))
        return proxies[-1]

    yield make_scene(between)
    for proxy in proxies:
        proxy.close()


def begin(scene, task):
    scene.forget()
    task.prepare(scene)


def meet(scene, task, *faults, route=None):
    """Runs the task with these faults in its way; it must end well, with one submission at the validator."""
    begin(scene, task)
    scene.proxy.faults[route or POST[task.name]] = list(faults)
    last = task.run(scene)
    assert scene.proxy.faults[route or POST[task.name]] == []
    task.check(scene, last)
    return last


# --- answers that do not come, or not whole ----------------------------------------------------------

@pytest.mark.parametrize("task, route", [(Commit, POST["commit"]), (Reveal, POST["reveal"]), (Submit, POST["submit"]),
                                         (Reveal, PENDING)], ids=["commit", "reveal", "submit", "pending"])
def test_an_answer_cut_at_each_byte(scene, capsys, task, route):
    begin(scene, task)
    lengths = []
    forward = scene.proxy.answer
    scene.proxy.answer = lambda *args: (forward(*args), lengths.append((args[0].command, args[0].path,
                                                                        scene.proxy.length)))
    task.check(scene, task.run(scene))
    scene.proxy.answer = forward
    length = next(length for method, path, length in lengths if (method, path) == route)
    places = sample(range(length), 5)
    for place in places:
        meet(scene, task, Cut(place), route=route)
    report(capsys, f"{task.name}: {route[1]} cut at {len(places)} of {length} bytes, 0 lost, 0 double")


@TASKS
def test_a_validator_that_stays_so_is_given_up_and_taken_up_again(scene, task):
    for fault in ("silence", "lose", "drop", 503, 429):
        give_up_and_go_on(scene, task, fault)


def give_up_and_go_on(scene, task, fault):
    begin(scene, task)
    scene.proxy.always[POST[task.name]] = fault
    scene.proxy.always[PENDING] = scene.proxy.always[STATS] = fault if task is not Reveal else None
    done = scene(*{"reveal": ["reveal"]}.get(task.name, [task.name, "--no-verify", "--claim", scene.claim]), "--json",
                 "--timeout", 0.5)
    if fault == "lose" and task is Reveal:
        assert done.code in (0, 4)  # the second attempt is answered with 409, which is lost as well
    else:
        assert done.code == 4 and "Traceback" not in done.err, done.err
    scene.proxy.always.clear()
    task.check(scene, task.run(scene))


# --- answers that are wrong ---------------------------------------------------------------------------

IMPOSSIBLE = [
    Change(b'{"detail": "database is locked"}'), Change(b'{"error": "internal"}'), Change(b"[]"), Change(b""),
    Change(submission_id=0), Change(submission_id=-3), Change(submission_id="7"), Change(submission_id=None),
    Change(miner_hotkey="5Another", commitment_hash="0" * 64)]


@TASKS
def test_an_answer_that_cannot_be_counts_as_lost(scene, task):
    """The validator did its work: what it has is looked up before anything is sent again."""
    for change in IMPOSSIBLE:
        meet(scene, task, change)


@pytest.mark.parametrize("wrong", [lambda real: real + 1000, lambda real: 1], ids=["nobody's", "another's"])
def test_a_commitment_told_a_wrong_id_is_revealed_under_its_own(scene, wrong):
    other = scene.quasar("wallet", "new", "--wallet", "other", "--json").json["address"]
    assert scene("register", "--wallet", "other").code == 0 and other
    scene.forget()
    assert scene.send("commit").code == 0 and scene("commit", "--wallet", "other", "--no-verify", "--claim", 5).code == 0
    assert scene.reveal().code == 0
    scene.forget()
    scene.proxy.faults[POST["commit"]] = [Change(submission_id=wrong)]
    assert scene.send("commit").code == 0
    done = scene.reveal()
    assert done.code == 0, done.err
    assert len(scene.submissions()) == 1
    assert [row["submission_id"] for row in scene.rows()] == [scene.submissions()[0]["id"]]
    assert "under the id" in done.err


@pytest.mark.parametrize("told", [lambda block: block + 10 ** 6, lambda block: block - 50, 0],
                         ids=["later", "earlier", "never"])
def test_a_reveal_block_that_changes_is_followed(scene, told):
    scene.forget()
    scene.proxy.faults[POST["commit"]] = [Change(reveal_block=told)]
    assert scene.send("commit").code == 0
    moved = [{"can_reveal": False}, {"can_reveal": False}]

    def change(reveals):
        for entry in reveals:
            entry.update(moved.pop(), reveal_block=entry["reveal_block"] + 3)
        return reveals

    scene.proxy.faults[PENDING] = [Change(pending_reveals=change)] * 2
    done = scene.reveal()
    assert done.code == 0, done.err
    assert "moved the reveal" in done.err and moved == []
    assert len(scene.submissions()) == 1


def test_too_early_forever(scene):
    scene.forget()
    Reveal.prepare(scene)
    scene.proxy.always[POST["reveal"]] = Say(425, {"detail": "Cannot reveal yet. Wait 1 blocks (~0 minutes)"})
    assert scene("reveal", "--json").code == 6
    process = subprocess.Popen([QUASAR, "reveal", "--wait"], cwd=scene.directory, stderr=subprocess.PIPE, text=True,
                               env={"HOME": str(scene.directory.parent / "home")})
    begun = scene.proxy.count(POST["reveal"][1])
    while scene.proxy.count(POST["reveal"][1]) < begun + 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "425" in err
    scene.proxy.always.clear()
    assert scene.reveal().code == 0
    assert len(scene.submissions()) == 1


@TASKS
def test_a_clock_hours_away(scene, task):
    for hours in (-30, 30):
        date = Change(headers={"Date": email.utils.formatdate(time.time() + hours * 3600, usegmt=True)})
        scene.proxy.always.update({route: date for route in (*POST.values(), PENDING, STATS)})
        begin(scene, task)
        task.check(scene, task.run(scene))


@TASKS
def test_restarts_in_between(scene, task):
    begin(scene, task)
    scene.server.restart(signal.SIGKILL)
    assert task.run(scene).code == 0
    scene.server.restart(signal.SIGKILL)
    last = task.run(scene)
    task.check(scene, last)


# --- connections that are doubled and overtaken --------------------------------------------------------

@pytest.mark.parametrize("task", [Commit, Reveal], ids=lambda task: task.name)
def test_a_doubled_or_belated_request_changes_nothing(scene, task):
    for fault in ("double", "again", "late"):
        begin(scene, task)
        scene.proxy.faults[POST[task.name]] = [fault]
        last = task.run(scene)
        scene.proxy.deliver()
        task.check(scene, last)


@pytest.mark.parametrize("fault", ["double", "again", "late"])
def test_a_submission_that_the_network_doubled_is_not_hidden(scene, fault):
    """Nothing tells the validator that two direct submissions are one: but the miner gets to know."""
    scene.forget()
    scene.proxy.faults[POST["submit"]] = [fault]
    done = scene.send("submit")
    assert done.code == 0, done.err
    scene.proxy.deliver()
    assert len(scene.submissions()) == 2
    assert done.json["submission_id"] in [entry["id"] for entry in scene.submissions()]
    assert "1 more of this hotkey" in scene("status").out
    assert scene("recover", "--json").json["found"] == [entry["id"] for entry in scene.submissions()
                                                        if entry["id"] != done.json["submission_id"]]
    assert scene("status", "--json").json["unknown_here"] == 0
    assert sorted(row["submission_id"] for row in scene.rows()) == sorted(e["id"] for e in scene.submissions())


# --- no way to the validator ----------------------------------------------------------------------------

def test_a_name_that_nobody_knows(scene):
    scene.forget()
    done = scene(
        "commit", "--no-verify", "--claim", 7, "--api", "http://nobody.invalid", "--timeout", 3)
    assert done.code == 4 and "nobody.invalid" in done.err and "Nothing is lost" in done.err
    assert "not known to have arrived" in scene("status", "--api", "http://nobody.invalid", "--timeout", 1).out


def test_a_store_that_fails_ends_the_attempts_at_once(scene):
    """A validator that is busy is asked again; a disk that is full is not."""
    scene.forget()
    assert scene.send("commit").code == 0
    names = [name for name in scene.calls() if name in ("write", "connect")]
    first = names.index("connect")
    assert scene.reveal().code == 0
    scene.forget()
    scene.proxy.always[POST["commit"]] = 503
    done = scene.send("commit", fault=f"ENOSPC@{first + 1}+", calls="write")
    assert done.code == 3 and "disk is full" in done.json["error"]["message"]
    assert "503" not in done.json["error"]["message"]
    scene.proxy.always.clear()
    Commit.check(scene, Commit.run(scene))
