"""`quasar localnet --like 2026-04` beside the FastAPI service of that version, which was written from its description alone:
the same requests get the same statuses, the same fields, and the same complaints."""
import re
import time

import pytest
from bittensor_wallet import Keypair

from test_two_validators import commitment, compare, kernel, revelation, shape

QUOTED = re.compile(  # what the description has the service say, up to where it leaves the words open
    r"Missing Hotkey or Signature headers|Signature expired \(\d+s old, max 120s\)"
    r"|Hotkey is not an authorized validator\. |Hotkey mismatch|Rate limit exceeded\. Please wait \d+ seconds "
    r"|tokens_per_sec must be a positive number\.|\w+ [\d.]+ outside plausible range|Commitment hash already exists\. "
    r"|Cannot reveal yet\. Wait \d+ blocks \(~\d+ minutes\)|Submission (?:not found|already revealed)|Miner flagged: "
    r"|Round (?:not found|already finalized)")

MORE = ("/finalize_round/", "/refinalize_round/", "/dashboard/leaderboard", "/openapi.json")  # where ours tells more


def words(answer):
    quoted = QUOTED.match(answer.detail)
    return quoted and re.sub(r"[\d.]+", "N", quoted[0])


@pytest.fixture
def judge(peer_miner):
    return peer_miner("//Judge")


@pytest.fixture
def start_both(start_localnet, start_peer, judge):
    """Starts the two services, alike in all that can be set."""

    def start(*more):
        options = ("--like", "2026-04", "--block-time", "0.2", "--blocks-until-reveal", "5", "--api-keys", "key:read",
                   "--validator-hotkeys", judge.address, *more)
        return start_localnet(*options), start_peer(*options)

    return start


@pytest.fixture
def same(start_both):
    """Sends a request to both, and holds the answers against each other: same("GET", path, who=…)."""
    both = start_both("--cooldown", "0")

    def send(method, path, body=None, who=None, headers=None):
        ours, theirs = compare(both, method, path, body, {**(who.headers if who else {}), **(headers or {})})
        if ours.status == 200:
            assert shape(ours.json) == shape(theirs.json) or path.startswith(MORE), path
        elif ours.status not in (422, 500):
            assert words(ours) == words(theirs), path
        return ours, theirs

    send.both = both
    return send


def april_kernel(miner, owner, **fields):
    return {**kernel(miner, fork_url=f"https://github.com/{owner}/fla", docker_image="me/image:1"), **fields}


def place(miner, **fields):
    return {"hotkey": miner.address, "model_name": "m", "league": "1M", **fields}


