"""quasar init: what it makes, what it keeps, and what stops it."""
import base64
import contextlib
import http.server
import os
import pathlib
import re
import signal
import socket
import ssl
import stat
import subprocess
import threading

import pytest
from conftest import QUASAR
from patience import LONG

SEQUENCE = "TARGET_SEQUENCE_LENGTH"
TARGETS = ["chunk.py", "chunk_intra_token_parallel.py", "forward_substitution.py", "fused_recurrent.py", "gate.py"]
IMPORTS = """import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from fla.ops.utils.index import prepare_chunk_indices
from fla.ops.quasar.forward_substitution import forward_substitution_kernel
from fla.utils import IS_AMD
from fla.utils import autocast_custom_bwd
from fla.utils import autocast_custom_fwd
from fla.utils import autotune_cache_kwargs
from fla.utils import check_shared_mem
from fla.utils import input_guard""".splitlines()


def git(*args, cwd):
    identity = ["-c", "user.name=you", "-c", "user.email=you@localhost", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *identity, *map(str, args)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def upstream(tmp_path):
    """A git repository to clone from, with two commits."""
    path = tmp_path / "upstream"
    path.mkdir()
    git("init", "-q", cwd=path)
    for text in ("one", "two"):
        (path / "file.txt").write_text(text)
        git("add", "-A", cwd=path)
        git("commit", "-qm", text, cwd=path)
    return path


def settings(directory):
    return dict(re.findall(r'^(\w+)="(.*)"$', (directory / ".env").read_text(), re.M))


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def snapshot(directory):
    """Every file with its content and time of change, but for SQLite's shared memory."""
    return {path: (path.read_bytes() if path.is_file() else None, path.lstat().st_mtime_ns)
            for path in sorted(directory.rglob("*")) if path.name != ".quasar"}


def is_workspace(directory):
    return (directory / ".quasar" / "state.db").exists()


# --- the common case -----------------------------------------------------------------------------------

def test_a_workspace_with_a_fork_of_its_own(quasar, tmp_path):
    done = quasar("init", "miner", "--seq", "1M", "--api", "http://localhost:1", "--wallet", 'my "best"',
                  "--hotkey", "$one", "--path", "~/keys", "--json")
    miner = tmp_path / "miner"
    assert done.code == 0 and done.err == ""
    assert done.json["workspace"] == str(miner) and done.json["changed"] is True
    assert done.json["made"] == ["fork", ".env", "ecosystem.config.js", "quasar-miner.service",
                                 "start-in-screen.sh", "inference.config.js", "quasar-inference.service",
                                 ".quasar/state.db"]
    assert done.json["fork"]["path"] == str(miner / "fork")
    assert mode(miner / ".env") == 0o600 and mode(miner / ".quasar") == 0o700
    assert mode(miner / ".quasar" / "state.db") == 0o600
    assert settings(miner) == {SEQUENCE: "1000000", "VALIDATOR_API_URL": "http://localhost:1",
                               "WALLET_MINER_NAME": r'my \"best\"', "WALLET_HOTKEY": r"\$one",
                               "BT_WALLET_PATH": "~/keys"}


def test_its_own_fork_is_what_validators_want(workspace, tmp_path):
    fork = workspace / "fork"
    for name in TARGETS:
        assert "fla.ops.gla" not in (fork / "fla/ops/quasar" / name).read_text()
    lines = (fork / "fla/ops/quasar/chunk.py").read_text().splitlines()
    assert [line for line in IMPORTS if line not in lines] == []
    assert list(fork.rglob("*.cu")) and (fork / "README.md").exists()
    for source in fork.rglob("*.py"):
        compile(source.read_text(), str(source), "exec")


def test_its_own_fork_can_be_cloned_and_pushed(workspace, tmp_path):
    fork = workspace / "fork"
    url, commit = git("remote", "get-url", "origin", cwd=fork), git("rev-parse", "HEAD", cwd=fork)
    assert git("status", "--porcelain", "--branch", cwd=fork) == "## main...origin/main"
    git("clone", "-q", "--depth", "1", url, "judged", cwd=tmp_path)
    git("checkout", "-q", commit, cwd=tmp_path / "judged")
    (fork / "fla/ops/quasar/gate.py").write_text("x = 1\n")
    git("commit", "-qam", "faster", cwd=fork)
    git("push", "-q", cwd=fork)
    assert git("ls-remote", url, "refs/heads/main", cwd=fork).split()[0] == git("rev-parse", "HEAD", cwd=fork)


def test_again_it_changes_nothing_and_says_so(quasar, workspace):
    before = snapshot(workspace)
    for _ in range(2):
        done = quasar("init", workspace)
        assert done.code == 0 and done.err == ""
        assert "nothing changed" in done.out
    done = quasar("init", "--json", cwd=workspace / "fork" / "fla")
    assert done.json["workspace"] == str(workspace) and done.json["changed"] is False
    assert snapshot(workspace) == before


def test_without_a_directory_it_means_this_one(quasar, tmp_path):
    place = tmp_path / "here"
    place.mkdir()
    assert quasar("init", cwd=place).code == 0
    assert is_workspace(place)


# --- what exists is kept -------------------------------------------------------------------------------

def test_files_that_exist_are_kept(quasar, tmp_path):
    miner = tmp_path / "miner"
    miner.mkdir()
    (miner / "notes.txt").write_text("mine")
    (miner / "ecosystem.config.js").write_text("mine")
    (miner / ".env").write_text("TARGET_SEQUENCE_LENGTH=300000\n")
    (miner / ".env").chmod(0o600)
    done = quasar("init", miner, "--seq", "400k", "--json")
    assert done.code == 0 and is_workspace(miner)
    assert done.json["kept"] == [".env", "ecosystem.config.js"]
    assert (miner / ".env").read_text() == "TARGET_SEQUENCE_LENGTH=300000\n"
    assert (miner / "ecosystem.config.js").read_text() == "mine"
    assert "kept" in done.err and '"400000"' in done.err


def test_a_missing_part_is_made_again(quasar, workspace):
    (workspace / "start-in-screen.sh").unlink()
    subprocess.run(["rm", "-rf", workspace / "fork"], check=True)
    done = quasar("init", workspace, "--json")
    assert done.json["made"] == ["fork", "start-in-screen.sh"]
    assert os.access(workspace / "start-in-screen.sh", os.X_OK)


def test_a_damaged_store_is_named_and_left_alone(quasar, workspace):
    store = workspace / ".quasar" / "state.db"
    store.write_bytes(b"garbage" * 100)
    done = quasar("init", workspace)
    assert done.code == 3 and "state.db" in done.err and "backup" in done.err
    assert store.read_bytes() == b"garbage" * 100


def test_a_half_made_workspace_is_none(quasar, tmp_path):
    (tmp_path / ".quasar").mkdir()
    place = tmp_path / "below"
    place.mkdir()
    assert quasar("init", cwd=place).code == 0
    assert is_workspace(place) and not is_workspace(tmp_path)


# --- other forks ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_cloning_a_local_repository(quasar, tmp_path, upstream, form):
    url = form.format(upstream)
    done = quasar("init", "miner", "--fork-url", url, "--json")
    fork = tmp_path / "miner" / "fork"
    assert done.code == 0 and done.json["fork"]["url"] == url
    assert git("rev-parse", "HEAD", cwd=fork) == git("rev-parse", "HEAD", cwd=upstream)
    assert git("rev-list", "--count", "HEAD", cwd=fork) == "2"
    assert git("status", "--porcelain", cwd=fork) == ""
    assert settings(tmp_path / "miner") == {"FORK_URL": url}
    assert quasar("init", "miner").out.endswith("nothing changed.\n")


def test_a_relative_path_is_kept_absolute(quasar, tmp_path, upstream):
    assert quasar("init", "miner", "--fork-url", "upstream").code == 0
    assert settings(tmp_path / "miner") == {"FORK_URL": str(upstream)}


def test_the_settings_name_the_fork_too(quasar, tmp_path, upstream):
    miner = tmp_path / "miner"
    miner.mkdir()
    (miner / ".env").write_text(f"FORK_URL={upstream}\nFORK_PATH=work/\n")
    (miner / ".env").chmod(0o600)
    assert quasar("init", "miner").code == 0
    assert (miner / "work" / "file.txt").read_text() == "two"


def test_an_existing_clone_is_used_where_it_is(quasar, tmp_path, upstream):
    git("clone", "-q", upstream, "mine", cwd=tmp_path)
    done = quasar("init", "miner", "--from", "mine", "--json")
    assert done.code == 0 and done.json["fork"]["path"] == str(tmp_path / "mine")
    assert settings(tmp_path / "miner") == {"FORK_PATH": str(tmp_path / "mine")}
    assert not (tmp_path / "miner" / "fork").exists()
    assert quasar("init", "miner").out.endswith("nothing changed.\n")


# --- what stops it -------------------------------------------------------------------------------------

@pytest.mark.parametrize("args, code, says", [
    (["--fork-url", "gopher://host/x"], 2, "not a URL that can be cloned"),
    (["--fork-url", "https://you:s3cret@github.com/x"], 2, "login"),
    (["--fork-url", "https://s3cret@github.com/x"], 2, "GITHUB_TOKEN"),
    (["--fork-url", "x", "--from", "y"], 2, "only one of"),
    (["--seq", "many"], 2, "whole number"),
    (["--seq", "0"], 2, "between"),
    (["--api", "localhost:8000"], 2, "http"),
    (["one", "two"], 2, "unexpected"),
    ([""], 2, "empty"),
    (["a\nb"], 2, "control character"),
    (["--from", "nowhere"], 3, "No such file"),
    (["--from", "."], 3, "repository"),
    (["--fork-url", "nowhere"], 3, "No such file"),
    (["--fork-url", "."], 3, "repository"),
    (["--fork-url", "http://127.0.0.1:9/x"], 4, "connect"),
])
def test_wrong_wishes(quasar, tmp_path, args, code, says):
    place = tmp_path / "place"
    place.mkdir()
    done = quasar("init", *args, cwd=place)
    assert done.code == code and says in done.err and "s3cret" not in done.err
    assert not is_workspace(place)
    assert quasar("init", "--json", *args, cwd=place).json["error"]["exit"] == code


def test_after_a_failure_it_starts_afresh(quasar, tmp_path, upstream):
    assert quasar("init", "miner", "--fork-url", "upstrem", "--seq", "5000").code == 3
    assert quasar("init", "miner", "--fork-url", "upstream", "--seq", "6000").code == 0
    assert settings(tmp_path / "miner") == {"FORK_URL": str(upstream), SEQUENCE: "6000"}
    assert sorted(path.name for path in (tmp_path / "miner").iterdir()) == [
        ".env", ".quasar", "ecosystem.config.js", "fork", "inference.config.js", "quasar-inference.service",
        "quasar-miner.service", "start-in-screen.sh"]


def test_a_file_in_the_way(quasar, tmp_path):
    (tmp_path / "file").write_text("")
    assert quasar("init", "file").code == 3
    done = quasar("init", "file/below")
    assert done.code == 3 and "Not a directory" in done.err
    (tmp_path / "miner").mkdir()
    (tmp_path / "miner" / ".quasar").write_text("")
    assert quasar("init", "miner").code == 3


def test_an_unwritable_directory(quasar, tmp_path):
    place = tmp_path / "locked"
    place.mkdir(mode=0o500)
    for directory in (place, place / "below"):
        done = quasar("init", directory, bound=True)
        assert done.code == 3 and "Permission denied" in done.err and str(directory) in done.err
    assert list(place.iterdir()) == []


def test_a_bad_env_file_is_named_by_line(quasar, tmp_path):
    (tmp_path / "miner").mkdir()
    (tmp_path / "miner" / ".env").write_text("A=1\nnonsense\n")
    done = quasar("init", "miner")
    assert done.code == 2 and ".env line 2" in done.err
    assert not is_workspace(tmp_path / "miner")


# --- remotes over the network --------------------------------------------------------------------------

@contextlib.contextmanager
def silent_server():
    """Accepts a connection and never says a word. Yields its URL and a function that waits for a client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients = []

        def wait():
            clients.append(listener.accept()[0])

        yield f"http://127.0.0.1:{listener.getsockname()[1]}/x.git", wait
        for client in clients:
            client.close()


@contextlib.contextmanager
def cloning(tmp_path, environment, url):
    """An init that is held up in its clone."""
    process = subprocess.Popen([QUASAR, "init", "miner", "--fork-url", url], cwd=tmp_path, text=True,
                               env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_interrupting_a_clone(quasar, tmp_path, environment):
    with silent_server() as (url, wait_for_client), cloning(tmp_path, environment, url) as process:
        wait_for_client()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130 and "interrupted" in err
    assert not is_workspace(tmp_path / "miner")
    assert quasar("init", "miner").code == 0
    assert not list((tmp_path / "miner").glob(".fork*"))


def test_a_killed_clone_leaves_nothing_that_counts(quasar, tmp_path, environment):
    with silent_server() as (url, wait_for_client), cloning(tmp_path, environment, url) as process:
        wait_for_client()
        process.kill()
        process.communicate()
        assert not is_workspace(tmp_path / "miner")
        assert quasar("init", "miner").code == 0
    assert not list((tmp_path / "miner").glob(".fork*"))


def test_two_at_once(quasar, tmp_path, environment):
    with silent_server() as (url, wait_for_client), cloning(tmp_path, environment, url) as process:
        wait_for_client()
        done = quasar("init", "miner")
        assert done.code == 3 and f"process {process.pid}" in done.err
    assert quasar("init", "miner").code == 0


class GitHandler(http.server.BaseHTTPRequestHandler):
    """Git's smart HTTP protocol for one repository, `server.repository`; with `server.token`, for those who
    show it. Notes every Authorization header in `server.shown`."""

    def serve(self, kind, prefix, *args):
        shown = self.headers.get("Authorization")
        self.server.shown.append(shown)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.path.startswith("/fork.git/"):
            return self.send_error(404)
        if self.server.token:
            login = base64.b64decode((shown or "Basic ").split()[-1] if shown else "").decode()
            if not login.endswith(":" + self.server.token):
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="git"')
                self.send_header("Content-Length", "0")
                return self.end_headers()
        pack = subprocess.run(["git", "upload-pack", "--stateless-rpc", *args, self.server.repository], input=body,
                              capture_output=True, check=True).stdout
        self.send_response(200)
        self.send_header("Content-Type", f"application/x-git-upload-pack-{kind}")
        self.send_header("Content-Length", str(len(prefix + pack)))
        self.end_headers()
        self.wfile.write(prefix + pack)

    def do_GET(self):
        self.serve("advertisement", b"001e# service=git-upload-pack\n0000", "--advertise-refs")

    def do_POST(self):
        self.serve("result", b"")

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def git_server(repository, token=None, certificate=None):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), GitHandler) as server:
        server.repository, server.token, server.shown = repository, token, []
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        server.url = f"{'https' if certificate else 'http'}://localhost:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A self-signed certificate for localhost, with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", path, "-out",
                    str(path) + ".crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + pathlib.Path(str(path) + ".crt").read_text())
    return path


def everything_in(directory):
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


def test_a_private_fork_over_https(quasar, tmp_path, upstream, certificate):
    with git_server(upstream, "s3cret", certificate) as server:
        trusted = {"GITHUB_TOKEN": "s3cret", "SSL_CERT_FILE": f"{certificate}.crt", "GITHUB_API_URL": f"{server.url}/api/v3"}
        done = quasar("init", "miner", "--fork-url", f"{server.url}/fork.git", "--json", env=trusted)
        assert done.code == 0, done.err
        assert done.json["fork"]["url"] == f"{server.url}/fork.git"
        assert (tmp_path / "miner" / "fork" / "file.txt").read_text() == "two"
        assert b"s3cret" not in everything_in(tmp_path / "miner")
        assert server.shown[0] is None  # shown only when asked for

        refused = {**trusted, "GITHUB_TOKEN": "wr0ng"}
        done = quasar("init", "other", "--fork-url", f"{server.url}/fork.git", env=refused)
        assert done.code == 5 and "token" in done.err and "wr0ng" not in done.err
        done = quasar("init", "other", "--fork-url", f"{server.url}/fork.git",
                      env={"SSL_CERT_FILE": f"{certificate}.crt"})
        assert done.code == 5 and "private" in done.err and "GITHUB_TOKEN" in done.err
        done = quasar("init", "other", "--fork-url", f"{server.url}/none.git", env=trusted)
        assert done.code == 5 and "404" in done.err
        assert not is_workspace(tmp_path / "other")


@pytest.mark.parametrize("api", [None, "https://localhost", "https://localhost.example", "http://localhost:{port}"])
def test_the_token_is_shown_to_github_alone(quasar, tmp_path, upstream, certificate, api):
    with git_server(upstream, "s3cret", certificate) as server:
        env = {"GITHUB_TOKEN": "s3cret", "SSL_CERT_FILE": f"{certificate}.crt"}
        if api:
            env["GITHUB_API_URL"] = api.format(port=server.server_port)
        done = quasar("init", "miner", "--fork-url", f"{server.url}/fork.git", env=env)
        assert done.code == 5 and "the token is sent only to GitHub at" in done.err and "s3cret" not in done.err
        assert set(server.shown) == {None}


def test_an_untrusted_certificate_is_refused(quasar, tmp_path, upstream, certificate):
    with git_server(upstream, "s3cret", certificate) as server:
        done = quasar("init", "miner", "--fork-url", f"{server.url}/fork.git", env={"GITHUB_TOKEN": "s3cret"})
        assert done.code == 4 and "certificate" in done.err
        assert server.shown == [] and not is_workspace(tmp_path / "miner")


def test_the_token_is_not_sent_in_the_clear(quasar, tmp_path, upstream):
    with git_server(upstream, "s3cret") as server:
        done = quasar("init", "miner", "--fork-url", f"{server.url}/fork.git", env={"GITHUB_TOKEN": "s3cret"})
        assert done.code == 5 and set(server.shown) == {None}


def test_a_public_fork_over_http(quasar, tmp_path, upstream):
    with git_server(upstream) as server:
        assert quasar("init", "miner", "--fork-url", f"{server.url}/fork.git").code == 0
        assert set(server.shown) == {None}


class Redirect(GitHandler):
    """Sends everybody on to `server.target`."""

    def do_GET(self):
        self.server.shown.append(self.headers.get("Authorization"))
        self.send_response(302)
        self.send_header("Location", self.server.target + self.path)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_the_token_follows_no_redirect(quasar, upstream, certificate):
    """Neither to another host, nor to the same one without encryption."""
    with git_server(upstream, "s3cret", certificate) as server, git_server(upstream, "s3cret") as target:
        server.RequestHandlerClass = Redirect
        for server.target in (target.url, target.url.replace("localhost", "127.0.0.1")):
            env = {"GITHUB_TOKEN": "s3cret", "SSL_CERT_FILE": f"{certificate}.crt", "GITHUB_API_URL": server.url}
            done = quasar("init", "miner", "--fork-url", f"{server.url}/fork.git", env=env)
            assert done.code == 4 and "redirect" in done.err
        assert target.shown == [] and set(server.shown) == {None}


def test_a_redirect_to_another_host_is_not_followed(quasar, tmp_path, upstream):
    with git_server(upstream) as target, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Redirect) as server:
        server.shown, server.target = [], target.url.replace("localhost", "127.0.0.1")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        done = quasar("init", "miner", "--fork-url", f"http://localhost:{server.server_port}/fork.git")
        server.shutdown()
        thread.join()
        assert done.code == 4 and "redirect" in done.err and target.shown == []
