"""quasar push: what is committed, what is refused, and what the remote says."""
import contextlib
import ctypes
import http.server
import os
import socket
import subprocess
import threading

import pytest


def git(*args, cwd):
    identity = ["-c", "user.name=you", "-c", "user.email=you@localhost"]
    done = subprocess.run(["git", *identity, *map(str, args)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def fork(workspace):
    return workspace / "fork"


@pytest.fixture
def push(quasar, workspace):
    return lambda *args, **options: quasar("push", *args, cwd=workspace, **options)


def remote_head(fork):
    return git("ls-remote", git("remote", "get-url", "origin", cwd=fork), "refs/heads/main", cwd=fork).split()[0]


def test_changes_are_committed_and_pushed(push, fork):
    (fork / "new file.py").write_text("x = 1\n")
    (fork / "README.md").unlink()
    done = push("-m", "Faster gate", "--json")
    assert done.code == 0, done.err
    head = git("rev-parse", "HEAD", cwd=fork)
    assert done.json == {"committed": True, "pushed": True, "commit": head, "branch": "main",
                         "url": git("remote", "get-url", "origin", cwd=fork)}
    assert remote_head(fork) == head and git("log", "-1", "--format=%s", cwd=fork) == "Faster gate"
    assert git("status", "--porcelain", "--branch", cwd=fork) == "## main...origin/main"
    assert git("show", "--format=", "--name-status", cwd=fork) == "D\tREADME.md\nA\tnew file.py"
    git("fsck", "--strict", cwd=fork)


def test_the_message_names_the_change(push, fork):
    (fork / "one.py").write_text("")
    assert push().code == 0 and git("log", "-1", "--format=%s", cwd=fork) == "Update one.py"
    (fork / "folder").mkdir()
    (fork / "folder" / "two.py").write_text("")
    (fork / "folder" / "three.py").write_text("")
    assert push().code == 0 and git("log", "-1", "--format=%s", cwd=fork) == "Update 2 files"


def test_commits_made_with_git_are_pushed(push, fork):
    git("commit", "-qm", "mine", "--allow-empty", cwd=fork)
    done = push("--json")
    assert done.code == 0 and not done.json["committed"] and done.json["pushed"]
    assert remote_head(fork) == git("rev-parse", "HEAD", cwd=fork)


def test_nothing_to_push_says_so(push, fork):
    head = git("rev-parse", "HEAD", cwd=fork)
    done = push()
    assert done.code == 0 and done.out.startswith("Nothing to push") and head[:12] in done.out
    assert push("--json").json["pushed"] is False and git("rev-parse", "HEAD", cwd=fork) == head


def test_a_new_branch_is_pushed_under_its_name(push, fork):
    git("switch", "-qc", "faster", cwd=fork)
    (fork / "x.py").write_text("")
    assert push("--json").json["branch"] == "faster"
    assert "refs/heads/faster" in git("ls-remote", "origin", cwd=fork)


def test_the_author_is_who_git_knows(push, fork):
    git("config", "user.name", "Ada", cwd=fork)
    git("config", "user.email", "ada@localhost", cwd=fork)
    (fork / "x.py").write_text("")
    assert push().code == 0 and git("log", "-1", "--format=%an <%ae>", cwd=fork) == "Ada <ada@localhost>"


# --- what must not be published ------------------------------------------------------------------------

TOKEN = "tok3n-of-this-test"


@pytest.mark.parametrize("name, content", [
    (".env", "A=1"), ("deep/.env.local", "A=1"), ("wallets/w/hotkeys/default", "{}"), ("id_ed25519", "x"),
    (".quasar/state.db", "x"), ("notes.txt", "-----BEGIN OPENSSH PRIVATE KEY-----\n"), ("key.json", '{"secretSeed": "0x12"}'),
    ("key", "$NACL\x01\x02"), ("config.yaml", "token: ghp_" + "a1" * 18), ("notes.py", f"# {TOKEN}\n"),
])
def test_a_secret_stops_it_before_the_commit(push, fork, name, content):
    path = fork / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    (fork / "x.py").write_text("")
    before, index = git("rev-parse", "HEAD", cwd=fork), git("ls-files", cwd=fork)
    done = push(env={"GITHUB_TOKEN": TOKEN})
    assert done.code == 1 and name in done.err and ".gitignore" in done.err and TOKEN not in done.err
    assert git("rev-parse", "HEAD", cwd=fork) == before == remote_head(fork) and git("ls-files", cwd=fork) == index
    assert git("hash-object", path, cwd=fork) not in git("cat-file", "--batch-all-objects", "--batch-check", cwd=fork)


@pytest.mark.parametrize("told", ["--assume-unchanged", "--skip-worktree"])
def test_what_is_committed_is_what_is_looked_at(push, fork, told):
    """Git has taken the file already, and was told not to look at it again."""
    (fork / "notes.py").write_text(f"# {TOKEN}\n")
    git("add", "notes.py", cwd=fork)
    git("update-index", told, "notes.py", cwd=fork)
    (fork / "notes.py").write_text("# nothing\n")
    (fork / "x.py").write_text("")
    before = git("rev-parse", "HEAD", cwd=fork)
    done = push(env={"GITHUB_TOKEN": TOKEN})
    assert done.code == 1 and "notes.py looks like a file with one of your secret settings" in done.err
    assert git("rev-parse", "HEAD", cwd=fork) == before == remote_head(fork)


IN_CLOSE_NOWRITE = 0x10


@contextlib.contextmanager
def replaced_once_read(path, content):
    """As soon as a program has read the file, it holds something else."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init()
    assert libc.inotify_add_watch(watch, os.fsencode(path), IN_CLOSE_NOWRITE) >= 0
    (other := path.parent / ".git" / "other").write_text(content)

    def replace():
        os.read(watch, 4096)
        other.replace(path)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        os.close(watch)


def test_a_secret_that_comes_while_files_are_looked_at_stays_here(push, fork):
    """It is seen, or what was there before it is committed."""
    harmless = "# " + "-" * len(TOKEN)  # git itself notices another size
    (fork / "a.py").write_text(harmless + "\n")
    for name in range(16):  # they are looked at after it
        (fork / f"b{name}.py").write_text("#" * (4 << 20))
    with replaced_once_read(fork / "a.py", f"# {TOKEN}\n"):
        done = push(env={"GITHUB_TOKEN": TOKEN})
    assert TOKEN in (fork / "a.py").read_text() and TOKEN not in git("log", "--patch", cwd=fork)
    if done.code == 0:
        assert git("show", "HEAD:a.py", cwd=fork) == harmless
        done = push(env={"GITHUB_TOKEN": TOKEN})
    assert done.code == 1 and "a.py looks like" in done.err


def test_a_repository_in_the_fork_is_not_of_it(push, fork):
    git("init", "-q", "other", cwd=fork)
    git("commit", "-qm", "theirs", "--allow-empty", cwd=fork / "other")
    done = push()
    assert done.code == 0 and done.out.startswith("Nothing to push"), done.err
    (fork / "x.py").write_text("")
    assert push().code == 0 and git("show", "--format=", "--name-only", cwd=fork) == "x.py"


def test_a_file_too_large_for_github_stops_it_before_the_commit(push, fork):
    with open(fork / "model.bin", "wb") as file:
        file.truncate((100 << 20) + 1)
    done = push()
    assert done.code == 1 and "model.bin is larger than 100 MiB" in done.err and ".gitignore" in done.err
    assert git("log", "--format=%s", "origin/main..HEAD", cwd=fork) == ""
    (fork / ".gitignore").write_text("*.bin\n")
    assert push().code == 0


def test_a_commit_has_to_say_something(push, fork):
    (fork / "x.py").write_text("")
    assert push("-m", "").code == 2 and git("status", "--porcelain", cwd=fork) == "?? x.py"


def test_ignored_files_and_examples_pass(push, fork):
    (fork / ".gitignore").write_text(".env\n")
    (fork / ".env").write_text("SECRET=1")
    (fork / ".env.example").write_text("#SECRET=")
    (fork / "tokens.py").write_text("# tokens begin with ghp_ or github_pat_\n")
    assert push().code == 0
    assert set(git("show", "--format=", "--name-only", cwd=fork).split()) == {".gitignore", ".env.example", "tokens.py"}


def test_a_secret_that_is_deleted_may_go(push, fork):
    (fork / ".env").write_text("A=1")
    git("add", ".env", cwd=fork)
    git("commit", "-qm", "mistake", cwd=fork)
    (fork / ".env").unlink()
    assert push().code == 0


# --- what stops it -------------------------------------------------------------------------------------

def test_it_never_forces(push, fork, tmp_path):
    git("clone", "-q", git("remote", "get-url", "origin", cwd=fork), "other", cwd=tmp_path)
    git("commit", "-qm", "theirs", "--allow-empty", cwd=tmp_path / "other")
    git("push", "-q", cwd=tmp_path / "other")
    theirs = remote_head(fork)
    (fork / "x.py").write_text("")
    done = push()
    assert done.code == 5 and "pull --rebase" in done.err and "the push failed" in done.err
    assert remote_head(fork) == theirs
    git("pull", "-q", "--rebase", cwd=fork)
    assert push().code == 0


def test_a_detached_head_and_a_merge_are_refused(push, fork):
    git("checkout", "-q", "--detach", cwd=fork)
    done = push()
    assert done.code == 3 and "not on a branch" in done.err
    git("switch", "-q", "main", cwd=fork)
    (fork / ".git" / "MERGE_HEAD").write_text(git("rev-parse", "HEAD", cwd=fork) + "\n")
    assert push().code == 3


def test_no_remote_no_fork_no_workspace(push, quasar, fork):
    git("remote", "remove", "origin", cwd=fork)
    assert "remote add origin" in push().err
    subprocess.run(["rm", "-rf", fork], check=True)
    assert push().code == 3
    assert quasar("push").code == 3


def test_a_login_in_the_address_is_refused_and_not_shown(push, fork):
    git("remote", "set-url", "origin", "https://you:s3cret@localhost:1/x", cwd=fork)
    (fork / "x.py").write_text("")
    done = push()
    assert done.code == 2 and "GITHUB_TOKEN" in done.err and "s3cret" not in done.err


def test_another_address_for_validators_is_pointed_out(push, workspace):
    with open(workspace / ".env", "a") as settings:
        settings.write('FORK_URL="https://example.org/fork"\n')
    done = push()
    assert done.code == 0 and "https://example.org/fork" in done.err


def test_a_silent_remote_is_given_up(push, fork):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        git("remote", "set-url", "origin", f"http://127.0.0.1:{listener.getsockname()[1]}/x.git", cwd=fork)
        done = push("--timeout", "0.5")
    assert done.code == 4 and "0.5 s" in done.err


# --- over http -----------------------------------------------------------------------------------------

class GitHandler(http.server.BaseHTTPRequestHandler):
    """Git's own HTTP program, behind a login where `server.closed`. Notes every login in `server.shown`."""

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def serve(self):
        self.server.shown.append(self.headers.get("Authorization"))
        body = self.read_body()
        if self.server.closed:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            return self.end_headers()
        path, _, query = self.path.partition("?")
        done = subprocess.run(["git", "http-backend"], input=body, capture_output=True, check=True, env={
            **os.environ, "GIT_PROJECT_ROOT": str(self.server.root), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "you",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body))})
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = serve

    def log_message(self, *args):
        pass


