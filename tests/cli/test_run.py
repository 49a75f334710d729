"""run: the miner's loop, through new commits, signals, kills, outages and refusals."""
import contextlib
import fcntl
import json
import os
import pathlib
import queue
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import KEYFILES, QUASAR
from lossy import Say
from patience import LONG
from test_faults import SHIM
from terminal import Terminal

pytestmark = pytest.mark.usefixtures("without_python")

SEQ = 64
PENDING, STATS = ("GET", "/pending_reveals"), ("GET", "/get_submission_stats")
COMMIT, REVEAL = ("POST", "/commit_submission"), ("POST", "/reveal_submission")


class Loop:
    """A running `quasar run` and the events that it has told."""

    def __init__(self, miner, *args, env=None, **options):
        self.command = [QUASAR, "run", "--interval", "1", *map(str, args)]
        self.log = open(miner.directory.parent / "run.log", "ab")
        self.process = subprocess.Popen(self.command, cwd=miner.directory, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True, env={**miner.environment, **(env or {})},
                                        **options)
        self.seen, self.coming = [], queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.coming.put(json.loads(line))
        self.coming.put(None)

    def until(self, name, where=lambda event: True):
        """The next event of that name."""
        while True:
            event = self.coming.get(timeout=LONG)
            assert event, f"it ended before {name}: {[e['event'] for e in self.seen]} {open(self.log.name).read()}"
            self.seen.append(event)
            if event["event"] == name and where(event):
                return event

    def end(self, how=signal.SIGTERM):
        """Ends it; its exit code."""
        self.process.send_signal(how)
        return self.wait()

    def wait(self):
        code = self.process.wait(timeout=LONG)
        while event := self.coming.get(timeout=LONG):
            self.seen.append(event)
        print(*self.seen, sep="\n")  # shown when the test fails
        return code

    def names(self):
        return [event["event"] for event in self.seen]

    def count(self, name):
        return self.names().count(name)


class Miner:
    """A registered workspace that talks to the validator through a proxy."""

    def __init__(self, quasar, environment, directory, url):
        self.quasar, self.environment, self.directory = quasar, environment, directory
        self.loops = []
        assert quasar("init", directory, "--api", url, "--seq", SEQ).code == 0
        self.set(QUASAR_THREADS="1")

    def __call__(self, *args, **more):
        return self.quasar(*args, cwd=self.directory, **more)

    def set(self, **settings):
        with open(self.directory / ".env", "a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def run(self, *args, **more):
        self.loops.append(Loop(self, *args, **more))
        return self.loops[-1]

    def git(self, *args):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-C", self.directory / "fork", *args],
                              check=True, capture_output=True, text=True).stdout.strip()

    def new_commit(self):
        """One that is published before the fork is at it: a loop that is quick finds it so."""
        commit = self.git("commit-tree", "HEAD^{tree}", "-p", "HEAD", "-m", "faster")
        self.git("push", "-q", "origin", f"{commit}:{self.git('symbolic-ref', 'HEAD')}")
        self.git("merge", "-q", "--ff-only", commit)
        return commit

    def submissions(self):
        return self("status", "--json").json["submissions"]


@pytest.fixture
def miner(quasar, environment, proxy, tmp_path):
    assert quasar("wallet", "new").code == 0
    miner = Miner(quasar, environment, tmp_path / "miner", proxy.url)
    assert miner("register").code == 0
    yield miner
    for loop in miner.loops:
        if loop.process.poll() is None:
            loop.process.kill()
            loop.process.wait()


def on_server(proxy):
    with urllib.request.urlopen(proxy.url + "/get_submission_stats?limit=1000") as answer:
        return json.load(answer)["recent_submissions"]


