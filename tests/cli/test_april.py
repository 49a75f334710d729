"""The April version of the validator: no lists for miners, a pause between submissions, images, flags, and versions
that change under a running program."""
import datetime
import hashlib
import re
import signal
import sqlite3
import urllib.parse

import pytest

from conftest import API_KEY
from disguise import Newer, Older
from localnet import Miner as Identity
from lossy import Change, LossyProxy, Say
from patience import LONG
from scripted_server import Step, refuse, reply
from test_faults import Commit, Reveal, Submit, kill_at_every_step, make_scene  # noqa: F401: one is a fixture
from test_localnet import submit
from test_run import Miner as Runner
from test_submission import make_workspace, server_commitments, server_submissions

pytestmark = pytest.mark.usefixtures("without_python")

IMAGE = "docker.io/alice/quasar-miner-gpu@sha256:" + "0123456789abcdef" * 4
COMMIT, SUBMIT, REVEAL = ("POST", "/commit_submission"), ("POST", "/submit_kernel"), ("POST", "/reveal_submission")
KEY = {"DASHBOARD_API_KEY": API_KEY}


@pytest.fixture
def like():
    return "2026-04"


@pytest.fixture
def miner(quasar, proxy, tmp_path):
    return make_workspace(quasar, proxy, tmp_path, register=False)


def send(miner, command="commit", *args, **more):
    return miner(command, "--no-verify", "--json", *args, **more)


def steps(miner):
    return [row["step"] for row in miner.rows()]


def test_it_registers_by_itself_and_says_so(miner):
    assert send(miner).code == 0
    done = miner("register", "--json")  # the server answers 500
    assert done.code == 0 and done.json["status"] == "known", done.err
    assert "quasar commit" in miner("register").out


def test_a_registration_that_fails_otherwise_is_a_failure(miner, proxy):
    proxy.always["POST", "/register_miner"] = 500
    proxy.always["GET", "/health"] = 500
    assert miner("register", "--timeout", 1).code == 4


@pytest.mark.parametrize("settings, image", [
    ({"MINER_DOCKER_IMAGE": IMAGE, "DOCKER_USERNAME": "bob"}, IMAGE),
    ({"DOCKER_USERNAME": "bob"}, "bob/quasar-miner-gpu:latest")])
def test_a_commitment_is_made_over_the_image(miner, proxy, localnet, settings, image):
    done = send(miner, env=settings)
    assert done.code == 0 and "image" not in done.err
    assert done.json["docker_image"] == image
    assert done.json["commitment_hash"] == hashlib.sha256((miner.salts()[0] + image).encode()).hexdigest()
    assert miner("reveal", "--wait").code == 0  # by what is stored, not by the settings
    [listed] = localnet.get("/get_pending_validations?network=test").json["submissions"]
    assert listed["docker_image"] == image


def test_without_an_image_it_is_told_that_nothing_ranks(miner):
    done = send(miner)
    assert done.code == 0 and "never ranks" in done.err and "MINER_DOCKER_IMAGE" in done.err


def test_an_image_that_is_none_is_not_sent(miner, proxy):
    done = send(miner, env={"MINER_DOCKER_IMAGE": "https://hub.docker.com/alice"})
    assert done.code == 2 and "not the reference of an image" in done.err
    assert proxy.count("/commit_submission") == 0


@pytest.mark.parametrize("claim, code", [(9.9, 2), (10, 0), (5e7, 0), (50000001, 2)])
def test_claims_are_kept_within_the_validators_bounds(miner, claim, code):
    done = send(miner, "submit", "--claim", claim)
    assert done.code == code, done.err
    if code:
        assert "from 10 to 50000000" in done.err


def test_a_claim_is_modest_and_a_high_one_is_warned_of(miner):
    measured = miner("bench", "--native", "--runs", 1, "--json").json["results"][-1]["tokens_per_sec"]
    done = send(miner)
    assert done.json["tokens_per_sec"] < 0.6 * measured and "flags" not in done.err
    done = send(miner, "commit", "--again", "--claim", 2 * measured)
    assert done.code == 0 and "flags a hotkey for good" in done.err
    assert "lowest place only" in done.err


def test_the_network_goes_along(miner, localnet):
    assert send(miner).code == 0
    with sqlite3.connect(localnet.db) as database:  # it is exclusive to the server: read after it has ended
        localnet.stop()
        assert database.execute("SELECT network FROM miner").fetchall() == [("test",)]
    done = send(miner, env={"SUBTENSOR_NETWORK": "local"})
    assert done.code == 2 and "neither finney nor test" in done.err


