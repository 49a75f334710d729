"""Every kind of answer at every request: status × body × route, from proxies, load balancers and validators of other
versions. None of them may lose a commitment, end a command in another way than is documented, or double anything.

A sample of the answers is tried; with SWEEP=full in the environment, all of them."""
import itertools
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import FULL, QUASAR
from lossy import Say
from patience import LONG
from test_faults import report
from test_hostile import PENDING, POST, STATS, make_scene, scene  # noqa: F401: two are fixtures

pytestmark = pytest.mark.long

STATUSES = [200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 411,
            413, 415, 418, 422, 425, 426, 429, 431, 451, 500, 501, 502, 503, 504, 505, 507, 520, 522, 525, 530, 599]
HTML = b"<!DOCTYPE html><html><head><title>%d</title></head><body><h1>Not available</h1></body></html>"
OWN = {"detail": "Submission not found"}
NULLS = {name: None for name in (
    "detail", "status", "submission_id", "hotkey", "league", "model_name", "miner_hotkey", "fork_url", "commit_hash",
    "commitment_hash", "reveal_block", "is_revealed", "message", "current_block", "pending_reveals", "id", "epoch", "weights",
    "recent_submissions", "top_performers", "total_submissions", "round_number")}
FOREIGN_WORDS = {"/reveal_submission": "Commitment hash already exists. Use a different salt.",
                 "/commit_submission": "Submission already revealed"}


def bodies(path, status):
    yield "empty", Say(status, b"")
    yield "page", Say(status, HTML % status, "text/html")
    yield "no detail", Say(status, {"error": "no upstream"})
    yield "unknown detail", Say(status, {"detail": "The moon is in the wrong phase"})
    yield "words for another request", Say(status, {"detail": FOREIGN_WORDS.get(path, "Round already finalized")})
    yield "truncated", Say(status, b'{"detail": "Submission not fo')
    yield "wrong type", Say(status, OWN, "text/html; charset=utf-8")
    yield "nulls", Say(status, NULLS)
    yield "wrong shape", Say(status, [OWN, [OWN]])
    yield "wrong types", Say(status, {"detail": {"message": ["Submission not found"]}, "pending_reveals": {"a": 1},
                                      "recent_submissions": "none", "submission_id": "seven", "weights": 7})
    yield "plain", Say(status, b"upstream connect error or disconnect/reset before headers", "text/plain")
    if status in (301, 302, 307, 308):
        yield "elsewhere", Say(status, b"", headers={"Location": "http://127.0.0.2:9/login"})
    if status in (200, 404, 500):
        yield "junk of 20 MB", Say(status, b"junk" * (5 << 20), "text/html")


def answers(path, share):
    """All, or every share-th."""
    every = [(f"{status}, {name}", say) for status in STATUSES for name, say in bodies(path, status)]
    return every if FULL else every[::share]


def steps(scene):  # noqa: F811
    with sqlite3.connect(scene.database) as database:
        found = [row[0] for row in database.execute("SELECT step FROM submission ORDER BY id")]
    database.close()
    return found


def sweep(scene, capsys, route, command, check, share, beside=None):  # noqa: F811
    """`check` is called with what came of the command under each answer."""
    tried = 0
    for name, say in answers(route[1], share):
        scene.proxy.always = {**(beside or {}), route: say}
        done = scene(*command, "--timeout", "0.2")
        assert done.code >= 0, (name, done.code, done.err)
        try:
            check(done)
        except AssertionError as error:
            raise AssertionError(f"{' '.join(map(str, command[:1]))}: {route[1]}: {name}: {done.code} {done.err}") from error
        tried += 1
    scene.proxy.always = {}
    report(capsys, f"{command[0]}: {tried} kinds of answers to {route[1]}, 0 lost, 0 double")


REVEAL, COMMIT, SUBMIT = POST["reveal"], POST["commit"], POST["submit"]
ROUND = ("GET", "/get_current_round")


def committed(scene):  # noqa: F811
    scene.forget()
    assert scene.send("commit").code == 0
    while not scene.pending()[0]["can_reveal"]:
        pass


def is_fault(done):
    assert done.code in (4, 5)


@pytest.mark.parametrize("routes", [[REVEAL], [REVEAL, PENDING], [REVEAL, PENDING, STATS]], ids=len)
def test_reveal(scene, capsys, routes):  # noqa: F811
    """With one route after the other that answers so; what is read only, while the reveal is refused in its words."""
    committed(scene)
    beside = {} if routes == [REVEAL] else {REVEAL: Say(404, OWN)} if routes[-1] == PENDING else {
        REVEAL: Say(409, {"detail": "Submission already revealed"}), PENDING: Say(503)}

    def check(done):
        is_fault(done)
        assert steps(scene) == ["committed"]

    sweep(scene, capsys, routes[-1], ["reveal"], check, 23, beside)
    assert scene("reveal").code == 0
    scene.assert_one_revealed()


