"""Validators and networks that lie, stall, cut and double: commit, reveal and submit in front of them."""
import email.utils
import json
import signal
import subprocess
import time

import pytest

from conftest import FULL, QUASAR
from lossy import Change, Cut, LossyProxy, Say
from patience import LONG
from test_faults import Commit, Reveal, Submit, make_scene, report, sample  # noqa: F401: one is a fixture

pytestmark = pytest.mark.usefixtures("without_python")

POST = {"commit": ("POST", "/commit_submission"), "reveal": ("POST", "/reveal_submission"),
        "submit": ("POST", "/submit_kernel")}
PENDING, STATS = ("GET", "/pending_reveals"), ("GET", "/get_submission_stats")
TASKS = pytest.mark.parametrize("task", [Commit, Reveal, Submit], ids=lambda task: task.name)
# where one task stands for all until there is more time
TASKS_IN_TIME = pytest.mark.parametrize("task", [Commit, *(pytest.param(task, marks=pytest.mark.long)
                                                           for task in (Reveal, Submit))], ids=lambda task: task.name)


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

@pytest.mark.parametrize("task, route", [(Commit, POST["commit"]), *(
    pytest.param(*pair, marks=pytest.mark.long)
    for pair in ((Reveal, POST["reveal"]), (Submit, POST["submit"]), (Reveal, PENDING)))],
                         ids=["commit", "reveal", "submit", "pending"])
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


@TASKS_IN_TIME
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


@TASKS_IN_TIME
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
    _, err = process.communicate(timeout=LONG)
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
    assert "1 more by this hotkey" in scene("status").out
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
    assert "may not have arrived" in scene("status", "--api", "http://nobody.invalid", "--timeout", 1).out


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
    message = done.json["error"]["message"].replace(str(scene.directory), "")  # whose path has numbers of its own
    assert done.code == 3 and "disk is full" in message and "503" not in message
    scene.proxy.always.clear()
    Commit.check(scene, Commit.run(scene))


# --- answers that are not the validator's ---------------------------------------------------------------

PAGE = Say(404, b"<html><body>no such host</body></html>", "text/html")


@pytest.mark.parametrize("stray", [PAGE, Say(400, b"<html>Bad Request</html>", "text/html"),
                                   Say(400, {"detail": "Request blocked"}), Say(401, b""), Say(403, {"error": "forbidden"}),
                                   Say(409, {"detail": "Commitment hash already exists. Use a different salt."})],
                         ids=["page", "bad request", "unknown words", "no words", "no detail", "others' words"])
@TASKS
def test_a_stray_refusal_passes(scene, task, stray):
    if task is Commit and stray.status == 409:
        stray = Say(409, {"detail": "Submission already revealed"})
    last = meet(scene, task, stray)
    assert last.code == 0


def test_a_refusal_is_not_believed_while_the_list_has_the_commitment(scene):
    for words, code in ((Say(404, {"detail": "Submission not found"}), 4),
                        (Say(400, {"detail": "Commitment verification failed. Hash mismatch."}), 5),
                        (Say(409, {"detail": "Submission already revealed"}), 4)):
        begin(scene, Reveal)
        for pending in (None, Say(500), PAGE):
            scene.proxy.always = {POST["reveal"]: words, PENDING: pending}
            sent = scene.proxy.count(POST["reveal"][1])
            done = scene("reveal", "--timeout", 0.3)
            assert done.code == (code if pending is None or code == 5 else 4), done.err
            assert scene.proxy.count(POST["reveal"][1]) == sent + 1  # a mismatch counts as a failure
            scene.proxy.always.clear()
            assert [row["step"] for row in scene.rows()] == ["committed"]
        Reveal.check(scene, Reveal.run(scene))


def test_what_was_taken_for_lost_is_revealed_when_the_list_has_it(scene):
    begin(scene, Reveal)
    scene.proxy.always = {POST["reveal"]: Say(404, {"detail": "Submission not found"}),
                          PENDING: Change(pending_reveals=[])}
    done = scene("reveal", "--json")
    assert done.code == 5 and "has lost" in done.json["error"]["message"] and "commit" in done.json["error"]["hint"]
    assert [row["step"] for row in scene.rows()] == ["refused"]
    scene.proxy.always.clear()
    assert "ready: run `quasar reveal`" in scene("status").out
    Reveal.check(scene, Reveal.run(scene))


# --- lists that others fill -----------------------------------------------------------------------------

def foreign(number, **fields):
    return {"submission_id": 10 ** 6 + number, "miner_hotkey": f"5Foreign{number}", "commitment_hash": f"{number:016x}...",
            "reveal_block": 5, "blocks_remaining": 0, "can_reveal": True, "created_at": "2026-11-20T10:00:00", **fields}


def claims(count, **fields):
    row = {"id": 0, "miner_hotkey": "5Foreign", "fork_url": "https://host/fork", "commit_hash": "c0ffee", "repo_hash": None,
           "target_sequence_length": 512, "tokens_per_sec": 2.0, "vram_mb": None, "benchmarks": None, "validated": False,
           "created_at": "2026-11-20T18:14:00", **fields}
    return [{**row, "id": 10 ** 6 + number} for number in range(count)]


HOSTILE_ROWS = (claims(2, tokens_per_sec=1.7e308) + claims(1, target_sequence_length=2 ** 60)
                + claims(2, fork_url="https://" + "u" * (2 << 20)) + claims(17, commit_hash="c" * (9 << 15))
                + claims(1, fork_url="a\x00b") + claims(1, miner_hotkey=None) + claims(1, tokens_per_sec=None))


