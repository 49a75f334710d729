"""A miner's whole journey, and the validator's part of it, at either version of the service: from `init` to a rank.

Without PyTorch, quasar's own layer stands in for the fork, and nobody looks at the logits of an image: tests/forks has
a validator run forks."""
import pytest

from conftest import API_KEY, BOTH

IMAGE = "docker.io/alice/quasar-miner-gpu@sha256:" + "0123456789abcdef" * 4


@BOTH
def test_from_init_to_a_rank(quasar, localnet, like, tmp_path):
    april = like == "2026-04"
    address = quasar("wallet", "new", "--json").json["address"]
    assert quasar("init", tmp_path / "miner", "--api", localnet.url, "--seq", 512, "--network", "test").code == 0
    settings = {"MINER_DOCKER_IMAGE": IMAGE, "DASHBOARD_API_KEY": API_KEY}

    def miner(*args):
        done = quasar(*args, cwd=tmp_path / "miner", env=settings)
        assert done.code == 0, done.out + done.err
        return done

    miner("register")
    miner("verify", "--static")
    miner("bench", "--native", "--runs", 1)
    miner("commit", "--margin", "50%")  # one call says little of how fast a busy machine is
    assert "committed" in miner("status").out
    revealed = miner("reveal", "--wait", "--json").json["revealed"][0]
    assert revealed["docker_image"] == (IMAGE if april else None)

    judge = ["--wallet", "judge", "--assume-verified"] if april else []
    done = quasar("validate", "--api", localnet.url, "--once", "--json", "--native", "--device", "cpu", "--budget", "10", *judge)
    assert done.code == 0, done.err
    judged, = done.json["judged"]
    assert judged["valid"] and judged["submission_id"] == revealed["submission_id"]
    checks = {check["name"]: check for check in judged["checks"]}
    assert checks["imports.ast"]["status"] == "ok", checks["imports.ast"]

    leader, = miner("leaderboard", "--json").json["ranking"]
    assert leader["rank"] == 1 and leader["own"]
    if april:
        assert leader["normalized_tokens_per_sec"] == pytest.approx(judged["normalized_tokens_per_sec"])
        assert "normalised" in miner("status").out
    else:
        assert "rank 1" in miner("status").out
        quasar("validate", "--api", localnet.url, "--once", "--native", "--device", "cpu", "--finalize")
    weight, = localnet.get("/get_weights?network=test").json["weights"]
    assert weight["hotkey"] == address and weight["weight"] == 0.6
