"""quasar localnet --like 2026-04, over HTTP, and what its database goes through."""
import sqlite3
import time

import pytest

from conftest import ROOT
from test_localnet import URL, commit, commitment, kernel, register, reveal, submit

IMAGE = "me/image:1"
START = ("--like", "2026-04", "--block-time", "0.2", "--blocks-until-reveal", "5")


@pytest.fixture
def judge(make_miner):
    return make_miner("judge")


@pytest.fixture
def april(start_localnet, judge):
    """One that `judge` is the validator of, without a cooldown."""
    return start_localnet(*START, "--validator-hotkeys", judge.address, "--api-keys", "key:read", "--cooldown", "0")


@pytest.fixture
def sign(quasar):
    """The headers of a hotkey by the name of its wallet, for a time."""

    def headers(name, miner, when):
        message = f"{miner.address}:{when}".encode().hex()
        signed = quasar("wallet", "sign", "--wallet", name, "--message-hex", message).out.strip()
        return {"Hotkey": miner.address, "Signature": "0x" + signed, "Timestamp": str(when)}

    return headers


def read(server, path, who):
    return server.request("GET", path, None, who.headers)


def test_the_routes_are_listed(april, start_localnet, make_miner):
    alice = make_miner("alice")
    february = start_localnet("--like", "2026-02")
    paths = {}
    for server in (april, february):
        document = server.get("/openapi.json").json
        assert document["openapi"].startswith("3.") and document["info"]["version"] == server.like
        paths[server.like] = document["paths"]
        for path, methods in document["paths"].items():
            for method in methods:
                answer = server.request(method.upper(), path.replace("{round_id}", "x"), b"[]" if method == "post" else None,
                                        alice.headers)
                assert answer.status in (200, 401, 403, 422), (method, path)
    assert set(paths["2026-04"]) - set(paths["2026-02"]) == {
        "/get_pending_validations", "/mark_validated_with_verification", "/sync_uids", "/flagged_miners", "/flag_miner",
        "/get_completed_rounds", "/refinalize_round/{round_id}", "/dashboard/overview", "/dashboard/leaderboard",
        "/dashboard/top_miners", "/dashboard/miner/{hotkey}"}
    assert set(paths["2026-02"]) < set(paths["2026-04"])
    assert paths["2026-04"]["/refinalize_round/{round_id}"]["post"]["parameters"][0]["name"] == "round_id"


def test_signatures_with_a_time(april, judge, sign):
    now = int(time.time())
    assert april.request("GET", "/get_current_round", None, sign("judge", judge, now)).status == 200
    old = april.request("GET", "/get_current_round", None, sign("judge", judge, now - 600))
    assert old.status == 401 and old.detail.startswith("Signature expired (60")
    assert old.detail.endswith("s old, max 120s)")
    moved = {**sign("judge", judge, now), "Timestamp": str(now + 1)}
    assert april.request("GET", "/get_current_round", None, moved).detail == "Invalid signature"
    assert read(april, "/get_current_round", judge).status == 200  # as before April


