"""docs/from-the-guide.md: its commands, and how a test runs them."""
import os
import re
import shlex
import subprocess

import pytest

from conftest import QUASAR, ROOT

SECTIONS = re.split(r"^## ", (ROOT / "docs/from-the-guide.md").read_text(), flags=re.M)[1:]

# What the test cannot run, and where it is tried instead
ELSEWHERE = {"sudo apt install": "tests/packages", "npm ": "tests/cli/test_services.py", "pm2 ": "tests/cli/test_services.py",
             "./start-in-screen.sh": "tests/cli/test_services.py", "screen -r": "tests/cli/test_services.py"}

# The commands as they stand, without their waits: short measurements, a loop that is stopped once it has told what is
# waited for, a port of its own; and a fork that was verified is not verified again.
PREAMBLE = r"""
set -eu
quasar()
{
	case $1 in
	bench) command quasar "$@" --runs 3 ;;
	verify) command quasar "$@" --budget 3 ;;
	commit | submit) command quasar "$@" --no-verify ;;
	validate) command quasar "$@" --once --native ;;
	localnet) exec quasar "$@" --port 0 ;;
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

# The last that was started in the background is a server; all that were have to end well.
END = """
kill ${!-} 2>/dev/null || true
for job in $(jobs -p); do wait $job; done
"""


def block(section, who):
    """The lines of code below "Guide:" or "quasar:"."""
    found = re.search(rf"^{who}:\n\n```sh\n(.*?)```", section, re.M | re.S)
    return found[1].splitlines() if found else None


def count(lines):
    """The commands in them, those behind && and ; too."""
    return sum(1 + sum(token in ("&&", "||", ";") for token in shlex.shlex(line, posix=True, punctuation_chars=True))
               for line in lines)


@pytest.fixture
def guide(quasar, start_localnet, environment, home, tmp_path):
    """Runs lines of the document in an empty home: guide(lines, event that `quasar run` is to tell)."""
    server = start_localnet("--rate-limit", "0", "--block-time", "0.2", "--blocks-until-reveal", "5")
    assert quasar("init", tmp_path / "template").code == 0
    yours = tmp_path / "template/.quasar/origin.git"

    def run(lines, awaited, **more):
        text = "\n".join(line for line in lines if not line.startswith(tuple(ELSEWHERE)))
        # for what is YOUR own, on finney, long, or some gigabytes to download, which tests/cli/test_begin.py has
        for there, here in {"https://github.com/YOU/flash-linear-attention": str(yours), "1M": "64", " --venv": "",
                            "--network finney": f"--api {server.url}"}.items():
            text = text.replace(there, here)
        env = {**environment, "PATH": f"{os.path.dirname(QUASAR)}:{environment['PATH']}", "AWAITED": awaited, **more,
               "GIT_AUTHOR_NAME": "you", "GIT_AUTHOR_EMAIL": "you@example.org",
               "GIT_COMMITTER_NAME": "you", "GIT_COMMITTER_EMAIL": "you@example.org"}
        return subprocess.run(["bash", "-c", PREAMBLE + text + END], cwd=home,
                              env=env, text=True, capture_output=True)

    return run
