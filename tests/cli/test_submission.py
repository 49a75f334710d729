"""commit, reveal, submit and status: a submission's life, also when answers are lost and processes die."""
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import urllib.request

import pytest

from conftest import BOTH, QUASAR
from lossy import Change, Say
from patience import LONG
from test_init import git

pytestmark = pytest.mark.usefixtures("without_python")

SEQ = 64


class Miner:
    """A workspace with a wallet, registered, its fork measured, that talks through the proxy."""

    def __init__(self, quasar, proxy, directory):
        self.run_quasar, self.proxy, self.directory = quasar, proxy, directory

    def __call__(self, *args, **more):
        return self.run_quasar(*args, cwd=self.directory, **more)

    def rows(self):
        with sqlite3.connect(self.directory / ".quasar" / "state.db") as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM submission ORDER BY id")]

    def salts(self):
        return [row["salt"] for row in self.rows()]


def make_workspace(quasar, validator, tmp_path, register=True):
    directory = tmp_path / "miner"
    assert quasar("wallet", "new").code == 0
    done = quasar("init", directory, "--api", validator.url, "--seq", SEQ)
    assert done.code == 0, done.err
    miner = Miner(quasar, validator, directory)
    if register:
        assert miner("register").code == 0
    done = miner("bench", "--native", "--runs", 1)
    assert done.code == 0, done.err
    return miner


@pytest.fixture
def miner(quasar, proxy, tmp_path):
    return make_workspace(quasar, proxy, tmp_path)


def read(proxy, path):
    with urllib.request.urlopen(urllib.request.Request(proxy.url + path, headers=proxy.reader)) as answer:
        return json.load(answer)


def server_commitments(proxy):
    return read(proxy, "/pending_reveals")["pending_reveals"]


def server_submissions(proxy):
    return read(proxy, "/get_submission_stats")["recent_submissions"]


@BOTH
def test_a_commitment_is_made_and_revealed(miner, proxy, like):
    done = miner("commit", "--json")
    assert done.code == 0, done.err
    committed = done.json
    assert committed["step"] == "committed" and committed["submission_id"] > 0
    assert committed["commitment_hash"] == hashlib.sha256(
        (miner.salts()[0] + committed["fork_url"]).encode()).hexdigest()
    assert len(server_commitments(proxy)) == 1

    proxy.faults["GET", "/pending_reveals"] = [
        Change(pending_reveals=lambda listed: [{**entry, "can_reveal": False} for entry in listed])]
    if like != "2026-02":  # no list, but perhaps its time has come by now
        proxy.faults["POST", "/reveal_submission"] = [Say(425, {"detail": "Cannot reveal yet. Wait 2 blocks (~0 minutes)"})]
    early = miner("reveal", "--json")
    assert early.code == 6 and early.json["error"]["kind"] == "early"
    done = miner("reveal", "--wait", "--json")
    assert done.code == 0, done.err
    assert [item["step"] for item in done.json["revealed"]] == ["revealed"]
    assert server_commitments(proxy) == []
    listed = server_submissions(proxy)
    assert len(listed) == 1
    assert listed[0]["tokens_per_sec"] == committed["tokens_per_sec"]
    assert listed[0]["commit_hash"] == (committed["commit_hash"] if like == "2026-02" else "[HIDDEN]")

    status = miner("status", "--json")
    assert status.code == 0 and status.json["online"] and status.json["api_version"] == like
    assert status.json["submissions"][0]["rank"] == (1 if like == "2026-02" else None)
    assert ("rank 1" if like == "2026-02" else "rank not shown to miners") in miner("status").out
    assert miner("reveal").code == 3
    again = miner("reveal", "1", "--json")
    assert again.code == 0 and again.json["revealed"] == [] and "revealed already" in again.err


def test_the_claim_is_the_median_less_the_margin(miner):
    measured = miner("bench", "--native", "--runs", 1, "--json").json["results"][-1]["tokens_per_sec"]
    done = miner("commit", "--json", "--margin", "10%")
    assert done.code == 0, done.err
    assert done.json["tokens_per_sec"] == float(int(measured * 0.9))