def test_rows_of_others_hide_nothing(scene):
    """Two averages that are null, a length of 2^60, URLs of 2 MB, 9 MB of submissions, 40,000 pending rows."""
    begin(scene, Reveal)
    flood = [foreign(number) for number in range(40000)] + [foreign(1, submission_id=2 ** 70), foreign(2, miner_hotkey=None), 7]
    scene.proxy.always = {
        PENDING: Change(pending_reveals=lambda real: flood[:20000] + real + flood[20000:]),
        STATS: Change(recent_submissions=lambda real: HOSTILE_ROWS + real,
                      stats={"avg_tokens_per_sec": None, "max_tokens_per_sec": None})}
    done = scene("status", "--json")
    assert done.code == 0 and done.json["online"] and done.json["problem"] is None, done.out
    assert done.json["skipped_rows"] == 3 + 1 + 2 + 17 + 1 + 1 + 1
    assert "make no sense" in done.err
    assert [row["blocks_remaining"] for row in done.json["submissions"]] == [0]
    assert scene("recover", "--json").json["skipped_rows"] == done.json["skipped_rows"]
    board = scene("leaderboard", "--json")
    assert board.code == 0 and len(board.json["ranking"]) == 2 and board.json["skipped_rows"] == 23, board.err
    assert scene("round").code == 0
    Reveal.check(scene, Reveal.run(scene))
    assert [row["rank"] for row in scene.rows()] == [3]


def test_a_list_of_200_000_rows_is_read_in_little_memory(scene):
    begin(scene, Reveal)
    rows = b", ".join(json.dumps(foreign(number)).encode() for number in range(1000))

    def flood(content):
        return content.replace(b'"pending_reveals":[', b'"pending_reveals":[' + (rows + b", ") * 200, 1)

    change = Change()
    change.content = flood
    scene.proxy.always[PENDING] = change
    done = subprocess.run(["/usr/bin/env", "bash", "-c", f"ulimit -v 600000; exec {QUASAR} reveal"], cwd=scene.directory,
                          env={"HOME": str(scene.directory.parent / "home")}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    scene.proxy.always.clear()
    scene.assert_one_revealed()


def test_statistics_that_fail_for_ever_stop_nothing_else(scene):
    begin(scene, Reveal)
    scene.proxy.always[STATS] = Say(500, b"Internal Server Error", "text/plain")
    done = scene("status", "--json", "--timeout", 1)
    assert done.code == 0 and done.json["online"] and "get_submission_stats" in done.json["problem"]
    assert done.json["current_block"] and done.json["round_seconds_left"]
    assert scene("recover", "--timeout", 1).code == 4
    done = scene("reveal")
    assert done.code == 0, done.err
    assert "the validator's list cannot be read" in scene("status", "--timeout", 1).out
    scene.proxy.always.clear()
    scene.assert_one_revealed()


def test_a_rank_that_is_not_shown_is_not_none_yet(scene):
    begin(scene, Reveal)
    assert scene("reveal").code == 0
    scene.proxy.always[STATS] = Change(recent_submissions=[], top_performers=[])
    assert "rank unknown: the validator shows only the ten fastest" in scene("status").out


# --- validators as they are ------------------------------------------------------------------------------

def test_the_round_is_asked_for_before_and_after_a_500(scene):
    """After a round was finalized, the deployed validator takes nothing until somebody has asked for the next."""
    for task in (Commit, Submit):
        begin(scene, task)
        path = POST[task.name][1]
        scene.proxy.faults[POST[task.name]] = [Say(500, {"detail": "(sqlite3.IntegrityError) UNIQUE constraint failed"})]
        seen = len(scene.proxy.requests)
        assert task.run(scene).code == 0
        order = [name for _, name in scene.proxy.requests[seen:] if name in (path, "/get_current_round")]
        assert order == ["/get_current_round", path] * 2


def reset(scene, tmp_path):
    """The validator begins anew, as the deployed one does at each start."""
    port = scene.server.port
    scene.server.stop()
    for path in tmp_path.glob("localnet-0/localnet.db*"):
        path.unlink()
    scene.server.start("--port", str(port))


def test_a_database_that_was_reset_is_no_circle(scene, tmp_path):
    begin(scene, Reveal)
    reset(scene, tmp_path)
    assert "not listed by the validator" in scene("doctor").out
    assert "has lost" in scene("status").out
    assert [row["step"] for row in scene.rows()] == ["refused"]
    assert "0 ready to reveal, 0 waiting" in scene("doctor").out
    done = scene("reveal")
    assert done.code == 3 and "nothing to reveal" in done.err
    assert scene("register").code == 0
    done = scene.send("commit")
    assert done.code == 0 and not done.json["already"]
    assert scene.reveal().code == 0
    assert [row["step"] for row in scene.rows()] == ["refused", "revealed"]


@pytest.mark.parametrize("command", ["reveal", "commit"])
def test_a_reset_is_found_out_by_each_command(scene, tmp_path, command):
    begin(scene, Reveal)
    reset(scene, tmp_path)
    assert scene("register").code == 0
    done = scene("reveal") if command == "reveal" else scene.send("commit")
    assert done.code == (5 if command == "reveal" else 0), done.err
    assert [row["step"] for row in scene.rows()] == ["refused"] + ["committed"] * (command == "commit")
