"""quasar status --watch: a page on a terminal, lines elsewhere."""
import os
import re
import signal
import sqlite3
import subprocess

import pytest

from conftest import QUASAR
from patience import LONG

pytestmark = pytest.mark.usefixtures("without_python")


@pytest.fixture
def localnet(start_localnet):
    """A local validator with blocks as on the real chain."""
    return start_localnet("--rate-limit", "0")


@pytest.fixture
def miner(commit_something, proxy):
    """The directory of a workspace with one commitment, whose reveal is due in 20 minutes."""
    directory = commit_something(proxy.url)
    proxy.requests.clear()
    return directory


@pytest.fixture
def watch(terminal, miner):
    def start(*args, size=(24, 100), term="xterm", **options):
        return terminal("status", "--watch", "-C", miner, *args, size=size, env={"TERM": term} if term else {},
                        **options)

    return start


def add_submissions(miner, count):
    with sqlite3.connect(miner / ".quasar" / "state.db") as database:
        for _ in range(count):
            database.execute(
                "INSERT INTO submission (kind, step, api_url, hotkey, fork_url, commit_hash,"
                " target_sequence_length, tokens_per_sec, created_at, updated_at) SELECT 'direct', 'submitted',"
                " api_url, hotkey, fork_url, commit_hash, target_sequence_length, tokens_per_sec, 0, 0"
                " FROM submission WHERE id = 1")


def time_left(screen):
    found = re.search(r"reveal in \d+ blocks?, about (\d+) min (\d\d) s", screen.text)
    return found and int(found[1]) * 60 + int(found[2])


def less_than(seconds):
    return lambda screen: (time_left(screen) or seconds) < seconds


def ids(screen):
    return [int(line.split()[0]) for line in screen.lines if re.match(r" *\d+ ", line)]


def counted(screen):
    """How many more lines there are, as the page says."""
    found = re.fullmatch(r"… (\d+) more", screen.lines[-1])
    return int(found[1]) if found else 0


def shows_all(*texts):
    return lambda screen: all(text in screen.text for text in texts)


# --- on a terminal --------------------------------------------------------------------------------

def test_it_counts_down_without_asking_the_validator(watch, proxy):
    page = watch("--interval", 3600)
    first = page.until(time_left)
    page.until(less_than(first - 1))
    assert proxy.count("/pending_reveals") == 1
    assert first <= 1200


def test_it_has_the_alternate_screen_to_itself(watch):
    page = watch("--interval", 0.2)
    page.until(time_left)
    assert page.screen.alternate and not page.screen.cursor_visible and page.screen.normal == ""
    page.send("typed\n")
    page.until(less_than(time_left(page.screen)))
    assert not page.echoes() and "typed" not in page.out


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 130),
                                          (signal.SIGHUP, -signal.SIGHUP)])
def test_the_terminal_is_as_before_at_the_end(watch, number, code):
    page = watch()
    page.until(time_left)
    os.kill(page.pid, number)
    page.until(lambda screen: not screen.alternate)
    assert page.echoes()
    assert page.finish() == code
    assert page.screen.cursor_visible and page.screen.wraps


def test_ctrl_c_ends_it_also_while_the_validator_is_silent(watch, proxy):
    proxy.faults["GET", "/pending_reveals"] = ["hold"]
    page = watch()
    assert proxy.arrived.wait(LONG)
    page.until(shows_all("not yet"))
    page.send("\x03")
    assert page.finish() == 130 and not page.screen.alternate


def test_the_terminal_is_as_before_after_an_error(watch, miner):
    page = watch("--interval", 0.1)
    page.until(time_left)
    with sqlite3.connect(miner / ".quasar" / "state.db") as database:
        database.execute("DROP TABLE submission")
    assert page.finish() == 3
    assert not page.screen.alternate and page.screen.cursor_visible and "submission" in page.screen.normal


@pytest.mark.parametrize("ignored, code", [((), -signal.SIGHUP), ((signal.SIGHUP,), 130)], ids=["hangup", "nohup"])
def test_it_ends_with_its_terminal(watch, ignored, code):
    page = watch(ignored=ignored)
    page.until(time_left)
    page.close()
    assert page.finish() == code


def test_ctrl_z_gives_the_terminal_back_meanwhile(watch):
    page = watch()
    page.until(time_left)
    os.kill(page.pid, signal.SIGTSTP)
    assert os.WIFSTOPPED(os.waitpid(page.pid, os.WUNTRACED)[1])
    page.until(lambda screen: not screen.alternate)
    assert page.screen.cursor_visible and page.screen.wraps and page.echoes()
    page.screen.resize(24, 100)  # a shell was here
    os.kill(page.pid, signal.SIGCONT)
    page.until(lambda screen: screen.alternate and time_left(screen))
    assert not page.screen.cursor_visible and not page.echoes()


