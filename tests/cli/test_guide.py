"""docs/from-the-guide.md: never more commands than the guide's, and five for the first submission."""
import pytest

from guide import SECTIONS, block, count, guide  # noqa: F401


@pytest.mark.parametrize("section", SECTIONS[1:], ids=lambda section: section.splitlines()[0])
def test_never_more_commands_than_before(section):
    assert 0 < count(block(section, "quasar")) <= count(block(section, "Guide"))


def test_commands_are_counted():
    assert count(["git add -A && git commit -m 'a; b' && git push", "cd x", "run > log 2>&1 &"]) == 5


def test_five_commands_make_the_first_submission(guide, quasar, home):
    """In a rehearsal; tests/forks has PyTorch, and runs the other lines of the document."""
    lines = block(SECTIONS[0], "quasar")
    done = guide(lines, "revealed")
    assert done.returncode == 0, done.stdout + done.stderr
    submission, = quasar("status", "--json", cwd=home / "miner").json["submissions"]
    assert count(lines) == 5 and submission["step"] == "revealed" and submission["target_sequence_length"] == 64