def test_a_whole_round(same, peer_miner, judge):
    alice, bob = peer_miner("//Alice"), peer_miner("//Bob")
    same("GET", "/get_current_round", who=judge)
    same("GET", "/get_weights", who=judge)
    same("POST", "/register_miner", place(alice), alice)
    same("POST", "/register_miner", place(alice), alice)
    same("POST", "/register_miner", place(alice, league="100k"), alice)
    same("POST", "/register_miner", place(alice, network="test", uid=7), alice)
    same("POST", "/register_miner", place(bob, model_name="m" * 129), bob)
    same("POST", "/submit_kernel", april_kernel(alice, "alice", benchmarks={"512": {"tokens_per_sec": 2.5}}), alice)
    same("POST", "/submit_kernel", april_kernel(bob, "bob", tokens_per_sec=60000.0), bob)
    same("POST", "/register_miner", place(bob), bob)
    same("POST", "/commit_submission", commitment(alice, "ab" * 32), alice)
    same("POST", "/commit_submission", commitment(alice, "ab" * 32), alice)
    for service in same.both:
        while not all(entry["can_reveal"] for entry in service.request(
                "GET", "/pending_reveals", None, judge.headers).json["pending_reveals"]):
            time.sleep(0.05)
    reveal = revelation(alice, 3, "ab" * 32)
    for change in ({"commitment_salt": "no"}, {"docker_image": "me/image:1"}, {"fork_url": "https://github.com/bob/fla"},
                   {"tokens_per_sec": 0}, {"submission_id": 99}, {}, {}):
        same("POST", "/reveal_submission", {**reveal, **change}, alice)
    for path in ("/get_pending_validations", "/get_pending_validations?limit=1", "/get_pending_validations?limit=101",
                 "/get_pending_validations?network=test", "/get_submission_stats?limit=200", "/get_submission_stats?limit=201",
                 "/get_submission_rate", "/verification_stats", "/pending_reveals"):
        same("GET", path, who=judge)
    judgement = {"score": 1, "actual_tokens_per_sec": 40000, "verified": True, "cosine_similarity": 0.999,
                 "max_abs_diff": 0.01, "throughput": 9.5, "reason": "fine"}
    for fields in ({"submission_id": 1}, {"submission_id": 2, "actual_tokens_per_sec": 9}, {"submission_id": 2, "score": 9},
                   {"submission_id": 99}, {"submission_id": 3, "verified": None, "actual_tokens_per_sec": None}, {}):
        same("POST", "/mark_validated_with_verification", {**judgement, **fields}, judge)
    for path in ("/get_weights", "/get_weights?completed_only=true", "/get_weights?network=test", "/get_weights?round_id=1",
                 "/get_weights?round_id=99", "/get_completed_rounds", "/verification_stats", "/dashboard/overview",
                 "/dashboard/leaderboard", "/dashboard/top_miners", f"/dashboard/miner/{alice.address}",
                 "/dashboard/miner/nobody"):
        ours, theirs = same("GET", path, who=judge)
        if path.startswith("/get_weights"):
            assert ours.json["weights"] == theirs.json["weights"]
    same("POST", "/finalize_round/1", who=judge)
    same("POST", "/refinalize_round/1", who=judge)
    same("POST", "/create_round", {"duration_hours": 0}, judge)
    same("POST", "/finalize_round/1", who=judge)
    ours, theirs = same("POST", "/refinalize_round/1", who=judge)
    assert ours.json["winner"] == theirs.json["winner"] == alice.address
    same("POST", "/create_round", {"network": "test", "duration_hours": 2}, judge)
    same("GET", "/get_current_round?network=test", who=judge)
    ours, theirs = same("GET", "/get_completed_rounds", who=judge)
    assert [entry["winner_hotkey"] for entry in ours.json["rounds"]] == [
        entry["winner_hotkey"] for entry in theirs.json["rounds"]]


def test_the_same_doors(same, peer_miner, judge):
    alice, nobody = peer_miner("//Alice"), None
    paths = set(same.both[1].get("/openapi.json").json["paths"])
    assert paths | {"/openapi.json"} == set(same.both[0].get("/openapi.json").json["paths"])
    for path in sorted(paths - {"/health"}):
        for who in (nobody, alice, judge):
            for method in ("GET", "POST"):
                same(method, path.replace("{round_id}", "x"), [] if method == "POST" else None, who)
    for headers in ({"X-API-Key": "key"}, {"X-API-Key": "read"}, {"Authorization": "Bearer key"}, {"Authorization": "key:read"}):
        same("GET", "/dashboard/overview", headers=headers)


def test_the_same_signatures(same):
    keypair = Keypair.create_from_uri("//Judge")
    now = int(time.time())
    for when in (now, now - 60, now + 60, now - 1000, now + 1000, "soon", "", f" {now}", f"{now}.5"):
        for message in (f"{keypair.ss58_address}:{when}", keypair.ss58_address, f"{keypair.ss58_address}:{now - 1}",
                        f"<Bytes>{keypair.ss58_address}:{when}</Bytes>"):
            for prefix in ("", "0x"):
                headers = {"Hotkey": keypair.ss58_address, "Signature": prefix + keypair.sign(message.encode()).hex()}
                same("GET", "/get_current_round", headers={**headers, "Timestamp": str(when)})
                same("GET", "/get_current_round", headers=headers)
    for signature in ("0X" + keypair.sign(keypair.ss58_address.encode()).hex(), "0x", "0x00", "xyz"):
        same("GET", "/get_current_round", headers={"Hotkey": keypair.ss58_address, "Signature": signature})


