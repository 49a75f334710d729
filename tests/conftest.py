"""Fixtures of the command-line tests: they run the built binary, named by $QUASAR, as a user would."""
import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
QUASAR = os.path.abspath(os.environ.get("QUASAR", ROOT / "build" / "quasar"))


class Result:
    def __init__(self, done):
        self.code, self.out, self.err = done.returncode, done.stdout, done.stderr

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def home(tmp_path):
    """A private home directory, so that no test sees the user's wallets or settings."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def quasar(home, tmp_path):
    """Runs the binary: quasar("score", "--seq", "1M", cwd=…, env={…}, stdin="…")."""

    def run(*args, cwd=None, env=None, stdin="", timeout=120):
        environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
                       **{k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "UBSAN_", "LSAN_"))},
                       **(env or {})}
        return Result(subprocess.run([QUASAR, *map(str, args)], cwd=cwd or tmp_path, env=environment,
                                     input=stdin, capture_output=True, text=True, timeout=timeout))

    return run