def test_elsewhere_nothing_is_sent_before_a_network_is_chosen(miner, proxy):
    """On this machine a rehearsal is for test; any other address is a validator's, though this one listens there, too."""
    elsewhere = {"VALIDATOR_API_URL": proxy.url.replace("127.0.0.1", "0.0.0.0")}
    chosen = {**elsewhere, "SUBTENSOR_NETWORK": "finney"}
    for command in (["register"], ["commit", "--no-verify", "--claim", 50], ["submit", "--no-verify", "--claim", 50]):
        done = miner(*command, env=elsewhere)
        assert done.code == 2 and "neither finney nor test" in done.err and ".env" in done.err
    assert not any(method == "POST" for method, _ in proxy.requests)
    [network] = [check for check in miner("doctor", "--json", env=elsewhere).json["checks"] if check["name"] == "network"]
    assert network["status"] == "fail" and "SUBTENSOR_NETWORK" in network["detail"]
    proxy.faults[COMMIT] = ["drop"] * 9
    assert send(miner, "commit", "--claim", 50, "--timeout", 0.2, env=chosen).code == 4
    proxy.faults.clear()
    before = len(proxy.requests)
    done = send(miner, "commit", "--claim", 50, env=elsewhere)  # what is not finished is not sent to another network either
    assert done.code == 2 and not any(method == "POST" for method, _ in proxy.requests[before:])
    assert send(miner, "commit", "--claim", 50, env=chosen).code == 0 and steps(miner) == ["committed"]
    assert "network   finney" in miner("commit", "--again", "--no-verify", "--claim", 50, env=chosen).out


def test_init_writes_the_network(quasar, tmp_path):
    assert quasar("init", tmp_path / "chosen", "--network", "finney").code == 0
    assert 'SUBTENSOR_NETWORK="finney"' in (tmp_path / "chosen" / ".env").read_text()
    assert quasar("init", tmp_path / "wrong", "--network", "main").code == 2


# --- the pause between submissions ---------------------------------------------------------------------

@pytest.fixture
def slow(start_localnet, make_miner):
    """Takes a submission every five seconds."""
    judge = make_miner("judge")
    server = start_localnet("--like", "2026-04", "--block-time", "0.2", "--blocks-until-reveal", "5", "--cooldown", "5",
                            "--validator-hotkeys", judge.address, "--api-keys", API_KEY)
    proxy = LossyProxy(server.url)
    proxy.reader = judge.headers
    yield proxy
    proxy.close()


@pytest.fixture
def patient(quasar, slow, tmp_path):
    return make_workspace(quasar, slow, tmp_path, register=False)


def refusals(proxy):
    return [status for path, status, _ in proxy.answered if path in ("/commit_submission", "/submit_kernel")]


def pause(seconds):
    return Say(429, {"detail": f"Rate limit exceeded. Please wait {seconds} seconds before submitting again."})


def test_the_pause_is_waited_for_beyond_the_timeout(miner, proxy):
    proxy.faults[COMMIT] = [pause(2), pause(1)]
    done = send(miner, "commit", "--timeout", 1)
    assert done.code == 0 and "in 2 s; waiting" in done.err
    assert proxy.count("/commit_submission") == 3 and steps(miner) == ["committed"]


def test_the_pause_in_the_middle_of_a_reveal_keeps_nothing_waiting(patient, slow):
    assert send(patient).code == 0
    slow.faults[COMMIT] = ["drop"] * 9
    assert send(patient, "commit", "--again", "--timeout", 0.5).code == 4
    slow.faults.clear()
    slow.always[COMMIT] = pause(280)
    done = patient("reveal", "--wait")
    assert done.code == 4 and "429" in done.err
    assert steps(patient) == ["revealed", "prepared"]


def test_a_pause_that_makes_no_sense_is_not_waited_for(miner, proxy):
    proxy.always[COMMIT] = pause(99999999)
    done = send(miner)
    assert done.code == 4 and steps(miner) == ["prepared"]


# --- answers that are lost -----------------------------------------------------------------------------

def test_a_commitment_that_arrived_without_its_id_is_made_anew(patient, slow):
    slow.faults[COMMIT] = ["lose"]
    done = send(patient)
    assert done.code == 0 and "can never be revealed" in done.err, done.err
    assert steps(patient) == ["abandoned", "committed"] and len(set(patient.salts())) == 2
    assert refusals(slow)[0] == 200 and refusals(slow)[-2:] == [409, 200]  # between them 429
    assert patient("reveal", "--wait").code == 0
    assert steps(patient) == ["abandoned", "revealed"]
    assert len(server_commitments(slow)) == 1  # nobody can