def test_a_whole_round_and_nothing_more_without_improvement(miner, proxy):
    loop = miner.run("--improve", "100000%")
    committed = loop.until("committed")
    revealed = loop.until("revealed")
    assert committed["submission"]["id"] == revealed["submission"]["id"] == 1
    rank = loop.until("rank")
    assert (rank["rank"], rank["of"], rank["submission_id"]) == (1, 1, revealed["submission"]["submission_id"])
    kept = loop.until("kept")
    assert kept["weighted_score"] <= kept["needed"] and kept["needed"] >= 1000 * kept["last_weighted_score"]
    assert loop.end() == 0
    names = loop.names()
    order = [names.index(name) for name in ("started", "note", "fork", "verify", "bench", "committed", "revealed")]
    assert order == sorted(order) and names[-1] == "stopped" and loop.seen[-1]["exit"] == 0
    assert "round" in names and names.count("verify") == 1
    assert len(on_server(proxy)) == 1
    assert all(set(event) >= {"time", "event", "message"} for event in loop.seen)


def test_a_new_commit_of_the_fork_is_noticed_at_once(miner, proxy):
    loop = miner.run("--improve", "-100%", "--interval", "100000")
    loop.until("revealed")
    commit = miner.new_commit()
    assert loop.until("fork")["commit"] == commit
    assert loop.until("committed")["submission"]["commit_hash"] == commit
    loop.until("revealed")
    assert loop.end(signal.SIGINT) == 0
    assert len(on_server(proxy)) == 2


def test_a_new_commit_while_another_is_being_sent_has_its_own_turn(miner, proxy):
    made, forward = [], proxy.forward

    def commit_first(method, path, headers, body):
        if path == COMMIT[1] and not made:
            made.append(miner.new_commit())
        return forward(method, path, headers, body)

    proxy.always[COMMIT] = 503
    loop = miner.run("--improve", "-100%", "--interval", "100000", "--timeout", "1")
    loop.until("outage")
    proxy.forward = commit_first
    proxy.always.clear()
    loop.until("settled")  # the first, sent again; and nothing is measured yet of the commit that has come since
    assert loop.until("committed")["submission"]["commit_hash"] == made[0]
    assert loop.end() == 0 and loop.count("problem") == 0
    assert len({submission["commit_hash"] for submission in miner.submissions()}) == 2


def test_a_new_commit_while_another_is_checked_has_its_own_turn(miner, proxy):
    made, forward = [], proxy.forward

    def commit_first(method, path, headers, body):
        if path == "/openapi.json" and not made and proxy.count(PENDING[1]):  # not at the start, but before it is sent
            made.append(miner.new_commit())
        return forward(method, path, headers, body)

    proxy.forward = commit_first
    loop = miner.run("--interval", "100000")
    assert loop.until("committed")["submission"]["commit_hash"] == made[0]
    assert loop.end() == 0 and loop.count("problem") == 0


def test_a_rebase_is_waited_for(miner):
    """HEAD only passes by, be it at a commit that is published, with no file changed."""
    def stop_halfway():
        miner.git("-c", "sequence.editor=sed -i 1ibreak", "rebase", "-q", "-i", "HEAD^")

    commit = miner.new_commit()
    stop_halfway()
    loop = miner.run("--improve", "-100%", "--interval", "100000")
    problem = loop.until("problem")
    assert "in the middle of a merge, rebase or similar" in problem["message"] and "git" in problem["hint"]
    miner.git("rebase", "--continue")
    assert loop.until("committed")["submission"]["commit_hash"] == commit
    stop_halfway()
    miner.git("rebase", "--continue")
    latest = miner.new_commit()
    assert loop.until("committed")["submission"]["commit_hash"] == latest
    assert loop.end() == 0
    steps = [event.get("commit", "problem") for event in loop.seen if event["event"] in ("fork", "problem")]
    assert steps in (["problem", commit, latest], ["problem", commit, "problem", latest])  # it may have seen the second one


def test_a_branch_that_is_renamed_is_nowhere_for_a_moment(miner):
    branch = miner.git("symbolic-ref", "HEAD")
    loop = miner.run("--interval", "100000")
    first = loop.until("committed")["submission"]["commit_hash"]
    miner.git("symbolic-ref", "HEAD", "refs/heads/other")
    for _ in range(2):  # when it begins to read the settings again, it has looked at the fork
        loop.process.send_signal(signal.SIGHUP)
        loop.until("settings")
    miner.git("symbolic-ref", "HEAD", branch)
    latest = miner.new_commit()
    loop.until("bench", lambda event: event["commit"] == latest)
    assert loop.end() == 0
    assert {event["commit"] for event in loop.seen if event["event"] == "fork"} == {first, latest}