def test_each_refusal(april, start_localnet, judge, make_miner):
    """Every status that a client has to tell apart, and its words."""
    alice, bob = make_miner("alice"), make_miner("bob")
    cooling = start_localnet(*START)  # the cooldown as deployed, and no validator
    submission = commit(april, alice, "ab", data=IMAGE).json["submission_id"]
    image = {"docker_image": IMAGE}
    refusals = [
        (april.get("/get_current_round"), 401, "Missing Hotkey or Signature headers"),
        (april.get("/dashboard/overview"), 401, "Neither an API key nor the signature"),
        (april.request("GET", "/dashboard/overview", None, alice.headers), 401, "Neither an API key"),
        (read(april, "/pending_reveals", alice), 403, "Hotkey is not an authorized validator. "),
        (april.post("/finalize_round/1", None, alice.headers), 403, "Hotkey is not an authorized validator. "),
        (read(cooling, "/pending_reveals", alice), 503, "No validator is authorized"),
        (submit(april, alice, miner_hotkey=bob.address), 403, "Hotkey mismatch"),
        (submit(april, alice, tokens_per_sec=0), 400, "tokens_per_sec must be a positive number."),
        (submit(april, alice, tokens_per_sec=6e7), 400, "tokens_per_sec 60000000.0 outside plausible range"),
        (commit(april, alice, "ab", data=IMAGE), 409, "Commitment hash already exists."),
        (reveal(april, alice, submission, "ab", **image), 425, "Cannot reveal yet. Wait "),
        (april.post("/finalize_round/1", None, judge.headers), 400, "Round has not ended yet"),
        (april.post("/mark_validated_with_verification", {"submission_id": submission, "score": 1}, judge.headers), 409,
         "Submission is not revealed yet"),
        (april.post("/flag_miner", {"hotkey": "nobody"}, judge.headers), 404, "Miner not found"),
    ]
    assert submit(cooling, alice).status == 200
    refusals.append((submit(cooling, alice), 429, "Rate limit exceeded. Please wait 300 seconds "))
    assert refusals[-1][0].headers["Retry-After"] is None
    april.post("/flag_miner", {"hotkey": bob.address, "reason": "two of a kind"}, judge.headers)
    assert submit(april, bob, fork_url="https://github.com/bob/fla").status == 200  # there was no miner to be flagged
    april.post("/flag_miner", {"hotkey": bob.address, "reason": "two of a kind"}, judge.headers)
    refusals += [(route(april, bob, *more), 403, "Miner flagged: two of a kind")
                 for route, *more in ((register,), (submit,), (commit, "cd"))]
    for answer, status, words in refusals:
        assert answer.status == status and answer.detail.startswith(words), (answer.status, answer.body)
    for field, value, route in (("model_name", "m" * 129, register), ("docker_image", 5, submit)):
        answer = route(april, alice, **{field: value})
        assert answer.status == 422 and answer.detail[0]["loc"] == ["body", field]
    faulty = register(april, alice)  # it has a row, by its commitment
    assert (faulty.status, faulty.body) == (500, b"Internal Server Error")


def test_from_an_image_to_the_weights(start_localnet, judge, make_miner):
    """Commit, reveal, judgement, and a round that ends in time."""
    alice = make_miner("alice")
    server = start_localnet("--like", "2026-04", "--blocks-until-reveal", "0", "--cooldown", "0", "--round-time", "3",
                            "--validator-hotkeys", judge.address)
    submission = commit(server, alice, "ab", data=IMAGE).json["submission_id"]
    assert reveal(server, alice, submission, "ab", docker_image=IMAGE, benchmarks={"512": {"tokens_per_sec": 2}}).status == 200
    pending = read(server, "/get_pending_validations?limit=100", judge).json
    assert pending["pending_count"] == pending["total_pending"] == 1
    row, = pending["submissions"]
    assert row.items() >= {"id": submission, "miner_hotkey": alice.address, "fork_url": URL, "docker_image": IMAGE,
                           "tokens_per_sec": 1234.5, "benchmarks": '{"512":{"tokens_per_sec":2}}'}.items()
    marked = server.post("/mark_validated_with_verification", {
        "submission_id": submission, "score": 1, "actual_tokens_per_sec": 1000, "verified": True,
        "cosine_similarity": 0.999, "max_abs_diff": 0.01, "throughput": 12.5}, judge.headers)
    assert marked.status == 200 and marked.json["validated_tokens_per_sec"] == 1000
    while not (weights := read(server, "/get_weights?completed_only=true", judge).json)["weights"]:
        read(server, "/get_current_round", judge)  # ends the one before once its time is up
        time.sleep(0.1)
    assert weights["winner_hotkey"] == alice.address and weights["round_status"] == "completed"
    assert weights["weights"] == [{"uid": 0, "hotkey": alice.address, "weight": 0.6, "tokens_per_sec": 1000,
                                   "github_username": "alice"}]
    round_id = read(server, "/get_completed_rounds", judge).json["rounds"][0]["id"]
    again = server.post(f"/refinalize_round/{round_id}", None, judge.headers).json
    assert again["winner"] == alice.address and again["rankings"][0]["weighted_score"] == 1000


