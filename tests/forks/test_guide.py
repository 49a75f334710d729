"""docs/from-the-guide.md: its commands work as they stand, with PyTorch. tests/cli counts them."""
import sys

import pytest

from guide import SECTIONS, block, guide  # noqa: F401


@pytest.mark.long
def test_every_step_works_as_it_stands(guide):
    lines = ["quasar wallet new", *block(SECTIONS[1], "quasar"), *block(SECTIONS[2], "quasar"), "quasar register"]
    lines += [line for section in SECTIONS[3:] for line in block(section, "quasar")]
    done = guide(dict.fromkeys(lines), "started", QUASAR_PYTHON=sys.executable, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