def test_a_reveal_beside_a_commit_sends_nothing(miner, proxy):
    """To the second the validator would not tell the id."""
    forward, beside = proxy.forward, []

    def reveal_before_the_answer(method, path, headers, body):
        answer = forward(method, path, headers, body)
        if path == COMMIT[1]:
            beside.append(miner("reveal"))
        return answer

    proxy.forward = reveal_before_the_answer
    done = send(miner)
    assert done.code == 0, done.err
    assert [reveal.code for reveal in beside] == [3] and "in use by process" in beside[0].err
    assert steps(miner) == ["committed"] and len(server_commitments(proxy)) == 1


def test_with_a_key_the_dashboard_tells_the_id(patient, slow):
    slow.faults[COMMIT] = ["lose"]
    done = send(patient, env=KEY)
    assert done.code == 0, done.err
    assert done.json["submission_id"] == server_commitments(slow)[0]["submission_id"]
    assert refusals(slow) == [200] and steps(patient) == ["committed"]
    assert patient("reveal", "--wait").code == 0
    assert server_commitments(slow) == []


def test_a_wrong_key_is_named(patient, slow):
    slow.faults[COMMIT] = ["lose"]
    assert send(patient, env={"DASHBOARD_API_KEY": "wrong"}).code == 0
    assert steps(patient) == ["abandoned", "committed"]
    done = patient("status", env={"DASHBOARD_API_KEY": "wrong"})
    assert done.code == 0 and "API key" in done.out and "sr25519" not in done.out


@pytest.mark.parametrize("key", [{}, KEY], ids=["without a key", "with a key"])
def test_a_direct_submission_that_arrived_is_not_sent_twice(patient, slow, key):
    slow.faults[SUBMIT] = ["lose"]
    done = send(patient, "submit", env=key)
    assert done.code == 0, done.err
    assert (done.json["submission_id"] is not None) == bool(key)
    assert len(server_submissions(slow)) == 1 and steps(patient) == ["submitted"]
    again = send(patient, "submit")
    assert again.code == 0 and again.json["already"] and len(server_submissions(slow)) == 1


