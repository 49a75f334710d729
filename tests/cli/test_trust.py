"""What belongs to others decides nothing: planted workspaces, clones that bring one along, files that are none."""
import os
import subprocess

import pytest
from scripted_server import refuse
from test_init import certificate, git, git_server, upstream  # noqa: F401

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def asked(workspace, serve):
    """A validator that the workspace's settings name, and that must not be asked: it refuses whatever is."""
    server = serve(refuse(400, "So I was asked"))
    (workspace / ".env").write_text(f"VALIDATOR_API_URL={server.url}\n")
    (workspace / ".env").chmod(0o600)
    return server


def refused(done, *words):
    assert done.code == 3 and "-C" in done.err, done.err
    for word in words:
        assert str(word) in done.err
    return True


@as_root
@pytest.mark.parametrize("name", [".env", ".quasar"])
@pytest.mark.parametrize("below", ["", "below/it"])
def test_a_workspace_of_another_user_is_refused(quasar, hotkey, workspace, asked, name, below):
    (workspace / below).mkdir(parents=True, exist_ok=True)
    os.chown(workspace / name, 4242, 4242)
    assert refused(quasar("register", cwd=workspace / below), workspace / name, "uid 4242", "not to you or root")
    assert refused(quasar("init", "--github", cwd=workspace / below, env={"GITHUB_TOKEN": "s3cret"}), "uid 4242")
    assert refused(quasar("init", workspace, cwd="/"), "uid 4242")
    assert asked.requests == []


@as_root
def test_a_link_that_another_user_made_is_refused(quasar, hotkey, workspace, asked):
    (workspace / ".env").rename(workspace / "settings")
    (workspace / ".env").symlink_to("settings")
    assert "So I was asked" in quasar("register", cwd=workspace).err
    os.chown(workspace / ".env", 4242, 4242, follow_symlinks=False)
    assert refused(quasar("register", cwd=workspace), "uid 4242")


@pytest.mark.parametrize("name, mode", [(".env", 0o620), (".env", 0o602), (".quasar", 0o770), (".quasar", 0o1777)])
def test_what_others_can_write_is_refused(quasar, hotkey, workspace, asked, name, mode):
    (workspace / name).chmod(mode)
    assert refused(quasar("register", cwd=workspace), "is writable by other users", "chmod go-w", workspace / name)
    assert asked.requests == []
    (workspace / name).chmod(mode & 0o755)
    assert "So I was asked" in quasar("register", cwd=workspace).err


@as_root
def test_who_names_it_means_it(quasar, hotkey, workspace, asked):
    os.chown(workspace / ".env", 4242, 4242)
    assert "So I was asked" in quasar("register", "-C", workspace).err
    assert "So I was asked" in quasar("register", env={"QUASAR_WORKSPACE": str(workspace)}).err
    assert quasar("init", "-C", workspace).out.endswith("nothing changed.\n")


@pytest.mark.parametrize("name", [".env", ".quasar/state.db"])
def test_a_clone_that_brings_a_workspace_along_is_refused(quasar, hotkey, workspace, asked, tmp_path, name):
    """Everything in it is the user's own."""
    git("init", "-q", cwd=workspace)
    git("add", "--force", name, cwd=workspace)
    git("commit", "-qm", "bait", cwd=workspace)
    git("clone", "-q", workspace, "clone", cwd=tmp_path)
    clone = tmp_path / "clone"
    for path in (clone / ".env", clone / ".quasar"):
        if path.exists():
            path.chmod(0o700 if path.is_dir() else 0o600)
    (clone / "src").mkdir()
    if name == ".env":
        (clone / ".quasar").mkdir(mode=0o700)
    for place in (clone, clone / "src"):
        assert refused(quasar("register", cwd=place), "tracked by a git repository")
    assert asked.requests == []


def test_a_workspace_may_be_under_version_control(quasar, hotkey, workspace, asked):
    git("init", "-q", cwd=workspace)
    assert "So I was asked" in quasar("register", cwd=workspace).err


def test_another_clone_below_a_workspace_is_none_of_its(quasar, hotkey, workspace, asked):
    git("clone", "-q", workspace / "fork", "other", cwd=workspace)
    (workspace / "other" / "src").mkdir()
    for place in ("other", "other/src", "other/fla"):
        assert refused(quasar("register", cwd=workspace / place), workspace / "other", "not the fork")
    assert asked.requests == []
    git("worktree", "add", "-q", "vendored", cwd=workspace / "fork")
    for place in ("fork", "fork/fla/ops", "fork/vendored/fla"):
        done = quasar("register", cwd=workspace / place)
        assert "So I was asked" in done.err
        assert f"Signing for the validator {asked.url}, which {workspace}/.env names." in done.err