def test_a_reveal_goes_out_whatever_the_list_says(scene, capsys):  # noqa: F811
    for name, say in answers(PENDING[1], 90 if not FULL else 1)[:40]:
        committed(scene)
        scene.proxy.always = {PENDING: say, STATS: say, ROUND: say}
        assert scene("reveal", "--timeout", "1").code == 0, name
        scene.proxy.always = {}
        scene.assert_one_revealed()


def test_commit(scene, capsys):  # noqa: F811
    scene.forget()

    def check(done):
        is_fault(done)
        assert steps(scene) == ["prepared"] and scene.pending() == []

    sweep(scene, capsys, COMMIT, ["commit", "--no-verify", "--claim", scene.claim], check, 23)
    assert scene.send("commit").code == 0
    assert scene.reveal().code == 0
    scene.assert_one_revealed()


def test_commit_that_arrived(scene, capsys):  # noqa: F811
    """The validator has it, the answer was lost: then the list may say what it likes."""
    scene.forget()
    scene.proxy.faults[COMMIT] = ["lose"]
    scene.proxy.always = {PENDING: 503}
    assert scene("commit", "--no-verify", "--claim", scene.claim, "--timeout", "0.2").code == 4

    def check(done):
        is_fault(done)
        assert steps(scene) == ["prepared"] and len(scene.pending()) == 1

    sweep(scene, capsys, PENDING, ["commit", "--no-verify", "--claim", scene.claim], check, 23)
    assert scene.send("commit").code == 0
    assert scene.reveal().code == 0
    scene.assert_one_revealed()


def test_submit(scene, capsys):  # noqa: F811
    scene.forget()

    def check(done):
        is_fault(done)
        assert steps(scene) == ["prepared"] and scene.submissions() == []

    sweep(scene, capsys, SUBMIT, ["submit", "--no-verify", "--claim", scene.claim], check, 23)
    assert scene.send("submit").code == 0
    assert len(scene.submissions()) == 1 and steps(scene) == ["submitted"]


@pytest.mark.parametrize("command", [COMMIT, SUBMIT], ids=["commit", "submit"])
def test_the_round_is_only_asked_for(scene, command):  # noqa: F811
    for name, say in answers(ROUND[1], 70)[:12]:
        scene.forget()
        scene.proxy.always = {ROUND: say}
        done = scene(command[1].split("_")[0][1:], "--no-verify", "--claim", scene.claim, "--json")
        assert done.code == 0, (name, done.err)
    scene.proxy.always = {}


def test_what_is_read(scene, capsys):  # noqa: F811
    committed(scene)

    def survives(codes):
        def check(done):
            assert done.code in codes
            assert steps(scene) == ["committed"]
        return check

    for route in (PENDING, STATS, ROUND):
        sweep(scene, capsys, route, ["status", "--json"], survives((0,)), 41)
    for route in (PENDING, STATS):
        sweep(scene, capsys, route, ["recover"], survives((4, 5)), 41)
    sweep(scene, capsys, ROUND, ["round"], survives((4, 5)), 41)
    for route in (STATS, ("GET", "/get_weights")):
        sweep(scene, capsys, route, ["leaderboard"], survives((4, 5)), 41)
    sweep(scene, capsys, ("POST", "/register_miner"), ["register"], survives((4, 5)), 41)
    assert scene("reveal").code == 0
    scene.assert_one_revealed()


def test_run(scene, capsys, environment):  # noqa: F811
    """Until it has met the answer; it must go on, and reveal when the answer is a sound one."""
    committed(scene)
    tried = 0
    for (name, say), route in itertools.product(answers(REVEAL[1], 60), (REVEAL, PENDING)):
        scene.proxy.always = {REVEAL: 503, route: say}
        before = scene.proxy.count(route[1])
        process = subprocess.Popen([QUASAR, "run", "--timeout", "0.2"], cwd=scene.directory, env=environment,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        while scene.proxy.count(route[1]) == before:
            assert process.poll() is None, (name, process.stdout.read())
            time.sleep(0.005)
        for line in process.stdout:
            if '"outage"' in line:
                break
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=LONG) == 0, (name, process.stdout.read())
        process.stdout.close()
        assert steps(scene) == ["committed"], name
        tried += 1
    scene.proxy.always = {}
    assert scene("reveal").code == 0
    scene.assert_one_revealed()
    report(capsys, f"run: {tried} kinds of answers, 0 lost, 0 double")