def test_a_resize_is_followed_while_the_validator_is_silent(watch, proxy):
    proxy.faults["GET", "/pending_reveals"] = ["hold"]
    page = watch("--interval", 60)
    assert proxy.arrived.wait(LONG)
    page.until(shows_all("server id", "updated    not yet", "reveal in about"))
    page.resize(8, 40)
    page.until(lambda screen: any(line.startswith("id  what next") for line in screen.lines))
    assert "outage" not in page.screen.text and "hotkey" not in page.screen.text


@pytest.mark.parametrize("columns, heading", [
    (110, "id  server id  step       league  claim  weighted  commit      what next"),
    (80, "id  step       league  claim  weighted  what next"),
    (62, "id  step       claim  what next"),
    (50, "id  what next"),
    (20, "id  what next")])
def test_a_narrow_window_gets_the_columns_that_matter(watch, columns, heading):
    page = watch(size=(12, columns))
    page.until(lambda screen: heading in screen.lines and "reveal in" in screen.text)
    [row] = [line for line in page.screen.lines if line.startswith(" 1 ")]
    assert row.endswith("…") == (columns == 20)


def test_of_a_long_list_the_window_shows_what_matters_most(watch, miner):
    add_submissions(miner, 40)
    page = watch("--interval", 60, size=(10, 100))
    page.until(lambda screen: time_left(screen) and counted(screen))
    shown = ids(page.screen)
    assert shown == [1, *range(41, 41 - len(shown) + 1, -1)] and len(shown) + counted(page.screen) == 41
    page.resize(7, 100)
    page.until(lambda screen: ids(screen) == [1, 41, 40] and counted(screen) == 38)
    page.resize(50, 100)
    page.until(lambda screen: ids(screen) == [1, *range(41, 1, -1)])
    assert counted(page.screen) == 0


def test_a_validator_that_never_answers_is_waited_for(watch):
    page = watch("--api", "http://127.0.0.1:9", "--interval", 0.1, "--timeout", 0.1)
    page.until(shows_all("updated    not yet, in ", "outage     GET /pending_reveals: cannot reach"))
    before = re.search("not yet, in .*", page.screen.text)[0]
    page.until(lambda screen: "not yet, in " in screen.text and before not in screen.text)


def test_before_the_first_answer_nothing_is_wrong(watch, miner, proxy):
    with sqlite3.connect(miner / ".quasar" / "state.db") as database:
        database.execute("UPDATE submission SET step = 'revealed', server_id = 1")
    proxy.faults["GET", "/pending_reveals"] = ["hold"]
    page = watch()
    page.until(shows_all("asking the validator for the rank"))
    proxy.release.set()
    page.until(lambda screen: "asking" not in screen.text)


def test_what_was_told_last_stays_through_an_outage(watch, localnet, proxy):
    page = watch("--api", proxy.url, "--interval", 0.2, "--timeout", 0.5)
    page.until(time_left)
    port = localnet.port
    localnet.stop()
    page.until(shows_all("the validator has not been reached since (", "outage     GET /pending_reveals", "round 1 ("))
    page.until(less_than(time_left(page.screen)))
    localnet.start("--port", str(port))
    page.until(lambda screen: "not been reached" not in screen.text and "outage" not in screen.text)
    assert time_left(page.screen)


# --- where there is none --------------------------------------------------------------------------

@pytest.mark.parametrize("args, term", [((), "dumb"), ((), None), (("--json",), "xterm")], ids=str)
def test_a_terminal_that_cannot_gets_lines(watch, args, term):
    run = watch(*args, term=term)
    run.expect("reveal in " if not args else '"blocks_remaining":')
    run.send("\x03")
    assert run.finish() == 130
    assert "\x1b" not in run.out.replace("\x1b[31m", "").replace("\x1b[0m", "")


@pytest.mark.parametrize("args", [(), ("--json",)], ids=str)
def test_a_pipe_gets_what_has_changed(environment, miner, args):
    run = subprocess.Popen([QUASAR, "status", "--watch", "-C", miner, "--interval", "0.1", *args],
                           env={**environment, "TERM": "xterm"}, stdout=subprocess.PIPE, text=True)
    first = run.stdout.readline()
    add_submissions(miner, 1)
    again = next(line for line in run.stdout if '"id":2' in line or line.startswith(" 2 "))
    run.send_signal(signal.SIGINT)
    assert "\x1b" not in first + again + run.stdout.read()
    assert run.wait(LONG) == 130