def test_a_commit_that_is_not_pushed_is_told_and_waited_for(miner):
    miner.git("commit", "-q", "--allow-empty", "-m", "local")
    loop = miner.run()
    problem = loop.until("problem")
    assert "1 commit is not pushed" in problem["message"] and "quasar push" in problem["hint"]
    assert miner("push").code == 0
    loop.until("revealed")
    assert loop.end() == 0 and loop.count("problem") == 1
    assert open(loop.log.name).read() == ""


def test_a_fork_that_fails_is_told_and_mended(miner):
    gate = miner.directory / "fork/fla/ops/quasar/gate.py"
    sound = gate.read_text()
    gate.write_text(sound + "# from fla.ops.gla import gate\n")
    assert miner("push").code == 0
    loop = miner.run("--interval", "100000")
    failed = loop.until("verify")
    assert not failed["passed"] and [check["name"] for check in failed["failed"]] == ["imports.forbidden"]
    assert failed["message"].endswith("fails: imports.forbidden") and "quasar verify" in failed["hint"]
    gate.write_text(sound)
    assert miner("push").code == 0
    assert loop.until("verify")["passed"]
    loop.until("revealed")
    assert loop.end() == 0


def test_of_files_that_are_not_the_commits_nothing_is_said(miner):
    gate = miner.directory / "fork/fla/ops/quasar/gate.py"
    sound = gate.read_text()
    gate.write_text(sound + "# slower\n")
    loop = miner.run("--improve", "100000%")
    for last in ("committed", "bench"):  # the first time changes are verified, the second time measured
        problem = loop.until("problem", lambda event: "gate.py" in event["message"])
        assert "no claim is made from measuring them" in problem["message"] and "quasar push" in problem["hint"]
        before = loop.count("verify")
        gate.write_text(sound)  # HEAD has not moved
        loop.until(last)
        assert loop.count("verify") == before + (last == "committed")
        gate.write_text(sound + "# slower\n")
    assert loop.end() == 0
    assert not any(event["dirty"] for event in loop.seen if event["event"] == "bench")


def test_hangup_reads_the_settings_again(miner):
    loop = miner.run("--improve", "-100%")
    loop.until("fork")
    miner.set(CLAIM_MARGIN="nonsense")
    loop.process.send_signal(signal.SIGHUP)
    problem = loop.until("problem")["message"]
    assert "keeping the old settings" in problem and "CLAIM_MARGIN" in problem
    miner.set(CLAIM_MARGIN="10%")
    loop.process.send_signal(signal.SIGHUP)
    loop.until("settings")
    bench = loop.until("bench")
    assert "rehearsal" in bench["message"]
    committed = loop.until("committed")
    margin = max(0.1, bench["spread"] / (1 + bench["spread"]))
    assert committed["submission"]["tokens_per_sec"] == float(int(bench["tokens_per_sec"] * (1 - margin)))
    assert "rehearsal" in committed["message"]
    miner.set(OPTIMIZATION_INTERVAL="'unclosed")
    loop.process.send_signal(signal.SIGHUP)
    assert "keeping the old settings" in loop.until("problem")["message"]
    loop.until("revealed")
    assert loop.end() == 0


def test_moving_to_another_validator_names_what_waits_at_the_old_one(miner, start_localnet, proxy):
    slow = start_localnet("--block-time", "1", "--blocks-until-reveal", "1000", "--rate-limit", "0")
    miner.set(VALIDATOR_API_URL=slow.url)
    assert miner("register").code == 0
    loop = miner.run()
    loop.until("committed")
    miner.set(VALIDATOR_API_URL=proxy.url)
    loop.process.send_signal(signal.SIGHUP)
    loop.until("settings")
    assert f"is waiting to be revealed at {slow.url}" in loop.until("problem")["message"]
    loop.until("revealed")
    assert loop.end() == 0


def test_settings_wait_for_a_hangup(miner):
    loop = miner.run("--improve", "100000%")
    loop.until("kept")
    miner.set(TARGET_SEQUENCE_LENGTH=2 * SEQ)
    loop.until("kept")
    assert loop.until("bench")["seq"] == SEQ
    loop.process.send_signal(signal.SIGHUP)
    loop.until("settings")
    assert loop.until("bench")["seq"] == 2 * SEQ
    assert loop.end() == 0


