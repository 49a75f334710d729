"""A validator that is not there: commands that only look say so soon, with what the workspace knows."""
import re
import socket
import subprocess
import time

import pytest

from conftest import QUASAR
from patience import LONG
from scripted_server import refuse

pytestmark = pytest.mark.usefixtures("without_python")

READING = ["round", "status", "leaderboard", "register"]


@pytest.fixture
def dead():
    """An address of this machine at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


@pytest.fixture
def silent():
    """An address at which a connection is taken, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def miner(commit_something, localnet):
    return commit_something(localnet.url)


def seconds_of(work):
    """How long it takes, and what it gives."""
    began = time.monotonic()
    given = work()
    return time.monotonic() - began, given


def test_nobody_listening_on_this_machine_is_known_at_once(quasar, miner, dead):
    for command in READING:
        seconds, done = seconds_of(lambda: quasar(command, "--api", dead, "--timeout", LONG, cwd=miner))
        assert done.code == 4 and "nothing listens there" in done.err + done.out, done.err
        assert "quasar localnet" in done.err and "trying again" not in done.err
        assert seconds < LONG / 2


def test_a_validator_that_says_nothing_is_given_up_in_five_seconds(environment, miner, silent, dead):
    def look(url):
        runs = [subprocess.Popen([QUASAR, command, "--api", url], cwd=miner, env=environment, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for command in READING]
        return [(*run.communicate(timeout=LONG), run.returncode) for run in runs]

    busy, _ = seconds_of(lambda: look(dead))  # how long they take without waiting
    seconds, found = seconds_of(lambda: look(silent))
    for out, err, code in found:
        assert code == 4 and "no response in time" in out + err and "--timeout" in err, out + err
    assert 4.5 < seconds < 9 + 4 * busy


def test_all_questions_together_have_the_time_of_one(quasar, miner, silent, serve, dead):
    """status asks four, leaderboard more."""
    server = serve(*[refuse(503, "down")] * 500)
    for command in ("status", "leaderboard"):
        busy, _ = seconds_of(lambda: quasar(command, "--api", dead, cwd=miner))
        for url in (silent, server.url):
            seconds, done = seconds_of(lambda: quasar(command, "--api", url, "--timeout", 1, cwd=miner))
            assert done.code == 4 and seconds < 3 + 4 * busy


def test_what_the_workspace_knows_is_told_through_an_outage(quasar, miner, localnet):
    localnet.stop()
    status = quasar("status", cwd=miner)
    assert status.code == 4 and "outage" in status.out and re.search(r"^ *1 .* committed ", status.out, re.M)
    assert quasar("status", "--json", cwd=miner).json["submissions"][0]["step"] == "committed"
    for command in ("round", "register"):
        done = quasar(command, cwd=miner)
        assert done.code == 4 and "This workspace has 1 submission there; #1" in done.err, done.err
    assert "1 submission there" in quasar("round", "--json", cwd=miner).json["error"]["hint"]


def test_submissions_to_another_validator_are_not_passed_over(quasar, miner, localnet, dead):
    status = quasar("status", "--api", dead, cwd=miner)
    assert "No submissions yet" not in status.out and "No submissions of this hotkey at this validator" in status.out
    assert f"1 more, the latest at {localnet.url}: see `quasar status --api {localnet.url}`" in status.out
    assert quasar("status", "--api", dead, "--json", cwd=miner).json["elsewhere"] == 1
    assert "elsewhere" not in quasar("status", cwd=miner).out


def test_on_a_terminal_waiting_is_one_line(terminal, hotkey, serve):
    """Which counts down, and gives way to what came of it."""
    server = serve(*[refuse(503, "down")] * 500)
    person = terminal("register", "--api", server.url, "--timeout", 2.5, size=(24, 70), env={"TERM": "xterm"})
    assert person.finish() == 4
    assert "trying again in 1 s" in person.out and person.screen.widest <= 70
    assert "trying again" not in person.screen.normal and "gave up after" in person.screen.normal


def test_in_a_pipe_waiting_is_not_a_line_a_second(quasar, hotkey, serve):
    server = serve(*[refuse(503, "down")] * 500)
    done = quasar("register", "--api", server.url, "--timeout", 2.5)
    assert done.code == 4 and "\r" not in done.err and done.err.count("trying again") <= 2