@pytest.mark.parametrize("margin", ["0.5", "5", "95%", "-1%", "wide"])
def test_a_margin_has_its_sign_and_leaves_something(miner, margin):
    done = miner("commit", "--margin", margin)
    assert done.code == 2 and "%" in done.err.splitlines()[0]


def test_quasars_own_layer_on_a_gpu_is_no_claim(miner):
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE benchmark SET device_kind = 'cuda', device_index = 0")
    done = miner("commit")
    assert done.code == 3 and "validators do not run" in done.err and "quasar bench" in done.err
    assert miner("commit", "--claim", 5).code == 0


def test_quasars_own_layer_stands_in_for_the_fork_in_a_rehearsal_alone(miner, proxy):
    """Any other address than this machine's own is a validator's, though this one listens there, too."""
    elsewhere = {"VALIDATOR_API_URL": proxy.url.replace("127.0.0.1", "0.0.0.0")}
    done = miner("commit", env=elsewhere)
    assert done.code == 3 and "only of quasar's own layer, which validators do not run" in done.err
    done = miner("commit", "--claim", 5, env=elsewhere)
    assert done.code == 1 and "the fork was not run" in done.err and "--no-verify" in done.err
    assert server_commitments(proxy) == []
    done = miner("commit", "--claim", 5, "--no-verify", "--json", env=elsewhere)
    assert done.code == 0 and "rehearsal" not in done.err, done.err
    rehearsed = miner("commit", "--again")
    assert rehearsed.code == 0 and "rehearsal: quasar's own layer stands in for the fork" in rehearsed.out


def test_changes_that_are_not_committed_are_no_claim(miner):
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE benchmark SET dirty = 1")
    done = miner("commit")
    assert done.code == 3 and "changes that are not committed" in done.err and "quasar bench" in done.err
    (miner.directory / "fork" / "new.py").write_text("")
    done = miner("commit")
    assert done.code == 3 and "in new.py: no claim is made from measuring them" in done.err and "quasar bench" in done.err


@BOTH
def test_the_salt_is_private(miner):
    outputs = [miner("commit", "--json", "-v"), miner("status", "--json", "-v"), miner("status"),
               miner("reveal", "--wait", "-v")]
    salt = miner.salts()[0]
    assert len(salt) == 64
    for done in outputs:
        assert salt not in done.out and salt not in done.err
    for name in (".env", ".quasar/state.db"):
        assert (miner.directory / name).stat().st_mode & 0o077 == 0


def test_a_commit_whose_answer_is_lost_is_found_and_not_sent_twice(miner, proxy):
    proxy.faults["POST", "/commit_submission"] = ["lose"]
    done = miner("commit", "--json")
    assert done.code == 0, done.err
    assert proxy.count("/commit_submission") == 1
    assert done.json["submission_id"] == server_commitments(proxy)[0]["submission_id"]
    assert miner("reveal", "--wait").code == 0


@BOTH
def test_a_commit_that_never_arrived_is_sent_again_under_the_same_salt(miner, proxy):
    proxy.faults["POST", "/commit_submission"] = ["drop", 503]
    done = miner("commit")
    assert done.code == 0, done.err
    assert proxy.count("/commit_submission") == 3
    assert len(server_commitments(proxy)) == 1 and len(miner.rows()) == 1


def test_a_commit_that_ran_out_of_time_goes_on_later(miner, proxy):
    proxy.faults["POST", "/commit_submission"] = ["lose"]
    proxy.faults["GET", "/pending_reveals"] = [503] * 100
    done = miner("commit", "--timeout", 2)
    assert done.code == 4 and "quasar commit" in done.err
    assert [row["step"] for row in miner.rows()] == ["prepared"]
    assert "run `quasar commit` again" in miner("status", "--timeout", 1).out

    proxy.faults.clear()
    done = miner("commit", "--json")
    assert done.code == 0, done.err
    assert proxy.count("/commit_submission") == 2  # the same hash, which the validator takes once only
    assert len(server_commitments(proxy)) == 1 and len(miner.rows()) == 1


