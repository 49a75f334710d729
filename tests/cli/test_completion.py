"""Completion: what quasar says that a word may become, and that each shell asks for it and types it."""
import os
import shutil
import subprocess

import pytest

from conftest import QUASAR, ROOT
from terminal import Terminal


@pytest.fixture
def offers(quasar):
    """What is offered for the last of these words; a dictionary of words and their meanings."""

    def ask(*words, **options):
        done = quasar("__complete", *words, **options)
        assert done.code == 0 and done.err == ""
        return {word: meaning for word, _, meaning in (line.partition("\t") for line in done.out.splitlines())}

    return ask


@pytest.fixture
def wallets(quasar):
    """The addresses of some hotkeys, by the names of wallet and hotkey."""
    names = [("alice", "default"), ("alice", "second"), ("alba", "default"), ("my wallet", "default")]
    return {(wallet, hotkey): quasar("wallet", "new", "--wallet", wallet, "--hotkey", hotkey, "--json").json["address"]
            for wallet, hotkey in names}


# --- what is offered -----------------------------------------------------------------------------------

def test_commands_and_those_below_them(offers):
    assert list(offers("lea")) == ["leagues", "leaderboard"]
    assert list(offers("wallet", "")) == ["new", "import", "list", "show", "sign", "verify"]
    assert offers("-q", "-C", "/", "stat") == offers("stat") == {
        "status": "show where each submission stands: step, blocks left, rank"}
    assert not any(word[0] != "-" for word in offers("nonsense", "")) and offers("wallet", "nonsense", "n") == {}


def test_commands_behind_help(offers):
    assert list(offers("help", "wal")) == ["wallet"]
    assert list(offers("help", "wallet", "")) == list(offers("wallet", ""))
    assert not set(offers("help", "wallet", "new", "")) & {"new", "wallet"}


def test_options_where_a_word_begins_like_one_or_nothing_else_may_stand(offers):
    assert list(offers("commit", "--no")) == ["--no-verify"]
    assert {"--json", "--wait", "--workspace"} <= set(offers("reveal", "-"))
    assert "--watch" in offers("status", "") and "--json" not in offers("wallet", "")
    assert offers("reveal", "--", "--") == {}


def test_values_that_an_option_is_limited_to(offers):
    assert {"upstream", "causal"} <= set(offers("verify", "--semantics", ""))
    assert list(offers("wallet", "new", "--crypto=e")) == ["--crypto=ed25519"]
    assert "causal,identity" in offers("bench", "--semantics", "causal,id")
    assert {"quasar", "quasar-backward", "linear", "linear-backward", "flash", "flash-backward"} == set(
        offers("bench", "--op", ""))


def test_wallets_and_hotkeys(offers, wallets, tmp_path):
    assert list(offers("wallet", "show", "--wallet", "")) == ["alba", "alice", "my wallet"]
    assert list(offers("init", "--wallet", "ali")) == ["alice"]
    assert offers("commit", "--wallet", "alice", "--hotkey", "") == {
        "default": wallets["alice", "default"], "second": wallets["alice", "second"]}
    assert list(offers("commit", "--hotkey=s", env={"WALLET_MINER_NAME": "alice"})) == ["--hotkey=second"]
    assert offers("commit", "--hotkey", "") == offers("commit", "--path", tmp_path, "--wallet", "") == {}


def test_the_workspace_that_is_named_says_whose_hotkeys(offers, wallets, workspace, tmp_path):
    (workspace / ".env").write_text("WALLET_MINER_NAME=alice\n")
    assert "second" in offers("-C", workspace, "commit", "--hotkey", "")
    assert "second" in offers("commit", "--hotkey", "", cwd=workspace)
    assert offers("commit", "--hotkey", "", cwd=tmp_path) == {}


def test_names_that_would_command_the_terminal_are_left_out(offers, quasar, home):
    for name in ("evil\x1b[2J", "two\nlines", "back\u202ewards", ":files"):
        assert quasar("wallet", "new", "--wallet", name).code == 0
    assert offers("wallet", "show", "--wallet", "") == {}


def test_devices(offers):
    assert {"auto", "cpu"} <= set(offers("verify", "--device", ""))
    assert list(offers("bench", "--device=cp")) == ["--device=cpu"]
    assert list(offers("validate", "--device", "cpu,au")) == ["cpu,auto"]
    gpus = [path for path in os.listdir("/dev") if path.removeprefix("nvidia").isdigit()]
    assert len([name for name in offers("bench", "--device", "cuda:")]) == len(gpus)


