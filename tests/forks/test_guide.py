"""docs/from-the-guide.md: its commands work as they stand, and are never more than the guide's."""
import os
import re
import shlex
import subprocess
import sys

import pytest

from conftest import QUASAR, ROOT

SECTIONS = re.split(r"^## ", (ROOT / "docs/from-the-guide.md").read_text(), flags=re.M)[1:]

# What the test cannot run, and where it is tried instead
ELSEWHERE = {"sudo apt install": "tests/packages", "npm ": "tests/cli/test_services.py", "pm2 ": "tests/cli/test_services.py",
             "./start-in-screen.sh": "tests/cli/test_services.py", "screen -r": "tests/cli/test_services.py"}

# The commands as they stand, without their waits: short measurements, a loop that is stopped once it has told what is
# waited for, a port of its own.
PREAMBLE = r"""
set -eu
quasar()
{
	case $1 in
	bench) command quasar "$@" --runs 3 ;;
	verify) command quasar "$@" --budget 10 ;;
	validate) command quasar "$@" --once --native ;;
	localnet) command quasar "$@" --port 0 ;;
	run)
		rm -f "$HOME/events"
		command quasar "$@" --notify "echo \$QUASAR_EVENT >>'$HOME/events'" & loop=$!
		until grep -qs "^$AWAITED\$" "$HOME/events"; do
			kill -0 $loop
			sleep 0.1
		done
		kill $loop
		wait $loop
		;;
	*) command quasar "$@" ;;
	esac
}
"""


def block(section, who):
    """The lines of code below "Guide:" or "quasar:"."""
    found = re.search(rf"^{who}:\n\n```sh\n(.*?)```", section, re.M | re.S)
    return found[1].splitlines() if found else None


def count(lines):
    """The commands in them, those behind && and ; too."""
    return sum(1 + sum(token in ("&&", "||", ";") for token in shlex.shlex(line, posix=True, punctuation_chars=True))
               for line in lines)


@pytest.mark.parametrize("section", SECTIONS[1:], ids=lambda section: section.splitlines()[0])
def test_never_more_commands_than_before(section):
    assert 0 < count(block(section, "quasar")) <= count(block(section, "Guide"))


def test_commands_are_counted():
    assert count(["git add -A && git commit -m 'a; b' && git push", "cd x", "run > log 2>&1 &"]) == 5


def test_the_first_submission_takes_five_commands():
    assert count(block(SECTIONS[0], "quasar")) == 5


@pytest.fixture
def guide(quasar, start_localnet, environment, home, tmp_path):
    """Runs lines of the document in an empty home: guide(lines, event to wait for in `quasar run`)."""
    server = start_localnet("--rate-limit", "0", "--block-time", "0.2", "--blocks-until-reveal", "5")
    assert quasar("init", tmp_path / "template").code == 0
    yours = tmp_path / "template/.quasar/origin.git"

    def run(lines, awaited):
        text = "\n".join(line for line in lines if not line.startswith(tuple(ELSEWHERE)))
        text = text.replace("https://github.com/YOU/flash-linear-attention", str(yours)).replace("1M", "64")
        # the environment wins over what the lines say of a validator that is not here
        text = text.replace("https://quasar-subnet.onrender.com", server.url)
        env = {**environment, "PATH": f"{os.path.dirname(QUASAR)}:{environment['PATH']}", "QUASAR_PYTHON": sys.executable,
               "AWAITED": awaited, "OMP_NUM_THREADS": "1", "GIT_AUTHOR_NAME": "you", "GIT_AUTHOR_EMAIL": "you@example.org",
               "GIT_COMMITTER_NAME": "you", "GIT_COMMITTER_EMAIL": "you@example.org"}
        return subprocess.run(["bash", "-c", PREAMBLE + text + "\n{ kill %%; wait; } 2>/dev/null || true\n"], cwd=home,
                              env=env, text=True, capture_output=True)

    return run


def test_the_first_submission_is_made_by_them(guide, quasar, home):
    done = guide(block(SECTIONS[0], "quasar"), "revealed")
    assert done.returncode == 0, done.stdout + done.stderr
    submission, = quasar("status", "--json", cwd=home / "miner").json["submissions"]
    assert submission["step"] == "revealed" and submission["target_sequence_length"] == 64


def test_every_step_works_as_it_stands(guide, home):
    lines = ["quasar wallet new", *block(SECTIONS[1], "quasar"), *block(SECTIONS[2], "quasar"), "quasar register"]
    lines += [line for section in SECTIONS[3:] for line in block(section, "quasar")]
    done = guide(lines, "started")
    assert done.returncode == 0, done.stdout + done.stderr
