"""The binary against a validator that was written from the description of the protocol alone, and against the deployed
one's own code."""
import pytest

URL = "https://github.com/alice/flash-linear-attention"


def register(validator, miner, league="1M"):
    answer = validator.post("/register_miner", {"hotkey": miner.address, "model_name": "m", "league": league},
                            miner.headers)
    assert answer.status == 200, answer.body


def submit(validator, miner, length, speed):
    answer = validator.post("/submit_kernel", {
        "miner_hotkey": miner.address, "fork_url": URL, "commit_hash": "c0ffee", "target_sequence_length": length,
        "tokens_per_sec": speed, "signature": "s", "benchmarks": {"4096": {"tokens_per_sec": speed}}}, miner.headers)
    assert answer.status == 200, answer.body
    return answer.json["submission_id"]


def commit(validator, miner):
    answer = validator.post("/commit_submission", {"miner_hotkey": miner.address, "commitment_hash": "0" * 64,
                                                   "target_sequence_length": 100, "signature": "s"}, miner.headers)
    assert answer.status == 200, answer.body


@pytest.fixture
def api(quasar, validator):
    """Runs a command against the validator."""
    return lambda *args, **more: quasar(*args, "--api", validator.url, **more)


def test_a_hotkey_registers_once(api, hotkey):
    done = api("register", "--json")
    assert done.code == 0, done.err
    assert done.json["status"] == "registered" and done.json["hotkey"] == hotkey and done.json["league"] == "100k"
    assert api("register", "--json").json["status"] == "already_registered"
    another = api("register", "--json", "--seq", "1M", "--timeout", "1")  # the validator's own fault
    assert another.code == 4 and "500" in another.err


def test_an_ed25519_hotkey_is_not_accepted(api, quasar):
    assert quasar("wallet", "new", "--crypto", "ed25519").code == 0
    done = api("register")
    assert done.code == 5 and "401" in done.err and "sr25519" in done.err


def test_the_first_round(api):
    done = api("round", "--json")
    assert done.code == 0, done.err
    assert done.json["round_number"] == 1 and done.json["status"] == "active"
    assert done.json["total_submissions"] == 0 and done.json["baseline_submission_id"] is None
    assert 47 * 3600 < done.json["time_remaining_seconds"] <= 48 * 3600


def test_a_round_from_submissions_to_rewards(api, validator, peer_miner, hotkey):
    alice, bob, carol = (peer_miner(uri) for uri in ("//Alice", "//Bob", "//Carol"))
    for miner in (alice, bob, carol):
        register(validator, miner)
    first = submit(validator, alice, 1000000, 2e6)   # 6 M weighted
    second = submit(validator, bob, 100000, 14e6)    # 7 M
    third = submit(validator, carol, 300000, 6e6)    # 6 M, later than Alice's
    commit(validator, carol)

    board = api("leaderboard", "--json").json
    assert [entry["submission_id"] for entry in board["ranking"]] == [second, first, third]
    assert [entry["state"] for entry in board["ranking"]] == ["waiting"] * 3
    assert [entry["weighted_score"] for entry in board["ranking"]] == [7e6, 6e6, 6e6]
    assert board["unrevealed"] == 1 and board["total_submissions"] == 4 and board["rewards"] == []
    assert not any(entry["own"] for entry in board["ranking"])

    for submission in (first, second, third):
        assert validator.post("/mark_validated", {"submission_id": submission, "score": 1.0}).status == 200
    assert validator.post(f"/record_verification?submission_id={second}&verified=false").status == 200
    assert validator.post("/finalize_round/1").json["winner"] == alice.address

    board = api("leaderboard", "--json").json
    assert [(entry["hotkey"], entry["weight"]) for entry in board["rewards"]] == [
        (alice.address, 0.6), (carol.address, 0.25)]
    assert {entry["state"] for entry in board["ranking"]} == {"validated"}
    round_2 = api("round", "--json").json
    assert round_2["round_number"] == 2 and round_2["baseline_submission_id"] is None
    assert round_2["to_beat"] == {"submission_id": first, "hotkey": alice.address, "weighted_score": 6e6,
                                  "at_most": False}


def test_the_board_is_readable(api, validator, peer_miner, hotkey):
    alice = peer_miner("//Alice")
    register(validator, alice)
    submit(validator, alice, 1000000, 66990104.0)
    text = api("leaderboard").out
    assert "200,970,312" in text and alice.address[:12] in text and "does not show" in text
