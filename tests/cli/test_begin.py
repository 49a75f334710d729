"""quasar init in front of a newcomer: questions, networks, other people's repositories, and a Python for the fork."""
import shlex
import shutil
import subprocess
import zipfile

import pytest

from test_init import git, settings


@pytest.fixture
def person(terminal):
    """Answers the questions of init; the run, when it has ended."""

    def run(args, answers, env=None):
        person = terminal("init", *args, env={"TERM": "xterm", **(env or {})})
        for question, answer in answers:
            person.expect(question)
            person.send(answer + "\n")
        person.code = person.finish()
        return person

    return run


# --- questions -------------------------------------------------------------------------------------

def test_it_asks_for_what_it_is_not_told(person, tmp_path):
    done = person(["miner"], [("Network (finney|test|local) [local]: ", "mainnet"), ("Network", "finney"),
                              ("Name of your wallet [quasar_miner]: ", "rig"), ("URL of your fork", "gopher://x"),
                              ("not a URL that can be cloned", ""),
                              ("Sequence length", "many"), ("not a number of tokens", "1e6"),
                              ("Install PyTorch", "")])
    assert done.code == 0 and "Next: cd " in done.out
    assert settings(tmp_path / "miner") == {
        "VALIDATOR_API_URL": "https://quasar-validator-api.onrender.com", "SUBTENSOR_NETWORK": "finney",
        "WALLET_MINER_NAME": "rig", "TARGET_SEQUENCE_LENGTH": "1000000"}


def test_it_does_not_ask_for_what_it_knows(person, tmp_path):
    done = person(["miner"], [("Network", ""), ("URL of your fork", ""), ("Install PyTorch", "n")],
                  env={"WALLET_MINER_NAME": "rig", "TARGET_SEQUENCE_LENGTH": "4096"})
    assert done.code == 0 and "Sequence" not in done.out and "your wallet" not in done.out
    assert person(["miner"], []).out.strip().endswith("nothing changed.")  # it is one already


def test_who_gives_an_option_is_asked_nothing(person, tmp_path):
    """What is pasted behind the command would be taken for answers."""
    done = person(["miner", "--seq", "4096"], [])
    assert done.code == 0 and settings(tmp_path / "miner") == {"TARGET_SEQUENCE_LENGTH": "4096"}


@pytest.mark.parametrize("key, code", [("\x03", 130), ("\x04", 130)], ids=["ctrl-c", "end"])
def test_who_gives_up_leaves_nothing(terminal, tmp_path, key, code):
    person = terminal("init", "below/miner", env={"TERM": "xterm"})
    person.expect("Network")
    person.send(key)
    assert person.finish() == code and not (tmp_path / "below").exists()


def test_a_script_is_not_asked(quasar, tmp_path):
    assert quasar("init", "miner").code == 0
    assert settings(tmp_path / "miner") == {}


@pytest.mark.parametrize("network, expected", [
    ("finney", {"VALIDATOR_API_URL": "https://quasar-validator-api.onrender.com", "SUBTENSOR_NETWORK": "finney"}),
    ("test", {"VALIDATOR_API_URL": "https://quasar-validator-api.onrender.com", "SUBTENSOR_NETWORK": "test"}),
    ("local", {"VALIDATOR_API_URL": "http://localhost:8000"})])
def test_a_network_is_an_address_and_a_name(quasar, tmp_path, network, expected):
    assert quasar("init", "miner", "--network", network).code == 0
    assert settings(tmp_path / "miner") == expected


def test_a_network_at_another_address(quasar, tmp_path):
    assert quasar("init", "miner", "--network", "mainnet").code == 2
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
    assert quasar("init", "miner", "--network", "finney", "--api", "http://localhost:1").code == 0
    assert settings(tmp_path / "miner") == {"VALIDATOR_API_URL": "http://localhost:1", "SUBTENSOR_NETWORK": "finney"}


# --- nothing half-made -------------------------------------------------------------------------------

@pytest.fixture
def repository(tmp_path):
    """Somebody's repository, with a folder."""
    path = tmp_path / "theirs"
    (path / "folder").mkdir(parents=True)
    (path / "folder" / "file").write_text("x")
    git("init", "-q", cwd=path)
    git("add", "-A", cwd=path)
    git("commit", "-qm", "x", cwd=path)
    return path


@pytest.mark.parametrize("place", [".", "folder", "new", "new/deeper"])
def test_a_repository_is_no_place_for_a_workspace(quasar, repository, place):
    done = quasar("init", place, cwd=repository)
    assert done.code == 3 and f"lies in the git repository {repository}" in done.err and "~/miner" in done.err
    assert git("status", "--porcelain", "--ignored", cwd=repository) == ""
    assert not (repository / "new").exists()


def test_a_folder_that_the_repository_ignores_is_one(quasar, repository):
    (repository / ".git" / "info" / "exclude").write_text("/miner/\n")
    assert quasar("init", "miner", cwd=repository).code == 0
    assert quasar("init", "miner", cwd=repository).code == 0
    assert git("status", "--porcelain", cwd=repository) == ""


def test_the_fork_itself_may_be_one(quasar, repository):
    assert quasar("init", "--from", ".", cwd=repository).code == 0


@pytest.mark.parametrize("args, code", [(["--fork-url", "nowhere"], 3), (["--fork-url", "http://127.0.0.1:9/x"], 4),
                                        (["--venv"], 3)])