@pytest.mark.parametrize("fault", ["hold", "take"])
def test_a_commit_killed_while_sending_goes_on_later(miner, proxy, home, fault):
    """Killed before the validator had it, and after it had it but had not been heard."""
    proxy.faults["POST", "/commit_submission"] = [fault]
    process = subprocess.Popen([QUASAR, "commit"], cwd=miner.directory, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(home)})
    assert proxy.arrived.wait(LONG)
    process.send_signal(signal.SIGKILL)
    process.wait()
    proxy.release.set()
    before = miner.salts()
    assert len(before) == 1

    done = miner("commit", "--json")
    assert done.code == 0, done.err
    assert len(server_commitments(proxy)) == 1 and miner.salts() == before
    assert miner("reveal", "--wait").code == 0
    assert len(server_submissions(proxy)) == 1


def test_recover_keeps_away_from_what_is_being_sent(miner, proxy, home):
    proxy.faults["POST", "/submit_kernel"] = ["take"]
    process = subprocess.Popen([QUASAR, "submit"], cwd=miner.directory, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(home)})
    assert proxy.arrived.wait(LONG)
    done = miner("recover")
    assert done.code == 3 and f"in use by process {process.pid}" in done.err
    proxy.release.set()
    assert process.wait() == 0
    assert miner("recover", "--json").json["found"] == []
    assert [row["step"] for row in miner.rows()] == ["submitted"]


def test_what_cannot_be_sent_is_not_run(miner, proxy):
    fork = miner.directory / "fork"
    git("commit", "-qm", "mine", "--allow-empty", cwd=fork)
    done = miner("commit", "--claim", 1000)
    assert done.code == 1 and "1 commit is not pushed" in done.err and "fork.run" not in done.err
    fork.rename(fork.with_name("away"))
    for command in ("commit", "push"):
        done = miner(command)
        assert done.code == 3 and "name your clone in FORK_PATH" in done.err
    assert not proxy.count("/commit_submission")


@BOTH
def test_the_same_commit_is_not_committed_twice_unless_asked(miner, proxy):
    first = miner("commit", "--json").json
    again = miner("commit", "--json").json
    assert again["already"] and not first["already"] and again["submission_id"] == first["submission_id"]
    assert proxy.count("/commit_submission") == 1
    assert "quasar push" not in miner("commit").err
    new = miner.directory / "fork" / "new.py"
    new.write_text("")
    assert "changes that are not part of this commit, for example in new.py" in miner("commit").err
    new.unlink()
    third = miner("commit", "--again", "--json").json
    assert third["submission_id"] != first["submission_id"]
    assert miner.salts()[0] != miner.salts()[1]
    done = miner("reveal", "--wait", "--json")
    assert done.code == 0 and len(done.json["revealed"]) == 2


@BOTH
def test_a_reveal_whose_answer_is_lost_is_recognised(miner, proxy):
    assert miner("commit", "--no-verify").code == 0
    proxy.faults["POST", "/reveal_submission"] = ["lose"]
    done = miner("reveal", "--wait", "--json")
    assert done.code == 0, done.err
    assert done.json["revealed"][0]["step"] == "revealed"
    assert len(server_submissions(proxy)) == 1


def test_a_reveal_waits_through_an_outage(miner, proxy):
    assert miner("commit", "--no-verify").code == 0
    proxy.faults["GET", "/pending_reveals"] = [503, "drop", 502]
    done = miner("reveal", "--wait")
    assert done.code == 0, done.err


@BOTH
def test_a_damaged_salt_is_never_sent(miner, proxy):
    assert miner("commit", "--no-verify").code == 0
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET salt = ?", ("0" * 64,))
    done = miner("reveal", "--wait")
    assert done.code == 3 and "salt" in done.err
    assert proxy.count("/reveal_submission") == 0