def test_a_direct_submission_in_doubt_waits_for_the_miners_word(patient, slow):
    """Too long ago for the validator's pause to tell whether it arrived."""
    slow.always[SUBMIT] = "lose"
    assert send(patient, "submit", "--timeout", 0.2).code == 4
    slow.always.clear()
    with sqlite3.connect(patient.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET doubt_since = doubt_since - 3600")
    database.close()
    done = send(patient, "submit")
    assert done.code == 4 and "may have arrived" in done.err and "--again" in done.err
    assert "run `quasar submit` again" in patient("status").out
    assert len(server_submissions(slow)) == 1
    done = send(patient, "submit", env=KEY)
    assert done.code == 0 and done.json["submission_id"] == server_submissions(slow)[0]["id"]


def test_a_direct_submission_in_doubt_is_given_up_if_asked(patient, slow):
    slow.always[SUBMIT] = "lose"
    assert send(patient, "submit", "--timeout", 0.2).code == 4
    slow.always.clear()
    with sqlite3.connect(patient.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET doubt_since = doubt_since - 3600")
    database.close()
    done = send(patient, "submit", "--again")
    assert done.code == 0, done.err
    assert steps(patient) == ["abandoned", "submitted"]


def test_a_reveal_whose_id_was_given_again_is_not_sent(miner, localnet):
    assert send(miner).code == 0
    localnet.reset()
    assert send(miner, "commit", "--again").code == 0
    assert [row["server_id"] for row in miner.rows()] == [1, 1]
    done = miner("reveal", "--wait")
    assert done.code == 5 and "has lost submission #1" in done.err
    assert steps(miner) == ["refused", "revealed"]


PATH = [("GET", "/openapi.json"), ("GET", "/get_current_round"), ("GET", "/health"), ("POST", "/register_miner"), COMMIT,
        REVEAL]


@pytest.mark.parametrize("key", [pytest.param({}, id="without a key"), pytest.param(KEY, id="with a key", marks=pytest.mark.long)])
def test_every_answer_is_lost_once_with_the_pause_in_the_middle(start_localnet, make_miner, quasar, tmp_path, key):
    """All on one way, the dashboard's included, while the validator takes a submission every other second."""
    judge = make_miner("judge")
    server = start_localnet("--like", "2026-04", "--block-time", "0.2", "--blocks-until-reveal", "1", "--cooldown", "2",
                            "--validator-hotkeys", judge.address, "--api-keys", API_KEY)
    proxy = LossyProxy(server.url)
    proxy.reader = judge.headers
    miner = make_workspace(quasar, proxy, tmp_path, register=False)
    hotkey = quasar("wallet", "show", "--json").json["address"]

    def lose():
        for route in [*PATH, SUBMIT, ("GET", f"/dashboard/miner/{hotkey}")]:
            proxy.faults[route] = ["lose", 503]

    lose()
    assert miner("register", env=key).code == 0
    assert send(miner, env=key).code == 0
    lose()
    assert miner("reveal", "--wait", env=key).code == 0
    assert miner("status", env=key).code == 0
    lose()
    done = send(miner, "submit", "--claim", 50, env=key)
    if not key and done.code:  # the pause that it meets may be that of the commitment before, or its own
        assert done.code == 4 and "may have arrived" in done.err
        done = send(miner, "submit", "--claim", 50, env=KEY)
    assert done.code == 0, done.err
    assert 429 in refusals(proxy) or key
    assert [step for step in steps(miner) if step != "abandoned"] == ["revealed", "submitted"]
    assert len([row for row in server_submissions(proxy) if row["tokens_per_sec"]]) == 2
    assert len(server_commitments(proxy)) == steps(miner).count("abandoned")
    proxy.close()


@pytest.mark.long
@pytest.mark.parametrize("task", [Commit, Reveal, Submit], ids=lambda task: task.name)
def test_killed_at_every_step(make_scene, capsys, task):  # noqa: F811
    kill_at_every_step(make_scene(cooldown=2 if task is Submit else 0), capsys, task, 12)


@pytest.mark.parametrize("fault", ["lose", *(pytest.param(fault, marks=pytest.mark.long)
                                              for fault in ("drop", "late", 503, 500))])
@pytest.mark.parametrize("route", PATH, ids=lambda route: route[1])
def test_whichever_request_fails_one_submission_is_revealed(miner, proxy, route, fault):
    proxy.faults[route] = [fault]
    assert miner("register").code == 0
    assert send(miner).code == 0
    miner("status")
    assert miner("reveal", "--wait").code == 0
    assert steps(miner).count("revealed") == 1 and set(steps(miner)) <= {"revealed", "abandoned"}
    assert len([row for row in server_submissions(proxy) if row["tokens_per_sec"]]) == 1


# --- signatures ----------------------------------------------------------------------------------------

def test_each_attempt_is_signed_anew_by_the_servers_clock(quasar, hotkey, serve):
    def an_hour_later(handler):
        reply(503).act(handler)
        handler.server.owner.date = "Thu, 01 Jan 2032 01:00:00 GMT"

    server = serve(Step(an_hour_later), reply(503), refuse(401, "Invalid signature"),
                   date="Thu, 01 Jan 2032 00:00:00 GMT", route="/get_pending_validations")
    assert quasar("register", "--api", server.url).code == 5
    times = [int(request.headers["Timestamp"]) for request in server.requests]
    assert abs(times[0] - 1956528000) < 60
    assert 3500 < times[2] - times[0] < 3700
    assert len({request.headers["Signature"] for request in server.requests}) >= 2


def test_an_expired_signature_is_made_anew_by_the_servers_clock(miner, proxy):
    expired = Say(401, {"detail": "Signature expired (130s old, max 120s)"})
    proxy.faults[COMMIT] = [expired]
    assert send(miner).code == 0 and proxy.count("/commit_submission") == 2
    proxy.always[COMMIT] = expired
    done = send(miner, "commit", "--again")
    assert done.code == 5 and "clock" in done.err and "sr25519" not in done.err
    assert steps(miner) == ["committed", "prepared"]  # it may be sent once the clock is right


def test_a_date_that_is_a_proxys_does_not_spoil_the_signature(miner, proxy):
    """The validator's clock and this machine's are right; that of what stands between them is not."""
    wrong = Change(headers={"Date": "Thu, 01 Jan 2032 00:00:00 GMT"})
    proxy.always.update({route: wrong for route in (("GET", "/openapi.json"), COMMIT, REVEAL)})
    done = send(miner)
    assert done.code == 0, done.err
    assert miner("reveal", "--wait").code == 0 and steps(miner) == ["revealed"]


# --- bans ----------------------------------------------------------------------------------------------

def ban(localnet):
    for _ in range(5):
        assert localnet.request("POST", "/record_failure", {"ip_address": "127.0.0.1"}, localnet.reader).status == 200


def test_a_ban_is_told_and_keeps_no_reveal(miner, localnet):
    assert send(miner).code == 0
    ban(localnet)
    for command in ("commit", "submit"):
        done = send(miner, command, "--again")
        assert done.code == 5 and "banned" in done.err and "ban ends in 2" in done.err and "wrong reveals" in done.err
        assert "sr25519" not in done.err and "operator" not in done.err
    assert steps(miner) == ["committed", "refused", "refused"]
    assert miner("reveal", "--wait").code == 0  # as February's, it bans from submitting alone
    assert steps(miner)[0] == "revealed"


def test_wrong_reveals_ban_and_none_is_sent_in_vain(miner, localnet, proxy):
    """A stored salt that fits no more is never sent; five such answers would ban."""
    assert send(miner, env={"MINER_DOCKER_IMAGE": IMAGE}).code == 0
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET docker_image = NULL")
    database.close()
    done = miner("reveal", "--wait")
    assert done.code == 3 and "does not belong to its commitment" in done.err and proxy.count("/reveal_submission") == 0
    localnet.stop()
    assert localnet.failures() == []


# --- flags ---------------------------------------------------------------------------------------------

def test_a_flag_is_told_and_final(miner, localnet):
    assert send(miner).code == 0
    hotkey = miner.rows()[0]["hotkey"]
    localnet.request("POST", "/flag_miner", {"hotkey": hotkey, "flag": True, "reason": "over-claim"}, localnet.reader)
    done = send(miner, "commit", "--again")
    assert done.code == 5 and "Miner flagged: over-claim" in done.err and "operator" in done.err
    assert steps(miner) == ["committed", "refused"]
    assert "FLAGGED    over-claim" in miner("status", env=KEY).out
    found = {check["name"]: check for check in miner("doctor", "--json", env=KEY).json["checks"]}
    assert found["flag"]["status"] == "fail" and found["flag"]["detail"] == "over-claim"


def test_a_second_hotkey_is_warned_of_before_it_submits(miner, quasar, proxy, tmp_path):
    assert miner("commit").code == 0
    assert quasar("wallet", "new", "--wallet", "second").code == 0
    assert quasar("init", tmp_path / "other", "--api", proxy.url, "--seq", 512).code == 0

    def flags(*args, **env):
        done = quasar("doctor", "--json", *args, cwd=tmp_path / "other", env=env)
        return [check for check in done.json["checks"] if check["name"] == "flags"]

    [warned] = flags("--wallet", "second")
    assert warned["status"] == "warn" and str(miner.directory) in warned["detail"] and "address" in warned["detail"]
    assert flags()[0]["status"] == "ok"  # the same hotkey


def test_a_fork_of_the_same_account_is_not_sent_by_a_second_hotkey(miner, quasar, home, proxy, tmp_path):
    fork = "https://github.com/alice/flash-linear-attention"
    known = home / ".local/state/quasar/miners"
    known.parent.mkdir(parents=True)
    known.write_text(f"{proxy.url}\t5Another\t{fork}\tother\t{tmp_path}\n")
    done = miner("commit", "--json", env={"FORK_URL": fork})
    assert done.code == 1 and "flags" in done.err and "5Another" in done.err
    assert proxy.count("/commit_submission") == 0


# --- the version ---------------------------------------------------------------------------------------

def stored(miner):
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        found = database.execute("SELECT version FROM validator").fetchall()
    database.close()
    return [row[0] for row in found]


def test_it_is_found_out_once_and_kept(miner, proxy):
    assert send(miner).code == 0 and stored(miner) == ["2026-04"]
    before = proxy.count("/openapi.json")
    assert miner("reveal", "--wait").code == 0
    assert proxy.count("/pending_reveals") == 0 and proxy.count("/openapi.json") <= before + 1


def test_without_a_description_the_round_tells_it(miner, proxy):
    proxy.always["GET", "/openapi.json"] = 404
    assert send(miner).code == 0 and stored(miner) == ["2026-04"]


@pytest.mark.parametrize("how", [["--api-version", "2026-02"], {"API_VERSION": "2026-02"}], ids=["option", "setting"])
def test_it_can_be_forced(miner, proxy, how):
    args, env = (how, {}) if isinstance(how, list) else ([], how)
    done = miner("register", *args, env=env)  # the old form of signing holds there, too
    assert done.code == 0 and proxy.count("/openapi.json") == 0
    done = miner("status", *args, "--json", env=env)
    assert done.json["api_version"] == "2026-02"
    assert miner("register", "--api-version", "2031-01").code == 2
    assert miner("register", env={"API_VERSION": "2031-01"}).code == 2


@pytest.fixture
def old(start_localnet):
    """A February validator behind a proxy."""
    server = start_localnet("--rate-limit", "0", "--block-time", "0.2", "--blocks-until-reveal", "5")
    proxy = LossyProxy(server.url)
    proxy.reader = {}
    yield proxy
    proxy.close()


def test_a_commitment_outlives_a_change_of_the_version(quasar, old, tmp_path):
    miner = make_workspace(quasar, old, tmp_path)
    assert send(miner).code == 0 and stored(miner) == ["2026-02"]
    Newer.begin(old)
    done = miner("status", "--json")
    assert done.code == 0 and done.json["api_version"] == "2026-04" and done.json["problem"] is None
    # it signs with a timestamp, which the service behind does not understand: back again, then
    old.always.clear()
    done = miner("reveal", "--wait")
    assert done.code == 0, done.err
    assert steps(miner) == ["revealed"]
    assert stored(miner) == ["2026-02"]


def test_a_signature_of_another_version_is_made_anew(quasar, old, tmp_path):
    miner = make_workspace(quasar, old, tmp_path)
    Newer.begin(old)
    miner("status")
    assert stored(miner) == ["2026-04"]
    old.always.clear()
    assert miner("register").code == 0
    assert send(miner).code == 0 and stored(miner) == ["2026-02"]


# --- what cannot be read -------------------------------------------------------------------------------

def test_what_is_not_shown_is_no_outage(miner):
    assert send(miner).code == 0
    for command in ("round", "leaderboard"):
        done = miner(command)
        assert done.code == 5 and "not shown to miners" in done.err and "sr25519" not in done.err
    status = miner("status", "--json").json
    assert status["online"] and not status["lists_shown"] and status["problem"] is None
    text = miner("status").out
    assert "not shown  block, round and rank" in text and re.search("reveal in about|ready", text)
    done = miner("recover", "--json")
    assert done.code == 0 and done.json["compared"] is False
    found = {check["name"]: check for check in miner("doctor", "--json").json["checks"]}
    assert found["api.version"]["detail"] == "2026-04" and found["network"]["detail"] == "test"
    assert found["round"]["status"] == "skip" and found["image"]["status"] == "warn"
    assert found["reveals"]["status"] in ("ok", "warn") and "HTTP" not in found["reveals"]["detail"]


def mark(localnet, submission_id, **judgement):
    marked = localnet.post("/mark_validated_with_verification", {"submission_id": submission_id, **judgement},
                           localnet.reader)
    assert marked.status == 200, marked.body


def test_with_a_key_status_shows_what_was_measured(miner, localnet):
    done = send(miner, "submit", "--claim", 5000, env={"MINER_DOCKER_IMAGE": IMAGE})
    assert done.code == 0, done.err
    assert "not measured yet" in miner("status", env=KEY).out
    mark(localnet, done.json["submission_id"], score=1.0, actual_tokens_per_sec=4321.0, verified=True)
    assert "measured: 4,321, normalised" in miner("status", env=KEY).out
    [row] = miner("status", "--json", env=KEY).json["submissions"]
    assert row["validated_tokens_per_sec"] == 4321 and row["score"] == 1
    assert "measured" not in miner("status").out
    [leader] = miner("leaderboard", "--json", "--validator-gpu", "H100", env=KEY).json["ranking"]
    assert leader["own"] and leader["normalized_tokens_per_sec"] == 4321
    assert leader["tokens_per_sec"] == pytest.approx(4321 * 1.3)
    loosely = miner("leaderboard", "--validator-gpu", "nvidia l4", env=KEY).out  # the first that contains it: L40S
    assert "2,377" in loosely and "nvidia l4" in loosely
    assert "you" in miner("leaderboard", env=KEY).out


def test_the_key_stays_secret(miner, proxy):
    seen = []
    forward = proxy.forward
    proxy.forward = lambda method, path, headers, body: (
        seen.append((path, API_KEY in str(headers))), forward(method, path, headers, body))[1]
    done = miner("status", "-v", env=KEY)
    assert API_KEY not in done.out + done.err
    assert {path for path, has_key in seen if has_key} == {path for path, _ in seen if path.startswith("/dashboard/")} != set()
    assert miner("status", env={"DASHBOARD_API_KEY": "a\r\nX: b"}).code == 2


# --- unattended ----------------------------------------------------------------------------------------

@pytest.fixture
def make_runner(quasar, environment, tmp_path):
    made = []

    def make(url):
        assert quasar("wallet", "new").code == 0
        made.append(Runner(quasar, environment, tmp_path / "runner", url))
        return made[-1]

    yield make
    for runner in made:
        for loop in runner.loops:
            if loop.process.poll() is None:
                loop.process.kill()
                loop.process.wait()


def test_run_commits_reveals_and_goes_on(make_runner, proxy):
    runner = make_runner(proxy.url)
    loop = runner.run("--improve", "100000%")
    assert "never ranks" in loop.until("problem")["message"]
    loop.until("revealed")
    loop.until("kept")
    assert runner.new_commit()
    loop.until("kept")
    assert loop.end() == 0 and loop.count("outage") == 0 and loop.count("committed") == 1
    assert len(server_submissions(proxy)) == 1
    assert proxy.count("/pending_reveals") == 0


def test_run_waits_for_the_pause_and_reveals_meanwhile(make_runner, proxy):
    runner = make_runner(proxy.url)
    loop = runner.run("--improve", "-100%", "--interval", "100000")
    loop.until("committed")
    proxy.faults[COMMIT] = [pause(2), pause(1)]
    runner.new_commit()
    assert loop.until("waiting")["seconds"] == 2
    while loop.count("revealed") < 2:
        loop.until("revealed")
    assert loop.end() == 0 and loop.count("outage") == 0 and loop.count("waiting") == 1
    assert len(server_submissions(proxy)) == 2


def test_run_ends_when_it_is_flagged(make_runner, localnet, proxy):
    runner = make_runner(proxy.url)
    loop = runner.run("--improve", "-100%", "--interval", "100000")
    loop.until("revealed")
    [listed] = server_submissions(proxy)
    localnet.request("POST", "/flag_miner", {"hotkey": listed["miner_hotkey"], "flag": True, "reason": "copied"},
                     localnet.reader)
    runner.new_commit()
    assert loop.wait() == 5 and "Miner flagged: copied" in loop.seen[-1]["message"]


def test_run_ends_when_it_is_banned_and_reveals_at_the_next_start(make_runner, localnet, proxy):
    runner = make_runner(proxy.url)
    proxy.always[REVEAL] = 503
    loop = runner.run("--improve", "-100%", "--interval", "100000", "--timeout", "1")
    loop.until("committed")
    ban(localnet)
    runner.new_commit()
    assert loop.wait() == 5 and "banned" in loop.seen[-1]["message"] and "ban ends in" in loop.seen[-1]["hint"]
    proxy.always.clear()
    loop = runner.run("--improve", "100000%")
    loop.until("revealed")
    loop.until("kept")
    assert loop.end() == 0
    assert [entry["step"] for entry in runner.submissions()] == ["revealed", "refused"]


def test_run_submits_once_a_round_where_only_the_lowest_place_is_paid(make_runner, localnet, proxy):
    runner = make_runner(proxy.url)
    runner.set(MINER_DOCKER_IMAGE=IMAGE, DASHBOARD_API_KEY=API_KEY)
    loop = runner.run("--improve", "-100%")
    committed = loop.until("committed")["submission"]
    loop.until("revealed")
    commit = runner.new_commit()
    held = loop.until("held", lambda event: event["commit"] == commit)  # a slow machine may hold the first once more
    assert "lower place only" in held["message"] and "--again" in held["message"]
    assert seconds_between(committed["sent_at"], held["until"]) == 48 * 3600
    loop.until("bench")
    loop.until("bench")
    # what a validator has found to be no good wins nothing: the next commit need not wait
    mark(localnet, committed["submission_id"], score=0.0, verified=False)
    assert loop.until("committed")["submission"]["commit_hash"] == commit
    loop.until("revealed")
    runner.new_commit()
    loop.until("held")
    age(runner, 48 * 3600)
    loop.until("committed")  # a round later
    loop.until("revealed")
    assert loop.end() == 0 and loop.count("committed") == 3 and loop.count("problem") == 0
    held = [(event["commit"], event["until"]) for event in loop.seen if event["event"] == "held"]
    assert len(held) == len(set(held)) >= 2  # told once each, and the last commit perhaps, too
    assert len(server_submissions(proxy)) == 2  # and the one that is validated


def crowd_out(runner, localnet):
    """Makes so many submissions of the hotkey elsewhere that the dashboard shows no earlier ones."""
    address = runner("wallet", "show", "--json").json["address"]
    signed = runner("wallet", "sign", "--message-hex", address.encode().hex())
    for _ in range(20):
        done = submit(localnet, Identity(address, signed.out.strip()), network="test")
        assert done.status == 200, done.body


def test_run_remembers_what_was_judged_when_the_dashboard_shows_it_no_longer(make_runner, localnet, proxy):
    runner = make_runner(proxy.url)
    runner.set(MINER_DOCKER_IMAGE=IMAGE, DASHBOARD_API_KEY=API_KEY)
    loop = runner.run("--improve", "100000%")
    first = loop.until("revealed")["submission"]
    mark(localnet, first["submission_id"], score=0, actual_tokens_per_sec=first["tokens_per_sec"], verified=False)
    loop.until("measured")
    crowd_out(runner, localnet)
    [row] = runner.submissions()
    assert row["score"] == 0 and row["validated_tokens_per_sec"] is None
    assert "score 0: it wins no place" in runner("status").out
    assert loop.end() == 0 and loop.count("held") == 0
    second = runner.new_commit()
    loop = runner.run("--improve", "100000%")  # which never saw it itself
    assert loop.until("committed")["submission"]["commit_hash"] == second
    unseen = loop.until("revealed")["submission"]["submission_id"]
    assert loop.end() == 0 and loop.count("held") == 0

    crowd_out(runner, localnet)
    mark(localnet, unseen, score=0, verified=False)
    runner.new_commit()
    loop = runner.run("--improve", "-100%")
    loop.until("held")  # it may have any score, for all that is known here
    assert loop.end() == 0 and loop.count("committed") == 0


def seconds_between(*times):
    first, last = (datetime.datetime.fromisoformat(time.rstrip("Z")) for time in times)
    return round((last - first).total_seconds())


def age(runner, seconds):
    """Lets that time have passed since everything was handed in."""
    with sqlite3.connect(runner.directory / ".quasar" / "state.db", timeout=LONG) as database:
        database.execute("UPDATE submission SET sent_at = sent_at - ?", (seconds,))
    database.close()


def test_run_holds_nothing_for_a_submission_that_has_no_image(make_runner, proxy):
    runner = make_runner(proxy.url)
    loop = runner.run("--improve", "100000%")
    loop.until("revealed")
    loop.until("kept")  # without an image nothing is better
    runner.set(MINER_DOCKER_IMAGE=IMAGE)
    loop.process.send_signal(signal.SIGHUP)
    assert loop.until("committed")["submission"]["docker_image"] == IMAGE
    loop.until("revealed")
    loop.until("kept")
    assert loop.end() == 0 and loop.count("committed") == 2


# --- a version that changes under a running `run` ---------------------------------------------------------

def test_run_goes_on_when_the_version_changes_under_it(make_runner, old):
    """From February to April, and back."""
    runner = make_runner(old.url)
    assert runner("register").code == 0
    loop = runner.run("--improve", "100000%", "--timeout", "5")
    loop.until("revealed")
    Newer.begin(old)
    assert loop.until("version", lambda event: event["api_version"] == "2026-04")
    loop.until("kept")
    old.always.clear()
    assert loop.until("version", lambda event: event["api_version"] == "2026-02")
    loop.until("kept")
    assert loop.end() == 0 and loop.count("outage") == 0 and loop.count("committed") == 1
    assert len(server_submissions(old)) == 1


EARLY = Say(425, {"detail": "Cannot reveal yet. Wait 2 blocks (~0 minutes)"})


def test_run_reveals_what_it_committed_under_the_other_version(make_runner, proxy):
    """The service is replaced, with its database, while a commitment waits for its block: by April's, and then by
    February's."""
    runner, older = make_runner(proxy.url), Older(proxy)
    older.begin()
    proxy.always[REVEAL] = EARLY
    loop = runner.run("--improve", "-100%", "--interval", "100000", "--timeout", "5")
    loop.until("committed")
    assert proxy.count("/pending_reveals") > 0
    older.end()
    loop.until("revealed")
    proxy.always[REVEAL] = EARLY
    runner.new_commit()
    loop.until("committed")
    older.begin()
    proxy.always[REVEAL] = None
    loop.until("revealed")
    assert loop.end() == 0 and loop.count("committed") == loop.count("revealed") == 2 and loop.count("refused") == 0
    older.end()
    assert len(server_submissions(proxy)) == 2


@pytest.mark.parametrize("first, then", [("2026-02", "2026-04"), pytest.param("2026-04", "2026-02", marks=pytest.mark.long)])
def test_run_commits_anew_when_the_other_version_has_another_database(make_runner, start_version, first, then):
    servers = {like: start_version(like, "--block-time", "0.2", "--blocks-until-reveal", "1") for like in (first, then)}
    proxy = LossyProxy(servers[first].url)
    runner = make_runner(proxy.url)
    assert runner("register", "--api", servers["2026-02"].url).code == 0  # which April's does by itself
    proxy.always[REVEAL] = EARLY
    loop = runner.run("--improve", "100000%", "--timeout", "5")
    loop.until("committed")
    proxy.target = urllib.parse.urlsplit(servers[then].url)
    proxy.always.clear()
    assert "has lost submission #1" in loop.until("refused")["message"]
    loop.until("committed")
    loop.until("revealed")
    loop.until("kept")
    assert loop.end() == 0 and loop.count("committed") == 2
    assert [event["api_version"] for event in loop.seen if event["event"] == "version"][-1] == then
    assert [entry["step"] for entry in runner.submissions()] == ["refused", "revealed"]
    proxy.close()