def test_the_same_flags(same, peer_miner, judge):
    alice, bob, carol, dave = (peer_miner(uri) for uri in ("//Alice", "//Bob", "//Carol", "//Dave"))

    def submit(miner, owner, address, **fields):
        return same("POST", "/submit_kernel", april_kernel(miner, owner, **fields), miner, {"X-Forwarded-For": address})

    submit(alice, "alice", "8.8.4.4, 10.0.0.1")
    submit(bob, "alice", "8.8.4.5")
    for path, body in (("/submit_kernel", april_kernel(bob, "bob")), ("/commit_submission", commitment(bob, "ab")),
                       ("/register_miner", place(bob, network="test"))):
        same("POST", path, body, bob)
    submit(carol, "carol", "10.0.0.1")
    submit(carol, "carol", "8.8.4.4")
    submit(alice, "alice", "8.8.4.6")
    submit(dave, "ALICE", "2600::1")
    same("POST", "/flag_miner", {"hotkey": dave.address, "flag": True}, judge)
    submit(dave, "ALICE", "2600::1")
    same("POST", "/flag_miner", {"hotkey": dave.address, "flag": False}, judge)
    submit(dave, "ALICE", "2600::1", tokens_per_sec=3000.0)
    ours, theirs = same("GET", "/flagged_miners", who=judge)
    assert sorted(entry["hotkey"] for entry in ours.json["flagged_miners"]) == sorted(
        entry["hotkey"] for entry in theirs.json["flagged_miners"])
    pending = same("GET", "/get_pending_validations", who=judge)[0].json["submissions"]
    same("POST", "/mark_validated_with_verification",
         {"submission_id": pending[-1]["id"], "score": 1, "actual_tokens_per_sec": 100}, judge)
    same("POST", "/register_miner", place(dave), dave)
    same("POST", "/sync_uids", {"uid_map": {alice.address: 1, carol.address: 2},
                                "coldkey_map": {alice.address: "c", carol.address: "c"}}, judge)
    same("POST", "/submit_kernel", april_kernel(dave, "dave"), dave)
    same("POST", "/flag_miner", {"hotkey": carol.address, "flag": False}, judge)
    same("POST", "/commit_submission", commitment(carol, "ab"), carol)
    same("POST", "/sync_uids", {"uid_map": {"a": "x"}, "coldkey_map": {"a": 1}}, judge)
    same("POST", "/sync_uids", {}, judge)


def test_the_same_cooldown(start_both, peer_miner):
    both = start_both()
    alice = peer_miner("//Alice")
    for _ in range(2):
        for network in ("finney", "test"):
            answers = compare(both, "POST", "/submit_kernel", april_kernel(alice, "alice", network=network), alice.headers)
    assert all(answer.status == 429 and answer.headers["Retry-After"] is None for answer in answers)
    assert all(re.match(r"Rate limit exceeded\. Please wait (299|300) seconds", answer.detail) for answer in answers)
    compare(both, "POST", "/commit_submission", commitment(alice, "ab"), alice.headers)


@pytest.mark.parametrize("field, values", [
    ("tokens_per_sec", [0, -1, 9.99, 10, 5e7, 5e7 + 1, "7", "x", None, 1e300]), ("docker_image", [None, "", 5, [1]]),
    ("network", [None, "", "finney", "test", "TEST", 5]), ("vram_mb", [None, "1", "x"])])
def test_the_same_complaints_about_fields(same, peer_miner, field, values):
    alice = peer_miner("//Alice")
    for value in values:
        same("POST", "/submit_kernel", april_kernel(alice, "alice", **{field: value}), alice)
