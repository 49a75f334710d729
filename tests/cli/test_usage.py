"""The command table: help, usage errors, generated documents."""
import os
import re
import subprocess
import termios

import pytest

from conftest import QUASAR, ROOT


def test_version(quasar):
    done = quasar("--version")
    assert done.code == 0 and done.out.startswith("quasar ")


@pytest.mark.parametrize("args", [["--version"], ["--help"], ["leagues"], ["leagues", "--json"]])
def test_what_nobody_can_read_is_no_success(args):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([QUASAR, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3 and "cannot write to standard output" in done.stderr


def test_without_a_command_lists_the_commands(quasar):
    done = quasar()
    assert done.code == 0 and "generate" in done.out


@pytest.mark.parametrize("args", [["nonsense"], ["help", "--nonsense"], ["help", "nonsense"], ["generate"],
                                  ["generate", "bash", "x", "y"], ["generate", "--json=yes", "bash"]])
def test_wrong_usage_says_so(quasar, args):
    done = quasar(*args)
    assert done.code == 2
    assert done.err.startswith("quasar") and "--help" in done.err and done.out == ""


@pytest.mark.parametrize("args", [["score", "--sqe", "--json"], ["nonsense", "--json"], ["--json", "score", "--seq"]])
def test_a_mistake_is_a_document_too(quasar, args):
    done = quasar(*args)
    assert done.code == 2 and done.json["error"]["kind"] == "usage"


def test_a_bad_env_file_is_named_with_its_line_and_not_shown(quasar, tmp_path):
    (tmp_path / ".quasar").mkdir()
    (tmp_path / ".quasar" / "state.db").touch()
    (tmp_path / ".env").write_text("A=1\nthis is secret\n")
    (tmp_path / ".env").chmod(0o600)
    done = quasar("generate", "env")
    assert done.code == 2 and "line 2" in done.err and "secret" not in done.err


def test_the_readme_lists_every_command(quasar):
    commands = re.findall(r"^  ([a-z-]+) {2,}", quasar("--help").out.split("options")[0], re.M)
    readme = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "README.md").read_text(), re.M)
    assert commands == readme


def test_global_options_may_stand_before_the_command(quasar, tmp_path):
    assert quasar("--json", "score", "--seq", "1M", "--tokens-per-sec", 5).json["league"] == "1M"
    assert quasar("-C", tmp_path / "nowhere", "status").code == 3
    for command in ("run", "push", "status", "recover"):
        done = quasar("-C", tmp_path, command)
        assert done.code == 3 and "is not a workspace" in done.err and f"quasar init {tmp_path}" in done.err
    assert quasar("--nonsense", "status").code == 2


def read_terminal(fd):
    text = b""
    while True:
        try:
            text += os.read(fd, 4096)
        except OSError:  # the program has closed the terminal
            return text.decode()


@pytest.mark.parametrize("columns", [60, 80, 200])
@pytest.mark.parametrize("name", ["wallet", "round"])
def test_help_fits_the_terminal(environment, columns, name):
    here, there = os.openpty()
    termios.tcsetwinsize(there, (24, columns))
    process = subprocess.Popen([QUASAR, "help", name], stdout=there, env={**environment, "NO_COLOR": "1"})
    os.close(there)
    lines = read_terminal(here).splitlines()
    os.close(here)
    assert process.wait() == 0
    assert min(columns, 96) - 20 < max(map(len, lines)) <= min(columns, 96)