@BOTH
def test_damaged_benchmarks_are_no_fault_of_the_networks(miner, proxy):
    assert miner("commit", "--no-verify").code == 0
    with sqlite3.connect(miner.directory / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET benchmarks = '{'")
    done = miner("reveal", "--wait")
    assert done.code == 3 and "the benchmarks stored with submission 1" in done.err
    assert proxy.count("/reveal_submission") == 0


def test_unregistered_miners_are_told_what_to_do(quasar, proxy, tmp_path):
    miner = make_workspace(quasar, proxy, tmp_path, register=False)
    done = miner("commit")
    assert done.code == 5 and "quasar register" in done.err
    assert [row["step"] for row in miner.rows()] == ["refused"]
    assert miner("register").code == 0
    assert miner("commit", "--no-verify").code == 0
    assert len(server_commitments(proxy)) == 1


def test_without_a_benchmark_of_this_commit_nothing_is_claimed(miner, proxy):
    done = miner("commit", "--seq", 1024)
    assert done.code == 3 and "quasar bench --seq 1024" in done.err
    assert proxy.count("/commit_submission") == 0


def test_a_fork_that_fails_the_checks_is_not_sent(miner, proxy):
    chunk = miner.directory / "fork" / "fla" / "ops" / "quasar" / "chunk.py"
    chunk.write_text("# from fla.ops.gla import x\n" + chunk.read_text())
    done = miner("commit")
    assert done.code == 1 and "imports.forbidden" in done.err and "git" in done.err
    assert proxy.count("/commit_submission") == 0 and miner.rows() == []
    done = miner("commit", "--no-verify")
    assert done.code == 0 and "--no-verify" in done.err


def test_a_commit_that_moves_while_it_is_checked_is_not_sent(miner, proxy):
    gate, forward = miner.directory / "fork/fla/ops/quasar/gate.py", proxy.forward
    sound = gate.read_text()

    def mend_first(method, path, headers, body):
        if path == "/openapi.json":
            gate.write_text(sound)
            assert miner("push").code == 0
        return forward(method, path, headers, body)

    gate.write_text(sound + "# from fla.ops.gla import gate\n")
    assert miner("push").code == 0 and miner("bench", "--native", "--runs", 1).code == 0
    proxy.forward = mend_first  # what is checked passes, and is not what the claim is of
    done = miner("commit")
    assert done.code == 1 and "while it was checked" in done.err, done.err
    assert miner.rows() == [] and proxy.count("/commit_submission") == 0


def test_an_unpushed_commit_is_not_sent(miner, proxy):
    fork = miner.directory / "fork"
    (fork / "notes.txt").write_text("faster\n")
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, "add", "."], cwd=fork, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "faster"], cwd=fork, check=True)
    done = miner("commit", "--claim", 100)
    assert done.code == 1 and "push" in done.err
    subprocess.run(["git", "push", "-q", "origin", "HEAD"], cwd=fork, check=True)
    done = miner("commit", "--claim", 100, "--json")
    assert done.code == 0, done.err
    assert done.json["tokens_per_sec"] == 100


def test_a_direct_submission_whose_answer_is_lost_is_found(miner, proxy):
    proxy.faults["POST", "/submit_kernel"] = ["lose"]
    done = miner("submit", "--json")
    assert done.code == 0, done.err
    assert proxy.count("/submit_kernel") == 1 and len(server_submissions(proxy)) == 1
    assert done.json["step"] == "submitted"
    assert done.json["submission_id"] == server_submissions(proxy)[0]["id"]
    again = miner("submit", "--json")
    assert again.code == 0 and again.json["already"] and proxy.count("/submit_kernel") == 1


def test_a_rate_limit_is_told_and_waited_for(start_localnet, quasar, tmp_path):
    localnet = start_localnet("--like", "strict", "--rate-limit", "1")
    miner = make_workspace(quasar, localnet, tmp_path)
    done = miner("commit", "--no-verify", "--timeout", 1)
    assert done.code == 4 and "429" in done.err and "quasar commit" in done.err
    assert [row["step"] for row in miner.rows()] == ["prepared"]


def test_commands_outside_of_a_workspace_say_so(quasar):
    for command in ("commit", "reveal", "submit", "status"):
        done = quasar(command)
        assert done.code == 3 and "quasar init" in done.err