def test_what_fails_leaves_nothing(quasar, tmp_path, args, code):
    there = tmp_path / "there"
    there.mkdir()
    (there / "notes.txt").write_text("mine")
    without_python = {"PATH": str(tmp_path)}
    done = quasar("init", "below/miner", *args, env=without_python)
    assert done.code == code and done.err.count("\n") > 1  # what is wrong, and what to do
    assert quasar("init", there, *args, env=without_python).code == code
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "there"]
    assert [path.name for path in there.iterdir()] == ["notes.txt"]


def test_what_comes_next_can_be_pasted(quasar, hotkey, tmp_path):
    """Into a shell, whatever the directory is called; and a workspace without a hotkey needs one first."""
    done = quasar("init", "two words")
    assert done.out.endswith(f"Next: cd '{tmp_path}/two words' && quasar register\n")
    assert "&& quasar wallet new && quasar register\n" in quasar("init", "other", "--wallet", "nobody").out


def test_commands_that_are_suggested_can_be_pasted(quasar, hotkey, tmp_path):
    """Into a shell, whatever a directory is called."""
    odd = tmp_path / "it's mine"
    secrets = [odd / ".env", odd / ".quasar", odd / ".quasar" / "state.db"]

    def suggested(words, before):
        return words.partition(before)[2].splitlines()[0]

    def paste(command):
        return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True, cwd=tmp_path).stdout

    def open_to_others():
        for path in secrets:
            path.chmod(0o755)

    def modes():
        return [path.stat().st_mode & 0o777 for path in secrets]

    go = suggested(quasar("init", odd).out, "Next: ").partition(" && ")[0]
    assert paste(f"{go} && pwd") == f"{odd}\n"
    open_to_others()
    for line in quasar("status", cwd=odd).err.splitlines():
        if "fix with: " in line:
            paste(suggested(line, "fix with: "))
    assert modes() == [0o600, 0o700, 0o600]
    open_to_others()
    for check in quasar("doctor", "--json", "--timeout", "0.5", "--api", "http://127.0.0.1:9", cwd=odd).json["checks"]:
        if check["name"] == "permissions":
            paste(check["remedy"])
    assert modes() == [0o600, 0o700, 0o600]
    (odd / ".env").chmod(0o622)
    told = quasar("status", cwd=odd).err
    paste(suggested(told, "then run: ").partition(". If")[0])
    assert modes()[0] == 0o600 and shlex.split(suggested(told, "name the workspace: "))[:3] == ["quasar", "-C", str(odd)]
    git("remote", "remove", "origin", cwd=odd / "fork")
    paste(suggested(quasar("push", cwd=odd).err, "Add one with: "))
    assert git("remote", cwd=odd / "fork") == "origin"
    for where in (odd / "missing", odd / "fork"):
        done = quasar("reveal", "-C", where)
        assert done.code == 3 and shlex.split(suggested(done.err, " with: ")) == ["quasar", "init", str(where)]
    (odd / "fork/fla/layers/quasar.py").write_text("")
    git("commit", "-qam", "emptied", cwd=odd / "fork")
    done = quasar("export", odd / "fork")
    assert shlex.split(suggested(done.out, "Next: ")) == ["quasar", "verify", "--static", "--fork", str(odd / "fork")], done.err


def test_a_fork_without_a_commit_is_said_to_have_none(quasar, tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path / "empty"], check=True)
    done = quasar("init", "miner", "--from", "empty")
    assert done.code == 0 and "its fork has no commit yet.\n" in done.out


# --- --venv ----------------------------------------------------------------------------------------

@pytest.fixture
def wheels(tmp_path):
    """A folder with a wheel that is called torch, for pip to find and nothing else; as environment variables."""

    def make(source):
        folder = tmp_path / "wheels"
        folder.mkdir(exist_ok=True)
        with zipfile.ZipFile(folder / "torch-9.8.7-py3-none-any.whl", "w") as wheel:
            name = "torch-9.8.7.dist-info"
            wheel.writestr("torch/__init__.py", source)
            wheel.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 9.8.7\n")
            wheel.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{name}/RECORD", "")
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "PATH": "/usr/bin:/bin"}

    return make


def test_a_python_for_the_fork(quasar, tmp_path, wheels):
    """And one that is there already gets what it lacks; what cannot be imported is no PyTorch."""
    done = quasar("init", "miner", "--venv", "--json", env=wheels("__version__ = '9.8.7+x'"))
    assert done.code == 0 and done.json["torch"] == "9.8.7+x" and ".venv" in done.json["made"], done.err
    python = tmp_path / "miner" / ".venv" / "bin" / "python"
    assert subprocess.run([python, "-c", "import torch"]).returncode == 0
    for path in (tmp_path / "miner" / ".venv").glob("lib/*/site-packages/torch*"):
        shutil.rmtree(path)
    done = quasar("init", "miner", "--venv", env=wheels("raise ImportError('built for another machine')"))
    assert done.code == 3 and "built for another machine" in done.err
    assert python.exists()  # it was there before
    assert "fork" in [path.name for path in (tmp_path / "miner").iterdir()]


def test_an_installation_that_fails_is_taken_away(quasar, workspace, tmp_path):
    """With a Python whose environments have a pip that finds nothing."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python3").write_text("""#!/bin/sh
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "ERROR: No matching distribution found for torch" >&2\\nexit 1\\n' >"$3/bin/python"
chmod +x "$3/bin/python"
""")
    (tools / "python3").chmod(0o755)
    done = quasar("init", workspace, "--venv", env={"PATH": f"{tools}:/usr/bin:/bin"})
    assert done.code == 3 and "installing PyTorch failed: ERROR: No matching distribution" in done.err
    assert not (workspace / ".venv").exists() and (workspace / "fork").exists()
