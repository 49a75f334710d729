"""quasar init --github: the fork that GitHub makes, against a server that answers like it."""
import pytest
from scripted_server import redirect, reply
from test_init import git, is_workspace, settings, upstream  # noqa: F401

TOKEN = "s3cret-token"


def accepted(url):
    return reply(202, {"full_name": "you/flash-linear-attention", "clone_url": str(url), "default_branch": "main",
                       "owner": {"login": "you"}})


@pytest.fixture
def init(quasar):
    def run(server, *args, token=TOKEN):
        env = {"GITHUB_API_URL": server.url, "GITHUB_TOKEN": token}
        done = quasar("init", "miner", "--github", *args, env=env)
        assert TOKEN not in done.out + done.err
        return done

    return run


def test_the_fork_is_made_awaited_and_cloned(init, serve, tmp_path, upstream):
    server = serve(accepted(upstream), reply(404, {"message": "Not Found"}), reply(409, {}), reply(200, {}))
    done = init(server, "--json")
    assert done.code == 0, done.err
    assert [(request.method, request.path) for request in server.requests] == [
        ("POST", "/repos/troy12x/flash-linear-attention/forks"),
        *[("GET", "/repos/you/flash-linear-attention/branches/main")] * 3]
    assert server.requests[0].json == {"name": "flash-linear-attention"}
    assert all(request.headers["Authorization"] == f"Bearer {TOKEN}" for request in server.requests)
    miner = tmp_path / "miner"
    assert git("rev-parse", "HEAD", cwd=miner / "fork") == git("rev-parse", "HEAD", cwd=upstream)
    assert settings(miner) == {"FORK_URL": str(upstream), "GITHUB_USERNAME": "you"}
    assert TOKEN not in (miner / "fork/.git/config").read_text()
    assert init(server).out.endswith("nothing changed.\n") and len(server.requests) == 4


def test_a_passing_fault_is_retried(init, serve, upstream):
    server = serve(reply(502, b"<html>", content_type="text/html"), accepted(upstream), reply(200, {}))
    assert init(server).code == 0 and len(server.requests) == 3


@pytest.mark.parametrize("step, code, says", [
    (reply(401, {"message": "Bad credentials"}), 5, "Bad credentials"),
    (reply(403, {"message": "Resource not accessible"}), 5, "public_repo"),
    (reply(404, {"message": "Not Found"}), 5, "404"),
    (reply(422, {"message": "\x1b[31mred"}), 5, "red"),
    (reply(202, {"full_name": "you/x"}), 4, "clone_url"),
    (reply(202, {"full_name": "../../x", "clone_url": "x", "default_branch": "main"}), 4, "no repository"),
    (reply(202, b"nonsense"), 4, "full_name"),
    (redirect("http://localhost:1/elsewhere"), 5, "redirects"),
])
def test_what_github_refuses(init, serve, tmp_path, step, code, says):
    server = serve(step)
    done = init(server)
    assert done.code == code and says in done.err and "\x1b" not in done.err
    assert len(server.requests) == 1 and not is_workspace(tmp_path / "miner")


def test_wrong_wishes(quasar, serve, upstream):
    assert "GITHUB_TOKEN" in quasar("init", "miner", "--github").err
    assert quasar("init", "miner", "--github", "--from", upstream).code == 2
    done = quasar("init", "miner", "--github", env={"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "http://example.org"})
    assert done.code == 2 and "not encrypted" in done.err
    assert quasar("init", "miner", "--github", env={"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": "x://y"}).code == 2