def test_an_improved_claim_is_committed(miner, proxy):
    miner.set(CLAIM_MARGIN="90%")
    loop = miner.run("--improve", "100%")
    loop.until("revealed")
    miner.set(CLAIM_MARGIN="0%")
    miner.new_commit()
    loop.process.send_signal(signal.SIGHUP)
    loop.until("committed")
    loop.until("revealed")
    assert loop.end() == 0
    claims = [entry["tokens_per_sec"] for entry in sorted(on_server(proxy), key=lambda entry: entry["id"])]
    claims = [claim for claim in claims if claim]  # a commitment that is not revealed yet shows none
    # on a busy machine the first measurement of the new commit may be improved on, too
    assert len(claims) >= 2 and all(2 * before < after for before, after in zip(claims, claims[1:])), claims


def test_a_second_loop_refuses_and_names_the_first(miner):
    loop = miner.run()
    loop.until("started")
    second = miner("run")
    assert second.code == 3 and f"in use by process {loop.process.pid}" in second.err
    assert "need a workspace to themselves" in second.err
    assert loop.end() == 0
    other = miner.run()
    other.until("started")
    assert other.end() == 0


def test_a_lock_that_cannot_be_opened_is_no_second_loop(miner):
    """As one that root has left."""
    lock = miner.directory / ".quasar/lock"
    lock.touch()
    lock.chmod(0)
    done = miner("run", bound=True)
    assert done.code == 3 and "Permission denied" in done.err
    assert "writable" in done.err and "themselves" not in done.err


def test_another_process_that_submits_is_waited_for(miner):
    """It is no trouble that a person would have to mend."""
    with open(miner.directory / ".quasar/turn", "w") as turn:
        fcntl.lockf(turn, fcntl.LOCK_EX)
        loop = miner.run()
        loop.until("bench")
    loop.until("committed")
    assert loop.end() == 0 and loop.count("problem") == 0


def test_commands_by_hand_beside_the_loop_submit_nothing_twice(miner, proxy):
    loop = miner.run("--improve", "100000%")
    loop.until("bench")
    by_hand = [subprocess.Popen([QUASAR, "commit", "--json"], cwd=miner.directory, env=miner.environment,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=LONG) for process in by_hand] == [0, 0]
    assert miner("reveal", "--wait").code in (0, 3)  # 3: the loop was faster
    loop.until("kept")
    assert loop.end() == 0
    assert len(on_server(proxy)) == 1
    assert [submission["step"] for submission in miner.submissions()] == ["revealed"]


@pytest.mark.parametrize("moment", ["verify", "bench", "committed"])
def test_killed_between_steps_it_goes_on(miner, proxy, moment):
    loop = miner.run("--improve", "100000%")
    loop.until(moment)
    loop.end(signal.SIGKILL)
    loop = miner.run("--improve", "100000%")
    loop.until("revealed")
    loop.until("kept")
    assert loop.end() == 0
    assert len(on_server(proxy)) == 1


@pytest.mark.parametrize("path", ["/commit_submission", "/reveal_submission"])
@pytest.mark.parametrize("fault", ["hold", "take"])
def test_killed_while_sending_it_goes_on(miner, proxy, path, fault):
    proxy.faults["POST", path] = [fault]
    loop = miner.run("--improve", "100000%")
    assert proxy.arrived.wait(LONG)
    loop.end(signal.SIGKILL)
    proxy.release.set()
    loop = miner.run("--improve", "100000%")
    loop.until("rank")
    loop.until("kept")
    assert loop.end() == 0
    assert len(on_server(proxy)) == 1
    assert [submission["step"] for submission in miner.submissions()] == ["revealed"]


def test_an_outage_is_waited_through(miner, localnet):
    loop = miner.run("--improve", "100000%", "--timeout", "1")
    loop.until("committed")
    localnet.stop()
    assert loop.until("outage")["kind"] == "network"
    localnet.start("--port", str(localnet.port))
    loop.until("recovered")
    if not loop.count("revealed"):  # one part may recover before another is tried again
        loop.until("revealed")
    assert loop.end() == 0


