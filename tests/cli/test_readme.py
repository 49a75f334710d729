"""What the README and the pages beside it say and show."""
import os
import re
import socket
import subprocess

import pytest

from conftest import QUASAR, ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def first_round():
    """The commands of the README's first round."""
    section = (ROOT / "README.md").read_text().partition("## A first round\n")[2]
    return re.search(r"```sh\n(.*?)```", section, re.S).group(1)


def own_network():
    """Runs a command where nothing else listens, if this machine lets us make such a place."""
    command = ["bwrap", "--unshare-net", "--unshare-pid", "--die-with-parent", "--dev-bind", "/", "/", "--proc", "/proc"]
    if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL).returncode:
        socket.create_server(("127.0.0.1", 8000)).close()  # else the lines would talk to whoever listens there
        return []
    return command


@pytest.mark.long
def test_the_first_round_works_as_it_stands(environment, home):
    """Pasted as it is, and each line must succeed."""
    lines = first_round()
    done = subprocess.run([*own_network(), "bash", "-euo", "pipefail", "-c", lines], cwd=home, text=True,
                          env={**environment, "PATH": f"{os.path.dirname(QUASAR)}:{environment['PATH']}"},
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    status = done.stdout.rpartition("what next\n")[2].splitlines()[0].split()
    assert status[2] == "revealed" and status[-2] == "rank", done.stdout
    assert not (ROOT / "localnet.db").exists() and not (ROOT / ".quasar").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = page.read_text()
    for target in re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", text):
        path, _, section = "".join(target).partition("#")
        if path.startswith("https://"):
            continue
        other = (page.parent / path) if path else page
        assert other.exists(), path
        titles = re.findall(r"^#+ (.*)", other.read_text(), re.M) if section else []
        anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]  # as GitHub makes them
        assert not section or section in anchors, section


def test_the_picture_of_the_speed_is_drawn_from_its_figures():
    """`scripts/speed-picture >docs/speed.svg` draws it anew."""
    drawn = subprocess.run([ROOT / "scripts" / "speed-picture"], capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs" / "speed.svg").read_text() == drawn


def test_the_picture_of_the_demo_shows_commands_of_the_demo():
    """`scripts/demo-picture` records it anew."""
    picture = (ROOT / "docs" / "demo.svg").read_text().replace("&#160;", " ")
    demo = (ROOT / "scripts" / "demo").read_text()
    shown = re.findall(r"\$ quasar ([a-z-]+)", picture)
    assert shown and all(re.search(rf"\brun {name}\b", demo) for name in shown)