def test_a_commitment_that_is_judged_before_its_reveal(miner, localnet):
    """As the reference validator does: it marks what it cannot clone."""
    done = miner("commit", "--json")
    assert done.code == 0 and "before the reveal" in done.err and "quasar submit" in done.err
    submission, = miner("status", "--json").json["submissions"]
    assert submission["judged_unrevealed"] is False
    localnet.post("/mark_validated", {"submission_id": submission["submission_id"], "score": 0})
    done = miner("status", "--json")
    assert done.json["submissions"][0]["judged_unrevealed"] is True
    text = miner("status").out
    assert "judged     #1 (server id 1) before its reveal" in text and "quasar submit" in text
    assert miner("reveal", "--wait").code == 0
    assert "judged" not in miner("status").out
    assert "before the reveal" not in miner("submit", "--again").err


@BOTH
def test_status_without_the_validator_shows_what_is_known(miner, proxy):
    assert miner("commit", "--no-verify").code == 0
    proxy.close()
    done = miner("status", "--timeout", 1, "--json")
    assert done.code == 4 and not done.json["online"] and done.json["problem"]
    assert done.json["submissions"][0]["step"] == "committed"


def test_status_beside_a_commit_takes_nothing_for_lost(miner, proxy):
    forward, beside = proxy.forward, []

    def commit_first(method, path, headers, body):
        if path == "/get_current_round" and not beside:
            beside.append(None)
            beside[0] = miner("commit", "--json")
        return forward(method, path, headers, body)

    proxy.forward = commit_first
    status = miner("status", "--json")  # its lists are from before the commit
    assert beside[0].code == 0, beside[0].err
    assert [row["step"] for row in status.json["submissions"]] == ["committed"]
    assert miner("commit", "--json").json["already"]
    assert len(server_commitments(proxy)) == 1


def test_reveal_wait_goes_on_after_being_stopped(miner, proxy, home):
    assert miner("commit", "--no-verify").code == 0
    proxy.faults["GET", "/pending_reveals"] = ["take"]
    process = subprocess.Popen([QUASAR, "reveal", "--wait"], cwd=miner.directory, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, env={**os.environ, "HOME": str(home)}, text=True)
    assert proxy.arrived.wait(LONG)
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 130
    proxy.release.set()
    assert miner("reveal", "--wait").code == 0


def test_commitments_at_another_validator_are_not_forgotten(miner, localnet, proxy):
    """The same validator by another URL: what was committed under the old one is named, and can be revealed."""
    assert miner("commit", "--no-verify").code == 0
    done = miner("reveal", "--api", localnet.url)
    assert done.code == 3 and f"quasar reveal --wait --api {proxy.url}" in done.err
    done = miner("reveal", "--wait", "--api", proxy.url + "/")
    assert done.code == 0, done.err
    done = miner("reveal", "--api", localnet.url)
    assert done.code == 3 and "nothing to reveal" in done.err


@pytest.mark.parametrize("revealed", [False, True], ids=["waiting", "revealed"])
def test_an_id_that_a_reset_validator_gave_again_is_not_taken_for_the_old_one(start_localnet, quasar, tmp_path, revealed):
    server = start_localnet("--block-time", "0.02", "--blocks-until-reveal", "1", "--rate-limit", "0")
    miner = make_workspace(quasar, server, tmp_path)
    assert miner("commit", "--claim", 5, "--no-verify").code == 0
    server.reset()
    assert miner("register").code == 0
    assert miner("commit", "--claim", 6, "--no-verify", "--again").code == 0
    assert [row["server_id"] for row in miner.rows()] == [1, 1]
    if revealed:
        assert miner("reveal", "--wait", 2).code == 0
    done = miner("reveal", "--wait", 1)
    assert done.code == 5 and "has lost submission #1 (server id 1)" in done.err and "quasar commit" in done.err
    assert miner("reveal", "--wait").code == (3 if revealed else 0)
    assert [row["step"] for row in miner.rows()] == ["refused", "revealed"]
    server.stop()
    assert server.failures() == []