def test_a_reveal_does_not_wait_for_a_measurement(miner, proxy):
    proxy.always[REVEAL] = Say(425, {"detail": "Cannot reveal yet. Wait 1 blocks (~0 minutes)"})
    loop = miner.run("--improve", "-100%", "--interval", "100000")
    loop.until("committed")
    miner.set(TARGET_SEQUENCE_LENGTH="10000000")  # takes longer than any test
    loop.process.send_signal(signal.SIGHUP)
    loop.until("settings")
    proxy.always.clear()
    loop.until("revealed")
    assert loop.count("bench") == 1
    assert loop.end() == 0


def test_a_ban_needs_a_person(miner, localnet):
    for _ in range(5):
        localnet.post("/record_failure?ip_address=127.0.0.1")
        localnet.post("/record_failure", {"ip_address": "127.0.0.1"})
    loop = miner.run()
    assert loop.wait() == 5
    assert loop.seen[-1]["event"] == "stopped" and loop.seen[-1]["exit"] == 5
    assert "banned" in loop.seen[-1]["message"] and "ban ends" in loop.seen[-1]["hint"]


def test_who_is_not_registered_needs_a_person(quasar, environment, proxy, tmp_path):
    assert quasar("wallet", "new").code == 0
    loop = Miner(quasar, environment, tmp_path / "stranger", proxy.url).run()
    assert loop.wait() == 5
    assert "quasar register" in loop.seen[-1]["hint"]


