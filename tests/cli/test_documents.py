"""Man pages, settings, installation: what is made from the command table works where it is used."""
import os
import re
import subprocess

import pytest

from conftest import QUASAR, ROOT


def test_tracked_documents_are_those_of_the_tables(quasar, tmp_path):
    """`make documents` writes them anew."""
    assert quasar("generate", "man", tmp_path).code == 0
    fresh = {page.name: page.read_text() for page in tmp_path.glob("*.1")}
    assert {page.name: page.read_text() for page in (ROOT / "man").iterdir()} == fresh
    assert (ROOT / ".env.example").read_text() == quasar("generate", "env").out


def test_a_setting_is_read_or_said_to_have_no_effect(quasar):
    table = ROOT / "lib/space/settings.c"
    sources = "".join(path.read_text() for folder in ("cmd", "lib") for path in (ROOT / folder).rglob("*.[ch]")
                      if path != table)
    lines = quasar("generate", "env").out.splitlines()
    settings = {match[1]: lines[i - 1] for i, line in enumerate(lines) if (match := re.match(r"#([A-Z_]+)=", line))}
    assert len(settings) == len(re.findall(r'^\t\{(?:NULL|".*?"), "[A-Z_]+"', table.read_text(), re.M))
    for name, explained in settings.items():
        assert ("has no effect" in explained) != (f'"{name}"' in sources), name


def test_man_pages_are_clean_and_one_for_each_command(quasar, tmp_path):
    assert quasar("generate", "man", tmp_path).code == 0
    pages = {page.stem for page in tmp_path.glob("*.1")}
    commands = re.findall(r"^  ([a-z-]+) {2,}", quasar("--help").out.split("options")[0], re.M)
    assert {"quasar", "quasar-wallet-new"} <= pages and {f"quasar-{name}" for name in commands} <= pages
    for page in tmp_path.glob("*.1"):
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", page], capture_output=True,
                              text=True, env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0 and done.stderr == "", page
        text = " ".join(re.sub(r".\x08", "", done.stdout).split())  # bold is struck over
        assert "EXIT STATUS" in text
        name = page.stem.removeprefix("quasar").removeprefix("-").replace("wallet-", "wallet ")
        explained = quasar("help", *name.split())
        assert explained.code == 0
        for example in re.findall(r"^  (\S.*)\n      ", explained.out.partition("\nexamples\n")[2], re.M):
            assert " ".join(example.split()) in text


def test_man_pages_go_to_a_folder_that_is_made(quasar, tmp_path):
    assert quasar("generate", "man", "new/man1").code == 0 and (tmp_path / "new/man1/quasar.1").is_file()
    (tmp_path / "new/man1").chmod(0o500)
    (tmp_path / "new/man1/quasar.1").unlink()
    done = quasar("generate", "man", "new/man1", bound=True)
    assert done.code == 3 and "cannot write new/man1/quasar.1: Permission denied" in done.err


def test_what_is_installed_is_where_it_belongs_and_uninstall_removes_it(tmp_path):
    # as the build was made: another spelling of the folder would build it anew under the other tests
    built = os.path.relpath(os.path.dirname(QUASAR), ROOT)

    def make(target):
        subprocess.run(["make", "-C", ROOT, target, f"BUILD={built}", f"DESTDIR={tmp_path}", "PREFIX=/usr",
                        *(["DEBUG=1"] if built.endswith("debug") else [])], capture_output=True, check=True)

    make("install")
    for path in ("bin/quasar", "share/man/man1/quasar-commit.1", "share/bash-completion/completions/quasar",
                 "share/zsh/site-functions/_quasar", "share/fish/vendor_completions.d/quasar.fish"):
        assert (tmp_path / "usr" / path).is_file()
    assert subprocess.run([tmp_path / "usr/bin/quasar", "--version"], capture_output=True).returncode == 0
    other = tmp_path / "usr/share/man/man1/another.1"
    other.touch()
    make("uninstall")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]


def test_every_command_explains_itself(quasar):
    for command in re.findall(r"^  ([a-z-]+) {2,}", quasar("--help").out.split("options")[0], re.M):
        done = quasar(command, "--help")
        assert done.code == 0 and f"quasar {command} - " in done.out
        assert "exit codes" in done.out and ("examples" in done.out or "commands" in done.out)


@pytest.mark.parametrize("variables,coloured", [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_only_on_a_terminal_that_wants_it(terminal, variables, coloured):
    run = terminal("leagues", "--help", env={"TERM": "xterm", **variables})
    assert run.finish() == 0
    assert ("\033[" in run.out) == coloured


def rooms_and_arrows():
    """From docs/architecture.md: each room, and the rooms that it uses."""
    rows = re.findall(r"^\| `(\w+)` \| ([`\w ]*)\|", (ROOT / "docs" / "architecture.md").read_text(), re.M)
    return {room: set(re.findall(r"\w+", uses)) for room, uses in rows}


def test_rooms_use_each_other_as_the_architecture_says():
    found = {}
    for source in [*(ROOT / "cmd").rglob("*.[ch]"), *(ROOT / "lib").rglob("*.[ch]"), *(ROOT / "kernels").rglob("*.h")]:
        parts = source.relative_to(ROOT).parts
        room = parts[parts[0] == "lib"]
        headers = re.findall(r'^#include "(\w+)/', source.read_text(), re.M)
        found.setdefault(room, set()).update({header for header in headers if room != "kernels"} - {room})
    assert rooms_and_arrows() == found


def test_rooms_close_no_circle():
    arrows = rooms_and_arrows()
    while arrows:
        lowest = {room for room, uses in arrows.items() if not uses & arrows.keys()}
        assert lowest, f"a circle among {sorted(arrows)}"
        arrows = {room: uses for room, uses in arrows.items() if room not in lowest}