def test_a_public_address_has_one_hotkey(april, make_miner):
    alice, bob = make_miner("alice"), make_miner("bob")

    def submit_from(miner, name, headers):
        return april.post("/submit_kernel", kernel(miner, fork_url=f"https://github.com/{name}/fla"),
                          {**miner.headers, **headers})

    assert submit_from(alice, "alice", {"X-Forwarded-For": "8.8.4.4, 10.0.0.1"}).status == 200
    assert submit_from(bob, "bob", {"X-Forwarded-For": "10.0.0.1"}).status == 200  # behind a router
    for miner, name in ((bob, "bob"), (alice, "alice")):
        answer = submit_from(miner, name, {"X-Real-IP": "8.8.4.4"})
        assert answer.status == 403 and "8.8.4.4" in answer.detail


def test_dashboards(april, make_miner, judge):
    alice = make_miner("alice")
    submit(april, alice, tokens_per_sec=5000, network="test")
    path = f"/dashboard/miner/{alice.address}?network=test"
    for headers in ({"Authorization": "Bearer key"}, {"X-API-Key": "key"}, judge.headers):
        answer = april.request("GET", path, None, headers)
        assert answer.status == 200 and answer.json["is_flagged"] is False
        assert [entry["id"] for entry in answer.json["submissions"]] == [1]
    assert april.request("GET", path, None, {"X-API-Key": "key:read"}).status == 401
    assert april.request("GET", path.partition("?")[0], None, {"X-API-Key": "key"}).status == 404


def test_settings_of_a_workspace(quasar, start_localnet, judge, make_miner, tmp_path):
    alice = make_miner("alice")
    assert quasar("init", "work").code == 0
    with open(tmp_path / "work" / ".env", "a") as file:
        file.write(f"VALIDATOR_HOTKEYS=5Other,{judge.address}\nAPI_KEYS=key\nSUBMISSION_COOLDOWN_SECONDS=77\n")
    server = start_localnet("--like", "2026-04", "-C", tmp_path / "work")
    assert server.db == str(tmp_path / "work" / "localnet.db")
    assert read(server, "/get_current_round", judge).status == 200
    assert server.request("GET", "/dashboard/overview", None, {"X-API-Key": "key"}).status == 200
    assert submit(server, alice).status == 200
    assert "wait 77 seconds" in submit(server, alice).detail


# --- the database -----------------------------------------------------------------------------------


def test_a_database_belongs_to_one_version(april, quasar):
    april.stop()
    for like in ("2026-02", "strict"):
        done = quasar("localnet", "--like", like, "--port", "0", "--db", april.db)
        assert done.code == 3 and april.db in done.err
        assert f"like 2026-04, not {like}" in done.err and "--like 2026-04" in done.err and "--db" in done.err
    april.start("--port", "0")
    assert april.get("/health").status == 200


@pytest.mark.parametrize("like", ["2026-02", "strict", "2026-04"])
def test_an_older_database_goes_on(start_localnet, judge, tmp_path, like):
    """As the first form of it was: two miners, a finished round, a commitment, failures of an address."""
    path = tmp_path / "old.db"
    script = (ROOT / "tests" / "vectors" / "localnet-1.sql").read_text()
    with sqlite3.connect(path) as database:
        database.executescript(script)
    server = start_localnet("--like", like, "--db", path, "--validator-hotkeys", judge.address)
    pending, = read(server, "/pending_reveals", judge).json["pending_reveals"]
    assert pending["submission_id"] == 3
    assert read(server, "/get_submission_stats", judge).json["total_submissions"] == 3
    weights = read(server, "/get_weights?round_id=1", judge).json["weights"]
    current = read(server, "/get_current_round", judge).json
    server.stop()
    assert server.failures() == [("192.0.2.1",)]
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("SELECT count(*) FROM registration").fetchone() == (2,)
        winner, = database.execute("SELECT winner_hotkey FROM round WHERE id = 1").fetchone()
        assert database.execute("SELECT name FROM version").fetchall() == [(like,)]
    if like == "2026-04":
        assert weights == []  # nothing of it was measured
    else:
        assert [entry["hotkey"] for entry in weights][0] == winner and len(weights) == 2
    assert current["round_number"] == 2 or like == "2026-04"  # there its time may be up