def test_commitments_that_wait_for_their_reveal(offers, quasar, hotkey, localnet, workspace):
    (workspace / ".env").write_text(f"VALIDATOR_API_URL={localnet.url}\nTARGET_SEQUENCE_LENGTH=64\n")
    for command in (["register"], ["bench", "--native", "--budget", "1"], ["commit"]):
        assert quasar(*command, cwd=workspace).code == 0
    (id, meaning), = offers("reveal", "", cwd=workspace).items()
    assert id == "1" and meaning.startswith("64 tokens, commit ")
    assert offers("-C", workspace, "reveal", "1") == {id: meaning} and "1" not in offers("reveal", "")


def test_files_and_directories_are_the_shells_to_find(offers):
    for words in (["-C", ""], ["init", ""], ["init", "--path=/t"], ["generate", "man", ""], ["bench", "--fork", ""]):
        assert list(offers(*words)) == [":directories"], words
    for words in (["export-state", ""], ["localnet", "--db", ""], ["verify", "--python=/u"]):
        assert list(offers(*words)) == [":files"], words
    assert {"bash", "zsh", "fish", "man", "env"} == set(offers("generate", ""))
    assert not {"man", ":directories"} & set(offers("generate", "bash", ""))


def test_each_option_of_each_command_can_be_asked_for(offers):
    for command in [[name] for name in offers("")] + [["wallet", name] for name in offers("wallet", "")]:
        for option in offers(*command, "--"):
            offers(*command, option, "")


# --- in the shells -------------------------------------------------------------------------------------

@pytest.fixture
def shell(request, environment, home, tmp_path):
    """A shell on a terminal, in which quasar is completed."""
    name = request.param
    program = shutil.which(name)
    if not program:
        pytest.skip(f"{name} is not installed")
    for folder in ("one folder", "other"):
        (home / "places" / folder).mkdir(parents=True)
    env = {**environment, "PATH": f"{os.path.dirname(QUASAR)}:{environment['PATH']}", "TERM": "vt100"}
    args = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}[name]
    start = {"zsh": "autoload -U compinit; compinit -D -u; "}.get(name, "")
    terminal = Terminal(program, args, home, env)
    terminal.send(f"{start}source {ROOT}/completions/quasar.{name}; echo star''ted\r")
    terminal.expect("started")
    yield terminal
    terminal.send("\x03\x04")
    terminal.close()


@pytest.mark.parametrize("shell", ["bash", "zsh"], indirect=True)
def test_tab_types_the_word_and_the_line_runs(shell, wallets):
    """Each line is completed to one that works."""
    shell.send("quasar help wal\tne\t\r")
    shell.expect("quasar wallet new - ")
    shell.send("quasar wallet show --wallet ali\t --hotkey=sec\t\r")
    shell.expect(wallets["alice", "second"])
    shell.send("quasar wallet show --wallet my\t\r")
    shell.expect(wallets["my wallet", "default"])
    shell.send("quasar wallet list --path pla\tone\t; echo co''de $?\r")
    shell.expect("code 0")
    shell.send("quasar -C plac\tot\t leag\t | head -n 1\r")
    shell.expect("league")


def test_fish_gets_the_words_with_their_meanings(environment, wallets, home):
    if not shutil.which("fish"):
        pytest.skip("fish is not installed")
    (home / "places" / "one").mkdir(parents=True)

    def complete(line):
        done = subprocess.run(["fish", "--no-config", "-c", f"source {ROOT}/completions/quasar.fish; complete -C '{line}'"],
                              env={**environment, "PATH": f"{os.path.dirname(QUASAR)}:{environment['PATH']}"},
                              cwd=home, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert complete("quasar help wallet ne") == ["new\tcreate a hotkey and show its phrase once"]
    assert complete("quasar wallet show --wallet al") == ["alba", "alice"]
    assert complete("quasar wallet show --wallet alice --hotkey=s") == [f"--hotkey=second\t{wallets['alice', 'second']}"]
    assert [line.partition("\t")[0] for line in complete("quasar -C pla")] == ["places/"]
    assert [line.partition("\t")[0] for line in complete("quasar init --path=places/o")] == ["--path=places/one/"]


@pytest.mark.parametrize("shell", ["bash"], indirect=True)
def test_bash_completes_behind_what_it_splits_at(shell):
    """It takes "--device=cpu" for three words."""
    shell.send("quasar leagues --wor\t=plac\tot\t --js\t | head -n 1; echo co''de $?\r")
    shell.expect("code 0")
    shell.send("quasar __complete validate --device cpu,au\t\r")
    shell.expect("auto")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_finds_nothing_wrong_with_it(quasar, shell, tmp_path):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / f"quasar.{shell}"
    script.write_text(quasar("generate", shell).out)
    assert script.read_text() == (ROOT / "completions" / script.name).read_text()
    done = subprocess.run([shell, "-n", script], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