@contextlib.contextmanager
def git_server(root, closed=False):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), GitHandler) as server:
        server.root, server.closed, server.shown = root, closed, []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_over_http(push, fork, workspace):
    with git_server(workspace / ".quasar") as server:
        git("remote", "set-url", "origin", f"{server.url}/origin.git", cwd=fork)
        (fork / "x.py").write_text("")
        done = push(env={"GITHUB_TOKEN": TOKEN})
        assert done.code == 0, done.err
        assert remote_head(fork) == git("rev-parse", "HEAD", cwd=fork)
        assert set(server.shown) == {None}  # not shown in the clear


def test_without_access_it_says_what_is_needed(push, fork, workspace):
    with git_server(workspace / ".quasar", closed=True) as server:
        git("remote", "set-url", "origin", f"{server.url}/origin.git", cwd=fork)
        done = push(env={"GITHUB_TOKEN": TOKEN})
        assert done.code == 5 and "only over https" in done.err and TOKEN not in done.err
        assert "GITHUB_TOKEN" in push().err
        assert set(server.shown) == {None}


def test_what_the_remote_refuses_is_told_in_its_words(push, fork, workspace):
    hook = workspace / ".quasar/origin.git/hooks/pre-receive"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    with git_server(workspace / ".quasar") as server:
        git("remote", "set-url", "origin", f"{server.url}/origin.git", cwd=fork)
        (fork / "x.py").write_text("")
        done = push()
    assert done.code == 5 and "hook declined" in done.err