def test_a_missing_wallet_needs_a_person(miner, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        done = miner("run", "--wallet", "nobody", env={"NOTIFY_SOCKET": str(tmp_path / "notify")})
        assert done.code == 3 and "nobody" in done.err
        heard = [systemd.recv(4096).decode() for _ in range(2) if select.select([systemd], [], [], 0)[0]]
        reason = done.err.splitlines()[0].removeprefix("quasar run: ")
        assert heard == ["STOPPING=1", f"STATUS=stopped: {reason}"]


def heard_event(path, name):
    """Waits until the command of --notify has been told an event of that name."""
    end = time.monotonic() + LONG
    while not path.exists() or name not in path.read_text().split():
        assert time.monotonic() < end, f"no {name}"


def test_it_outlives_its_terminal(miner, tmp_path):
    heard = tmp_path / "heard"
    terminal = Terminal(QUASAR, ["run", "--notify", f"echo $QUASAR_EVENT >>{heard}"], miner.directory,
                        miner.environment)
    terminal.expect('"fork"')
    os.close(terminal.fd)
    heard_event(heard, "settings")  # the terminal's end is a SIGHUP
    os.kill(terminal.pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 0


def test_it_outlives_the_reader_of_its_lines(miner, tmp_path):
    heard = tmp_path / "heard"
    with running_for_people(miner, "--notify", f"echo $QUASAR_EVENT >>{heard}",
                            stderr=subprocess.STDOUT) as process:
        process.stdout.readline()
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        heard_event(heard, "settings")


def test_a_locked_wallet_needs_a_person_who_is_told(miner, home, tmp_path):
    shutil.copy(KEYFILES / "encrypted.nacl", home / ".bittensor/wallets/quasar_miner/hotkeys/locked")
    loop = miner.run("--json", "--hotkey", "locked", "--notify", f"cat >{tmp_path}/heard", env={"WALLET_PASSWORD": "wrong"})
    assert loop.wait() == 3
    assert loop.names() == ["stopped"] and loop.seen[0]["exit"] == 3 and "WALLET_PASSWORD" in loop.seen[0]["hint"]
    assert json.loads((tmp_path / "heard").read_text()) == loop.seen[0]


@pytest.mark.parametrize("option, value", [("margin", "100%"), ("seq", "many"), ("interval", "0"), ("improve", "x")])
def test_a_mistake_in_an_option_is_told_at_once(miner, option, value):
    done = miner("run", f"--{option}", value)
    assert done.code == 2 and f"--{option}" in done.err and done.out == ""


def test_a_command_hears_each_event(miner, tmp_path):
    heard = tmp_path / "heard"
    loop = miner.run("--notify", f'printf "%s %s\\n" "$QUASAR_EVENT" "$(cat)" >>{heard}; echo told; sleep 0.01',
                     env={"WALLET_PASSWORD": "secret"})
    loop.until("revealed")
    assert loop.end() == 0
    lines = [line.split(" ", 1) for line in heard.read_text().splitlines()]
    assert [json.loads(text) for _, text in lines] == loop.seen
    assert [name for name, _ in lines] == loop.names()


def test_a_command_that_hangs_or_fails_holds_nothing_up(miner, tmp_path):
    loop = miner.run("--notify", "exec sleep 1000")
    loop.until("revealed")
    assert loop.end() == 0
    loop = miner.run("--notify", "exit 7")
    loop.until("kept")
    assert loop.end() == 0
    assert "exit code 7" in open(loop.log.name).read()


def is_running(pid):
    """Not when it is over and only waits for somebody to ask how it ended."""
    try:
        return pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_command_that_closes_its_stdout_holds_nothing_up(miner, tmp_path):
    """Nor does one that nobody can end kindly, with another one behind it, when the loop is told to stop."""
    pids = tmp_path / "pids"
    loop = miner.run("--notify", f"trap '' TERM; (trap '' TERM; exec >&-; sleep 1000) & echo $! >>{pids}; "
                                 f"echo $$ >>{pids}; exec >&- 2>&-; while :; do sleep 1; done")
    loop.until("committed")
    loop.until("revealed")
    assert loop.end() == 0
    left = pids.read_text().split()
    assert len(left) >= 2  # more on a machine so slow that one had its 30 s
    while any(map(is_running, left)):  # they were told; it takes a moment
        time.sleep(0.01)


def test_nothing_secret_reaches_the_command(miner, tmp_path):
    seen = tmp_path / "environment"
    secrets = ("WALLET_PASSWORD", "GITHUB_TOKEN", "OPENAI_API_KEY", "BT_PW__X", "SSH_AUTH_SOCK", "https_proxy")
    loop = miner.run("--notify", f"env >{seen}", env=dict.fromkeys(secrets, "hunter2"))
    loop.until("fork")
    assert loop.end() == 0
    assert "QUASAR_EVENT=" in seen.read_text() and "hunter2" not in seen.read_text()


def test_systemd_is_told(miner, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        loop = miner.run(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"})
        heard = []

        def hear(what):
            while not heard or not heard[-1].startswith(what):
                assert select.select([listener], [], [], LONG)[0]
                heard.append(listener.recv(4096).decode())

        hear("READY=1")
        for _ in range(3):
            heard.append("")
            hear("WATCHDOG=1")
        hear("STATUS=bench")
        loop.process.terminate()
        hear("STOPPING=1")
        assert loop.wait() == 0
    assert heard.index("READY=1") < heard.index("WATCHDOG=1")


def test_systemd_is_told_while_the_validator_is_silent(miner, proxy, tmp_path):
    proxy.faults["GET", "/get_current_round"] = ["hold"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        loop = miner.run(env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "400000"})
        # what was told before it asked may be heard later
        while not proxy.count("/get_current_round") or select.select([listener], [], [], 0)[0]:
            assert select.select([listener], [], [], LONG)[0]
            listener.recv(4096)
        for _ in range(5):
            assert select.select([listener], [], [], LONG)[0]
            assert listener.recv(4096).decode().startswith("WATCHDOG=1")
        proxy.release.set()
        loop.process.terminate()
        assert loop.wait() == 0


@pytest.mark.parametrize("seconds", [-30 * 3600, 30 * 3600, 0.9])
def test_a_clock_that_is_set_right_changes_nothing(miner, localnet, proxy, tmp_path, seconds):
    clock = tmp_path / "clock"
    clock.write_text(str(seconds))
    loop = miner.run("--improve", "100000%", env={"LD_PRELOAD": str(SHIM), "FAULT_CLOCK": str(clock)})
    loop.until("committed")
    clock.write_text("0")
    loop.until("revealed")
    loop.until("kept")
    assert len(on_server(proxy)) == 1
    number = localnet.get("/get_current_round").json["id"]
    assert localnet.post(f"/finalize_round/{number}").status == 200
    loop.until("committed")  # what counted for one round does not for the next
    assert loop.end() == 0


def test_a_machine_that_slept_catches_up(miner, tmp_path):
    """What is due by the others' clocks, which have gone on: here the next round of work."""
    slept = tmp_path / "slept"
    loop = miner.run("--improve", "100000%", "--interval", "100000", env={
        "LD_PRELOAD": str(SHIM), "FAULT_SLEEP": str(slept),
        "NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "400000"})  # so that it looks up soon
    loop.until("revealed")
    assert loop.count("bench") == 1
    slept.write_text("200000")
    loop.until("bench")
    loop.until("kept")
    assert loop.end() == 0


def test_what_arrives_a_round_later_counts_for_that_round(miner, localnet, proxy):
    """It was made before the round, in which it is handed in."""
    proxy.always["POST", "/commit_submission"] = "drop"
    loop = miner.run("--improve", "100000%", "--timeout", "1")
    loop.until("outage", where=lambda event: event["part"] == "commit")
    number = localnet.get("/get_current_round").json["id"]
    assert localnet.post(f"/finalize_round/{number}").status == 200
    proxy.always.clear()
    loop.until("settled")
    loop.until("kept")
    assert loop.end() == 0
    assert len(on_server(proxy)) == 1


def test_a_backup_put_in_the_place_of_the_store_gets_what_it_lacks(miner, start_localnet):
    server = start_localnet("--block-time", "0.2", "--blocks-until-reveal", "100000", "--rate-limit", "0")
    miner.set(VALIDATOR_API_URL=server.url)
    assert miner("register").code == 0
    database = miner.directory / ".quasar" / "state.db"
    backup = database.read_bytes()
    loop = miner.run("--improve", "100000%")
    committed = loop.until("committed")["submission"]
    database.with_name("backup").write_bytes(backup)
    database.with_name("backup").rename(database)
    assert "1 submission that it lacked was added" in loop.until("store")["message"]
    assert [row["commitment_hash"] for row in miner.submissions()] == [committed["commitment_hash"]]
    loop.until("kept")
    assert loop.end() == 0 and loop.count("committed") == 1
    database.write_bytes(backup)  # while nothing runs: nobody has the salt then
    problem = miner.run("--improve", "100000%").until("problem")
    assert "1 commitment by this hotkey" in problem["message"] and "import-state" in problem["hint"]


def test_a_store_that_is_away_for_a_while_is_waited_for(miner, proxy):
    loop = miner.run("--improve", "100000%")
    loop.until("verify")
    (miner.directory / ".quasar").rename(miner.directory / "elsewhere")
    problem = loop.until("problem", where=lambda event: "has disappeared" in event["message"])
    assert "put it or a backup back" in problem["hint"]
    (miner.directory / "elsewhere").rename(miner.directory / ".quasar")
    loop.until("revealed")
    assert loop.end() == 0 and len(on_server(proxy)) == 1


def test_two_workspaces_run_side_by_side(miner, quasar, environment, proxy, tmp_path):
    assert quasar("wallet", "new", "--wallet", "second").code == 0
    other = Miner(quasar, environment, tmp_path / "other", proxy.url)
    other.set(WALLET_MINER_NAME="second")
    assert other("register").code == 0
    loops = [miner.run(), other.run()]
    for loop in loops:
        loop.until("revealed")
    assert [loop.end() for loop in loops] == [0, 0]
    assert len({submission["miner_hotkey"] for submission in on_server(proxy)}) == 2


@contextlib.contextmanager
def running_for_people(miner, *args, **streams):
    """`quasar run` as a person starts it; however the test ends, it ends too."""
    process = subprocess.Popen([QUASAR, "run", *args], cwd=miner.directory, env=miner.environment,
                               stdout=subprocess.PIPE, text=True, **streams)
    with process:
        try:
            yield process
            process.terminate()
            assert process.wait(timeout=LONG) == 0
        finally:
            process.kill()


def test_lines_for_people(miner):
    with running_for_people(miner, "--log", "text", stderr=subprocess.DEVNULL) as process:
        line = process.stdout.readline()
    assert "started" in line and "mining in" in line and "{" not in line


def test_people_are_told_what_to_do(miner):
    (miner.directory / "fork/new.py").write_text("")
    with running_for_people(miner, "--log", "text", stderr=subprocess.DEVNULL) as process:
        problem = next(line for line in process.stdout if " problem " in line)
        assert "new.py" in problem and "quasar push" in process.stdout.readline()


def test_options_that_make_no_sense(miner):
    assert miner("run", "--improve", "much").code == 2
    assert "not a percentage, such as 3%" in miner("run", "--improve", "2").err
    assert miner("run", "--interval", "0").code == 2
    assert miner("run", "--log", "xml").code == 2


# --- trouble with the validator ------------------------------------------------------------------------


def wait_for(proxy, route, times):
    """Until the loop has made so many more of these requests."""
    seen = proxy.count(route[1])
    while proxy.count(route[1]) < seen + times:
        time.sleep(0.02)


def told(loop):
    """What was told by now about trouble: the events, each with its part. A busy machine's proxy may take longer than
    --timeout for an answer, which then is trouble of another cause, and told of, too: that does not count."""
    while not loop.coming.empty():
        loop.seen.append(loop.coming.get())
    return [(event["event"], event["part"]) for event in loop.seen
            if event["event"] in ("outage", "recovered") and event.get("cause") != "connection"]


def test_one_route_that_fails_is_told_once(miner, proxy):
    proxy.always[STATS] = Say(500, b"Internal Server Error", "text/plain")
    loop = miner.run("--improve", "100000%", "--timeout", "1")
    outage = loop.until("outage")
    assert (outage["part"], outage["cause"]) == ("standings", "server")
    loop.until("revealed")  # all the rest goes on
    wait_for(proxy, STATS, 3)
    assert told(loop) == [("outage", "standings")]
    proxy.always[STATS] = Say(404, b"<html>", "text/html")
    assert loop.until("outage")["cause"] == "unclear"
    proxy.always.clear()
    assert loop.until("recovered")["part"] == "standings"
    assert told(loop).count(("recovered", "standings")) == 1
    assert loop.end() == 0


def test_a_list_that_cannot_be_read_keeps_no_reveal(miner, proxy):
    loop = miner.run("--improve", "100000%", "--timeout", "1")
    proxy.always[PENDING] = Say(200, {"pending_reveals": "none"})
    outage = loop.until("outage")
    assert (outage["part"], outage["cause"]) == ("list", "unreadable")
    loop.until("revealed")
    assert ("recovered", "list") not in told(loop)
    proxy.always.clear()
    loop.until("recovered")
    assert loop.end() == 0 and len(on_server(proxy)) == 1


def test_an_unclear_refusal_is_told_once_and_waited_through(miner, proxy):
    proxy.always[REVEAL] = Say(404, b"<html>no such host</html>", "text/html")
    loop = miner.run("--improve", "100000%", "--timeout", "1")
    outage = loop.until("outage")
    assert (outage["part"], outage["cause"], outage["submission"]) == ("reveal", "unclear", 1)
    wait_for(proxy, REVEAL, 2)
    assert told(loop) == [("outage", "reveal")]
    assert [submission["step"] for submission in miner.submissions()] == ["committed"]
    proxy.always.clear()
    loop.until("revealed")
    assert loop.end() == 0 and told(loop) == [("outage", "reveal"), ("recovered", "reveal")]
    assert len(on_server(proxy)) == 1 and loop.count("refused") == 0


def test_trouble_that_comes_and_goes_is_told_once_a_while(miner, proxy):
    loop = miner.run("--improve", "100000%", "--timeout", "0.2")
    loop.until("revealed")
    began = time.monotonic()
    for _ in range(4):
        proxy.always[STATS] = 503
        wait_for(proxy, STATS, 2)
        proxy.always.clear()
        wait_for(proxy, STATS, 2)
    allowed = 1 + (time.monotonic() - began) // 60  # it is quiet for a minute, then for two
    assert 1 <= told(loop).count(("outage", "standings")) <= allowed
    assert told(loop).count(("recovered", "standings")) <= allowed
    assert loop.end() == 0