def test_whose_validator_is_said_only_where_it_is_not_plain(quasar, hotkey, workspace, asked):
    below = workspace / "fork"
    for done in (quasar("register", cwd=workspace),
                 quasar("register", "--api", asked.url, cwd=below),
                 quasar("register", cwd=below, env={"VALIDATOR_API_URL": asked.url}),
                 quasar("register", "-C", "..", cwd=below),
                 quasar("leaderboard", cwd=below)):
        assert "Signing for" not in done.err


# --- files that are none ------------------------------------------------------------------------------

def device(path):
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # as /dev/zero


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, pytest.param(device, marks=as_root)])
def test_settings_that_are_no_file_hang_nothing(quasar, workspace, make):
    (workspace / ".env").unlink()
    make(workspace / ".env")
    (workspace / ".env").chmod(0o600)
    done = quasar("leagues", cwd=workspace)
    assert done.code == 3 and ("not a regular file" in done.err or "a directory" in done.err)


def test_a_pipe_hangs_nothing_anywhere(quasar, workspace, home):
    pipe = workspace / "pipe"
    os.mkfifo(pipe)
    for args in (["bench", "--native", "--seq", "64", "--weights", pipe], ["import-state", pipe]):
        done = quasar(*args, cwd=workspace, env={"QUASAR_PASSPHRASE": "correct horse"})
        assert done.code == 3 and "not a regular file" in done.err
    hotkeys = home / ".bittensor/wallets/quasar_miner/hotkeys"
    hotkeys.mkdir(parents=True)
    os.mkfifo(hotkeys / "default")
    assert quasar("wallet", "show").code == 3
    for name in ("state.db", "lock", "turn"):
        (workspace / ".quasar" / name).unlink(missing_ok=True)
        os.mkfifo(workspace / ".quasar" / name)
    assert quasar("status", cwd=workspace).code == 3


@pytest.mark.parametrize("text", ["\ufeffDEVICE=cuda\n", "export\tDEVICE=cuda\n", "\ufeffexport \t DEVICE=cuda",
                                  "\ufeff# by an editor\r\nDEVICE=cuda\r\n"])
def test_settings_as_editors_and_shells_write_them(quasar, workspace, text):
    (workspace / ".env").write_text(text)
    (workspace / ".env").chmod(0o600)
    done = quasar("bench", "--op", "--seq", "64", cwd=workspace)
    assert done.code == 3 and "cuda" in done.err.lower() and ".env" not in done.err


# --- what programs see --------------------------------------------------------------------------------

@pytest.fixture
def with_torch(tmp_path):
    """The environment of a Python that takes this module for PyTorch."""
    def make(text):
        site = tmp_path / "site"
        (site / "torch-9.dist-info").mkdir(parents=True)
        (site / "torch-9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9\n")
        (site / "torch.py").write_text(text)
        return {"PYTHONPATH": str(site), "QUASAR_PYTHON": "/usr/bin/python3", "DEVICE": "cpu"}

    return make


def test_no_secret_reaches_the_forks_python(quasar, workspace, tmp_path, with_torch):
    seen = tmp_path / "seen"
    env = with_torch(f"import os\nopen({str(seen)!r}, 'w').write(repr(dict(os.environ)))\nraise SystemExit('seen')\n")
    with open(workspace / ".env", "a") as file:
        file.write("PYTORCH_ALLOC_CONF=a:b\nTRITON_API_KEY=hunter2\n")
    secrets = {name: "hunter2" for name in ("GITHUB_TOKEN", "WALLET_PASSWORD", "QUASAR_PASSPHRASE", "BT_PW__X",
                                            "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK")}
    done = quasar("bench", "--seq", "64", cwd=workspace, env={**secrets, **env, "TRITON_CACHE_DIR": "/t"})
    assert done.code == 3 and "SystemExit: seen" in done.err
    environment = eval(seen.read_text())
    assert "hunter2" not in seen.read_text()
    assert environment["PYTORCH_ALLOC_CONF"] == "a:b" and environment["TRITON_CACHE_DIR"] == "/t"
    assert {"PATH", "HOME", "PYTHONPATH", "LANG"} <= set(environment)


def test_a_python_that_closes_its_stdout_is_waited_for(quasar, workspace, with_torch):
    env = with_torch("import os, time\nos.close(1); os.close(2)\ntime.sleep(0.3)\nos._exit(7)\n")
    done = quasar("bench", "--seq", "64", cwd=workspace, env=env)
    assert done.code == 3 and "ended with status 7" in done.err
