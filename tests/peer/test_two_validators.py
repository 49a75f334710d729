"""`quasar localnet` beside the FastAPI service and beside the deployed one: the same requests get the same statuses, the
same fields, and the same complaints. And `quasar validate` as the judge of all."""
import hashlib
import json
import time

import pytest
from bittensor_wallet import Keypair

from sample_fork import Fork

URL = "https://github.com/alice/flash-linear-attention"


@pytest.fixture
def both(start_localnet, validator):
    """The two services, alike in all that can be set."""
    return start_localnet("--block-time", "0.2", "--blocks-until-reveal", "5"), validator


def shape(value):
    """What a document looks like, without its values."""
    if isinstance(value, dict):
        return {name: shape(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [shape(entry) for entry in value]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def complaints(answer):
    """The position of a JSON error is left out: it depends on the parser."""
    def complaint(entry):
        is_json = entry["type"] != "json_invalid"
        return (entry["loc"] if is_json else entry["loc"][:1], entry["type"], entry["msg"], entry["input"],
                set(entry) - {"loc", "type", "msg", "input"})

    return sorted(map(complaint, answer.detail), key=lambda entry: str(entry[:2]))


def compare(both, method, path, body=None, headers=None):
    """Sends a request to both; returns the two answers."""
    ours, theirs = (service.request(method, path, body, headers) for service in both)
    assert ours.status == theirs.status, (ours.body, theirs.body)
    if ours.status == 500:
        return ours, theirs
    if ours.status == 422:
        assert complaints(ours) == complaints(theirs)
    elif ours.status != 200:
        assert set(ours.json) == set(theirs.json) == {"detail"} and isinstance(ours.detail, str)
    return ours, theirs


def commitment(miner, salt):
    return {"miner_hotkey": miner.address, "commitment_hash": hashlib.sha256((salt + URL).encode()).hexdigest(),
            "target_sequence_length": 300000, "signature": "s"}


def revelation(miner, submission, salt):
    return {"submission_id": submission, "miner_hotkey": miner.address, "commitment_salt": salt, "fork_url": URL,
            "commit_hash": "c0ffee", "tokens_per_sec": 1234.5, "signature": "s"}


def kernel(miner, **fields):
    return {"miner_hotkey": miner.address, "fork_url": URL, "commit_hash": "c0ffee", "signature": "s",
            "target_sequence_length": 1000000, "tokens_per_sec": 50000.0, **fields}


def test_a_whole_round(both, peer_miner):
    alice, bob = peer_miner("//Alice"), peer_miner("//Bob")

    def same(method, path, body=None, miner=None):
        ours, theirs = compare(both, method, path, body, miner and miner.headers)
        if ours.status == 200 and path.startswith(("/finalize_round/", "/mark_validated")):
            assert set(theirs.json) <= set(ours.json), path  # theirs may tell less
        elif ours.status == 200:
            assert shape(ours.json) == shape(theirs.json), path
        return ours, theirs

    for miner in (alice, bob):
        for league in ("1M", "1M", "100k", "7k"):
            same("POST", "/register_miner", {"hotkey": miner.address, "model_name": "m", "league": league}, miner)
    same("POST", "/register_miner", {"hotkey": bob.address, "model_name": "m", "league": "1M"}, alice)
    same("GET", "/get_current_round")
    same("GET", "/get_weights")
    same("POST", "/submit_kernel", kernel(alice, vram_mb=1.5, repo_hash="r",
                                          benchmarks={"4096": {"tokens_per_sec": 1.0, "vram_mb": 2.0}}), alice)
    same("POST", "/submit_kernel", kernel(bob, target_sequence_length="200000", tokens_per_sec="7e4"), bob)
    same("POST", "/submit_kernel", kernel(bob), alice)
    same("POST", "/submit_kernel", kernel(peer_miner("//Carol")), peer_miner("//Carol"))
    same("POST", "/commit_submission", commitment(alice, "ab" * 32), alice)
    same("POST", "/commit_submission", commitment(alice, "ab" * 32), alice)
    same("POST", "/commit_submission", commitment(bob, "cd" * 32), bob)
    for service in both:  # nothing is ready yet, or all is: wait for the second, so that they are alike
        while not all(entry["can_reveal"] for entry in service.get("/pending_reveals").json["pending_reveals"]):
            time.sleep(0.05)
    same("GET", "/pending_reveals")
    same("GET", "/get_submission_stats")
    same("GET", "/get_submission_stats?limit=1")
    same("POST", "/reveal_submission", revelation(bob, 3, "ab" * 32), bob)
    same("POST", "/reveal_submission", revelation(alice, 99, "ab" * 32), alice)
    same("POST", "/reveal_submission", revelation(alice, 3, "no"), alice)
    same("POST", "/reveal_submission", revelation(alice, 3, "ab" * 32), alice)
    same("POST", "/reveal_submission", revelation(alice, 3, "ab" * 32), alice)
    same("GET", "/pending_reveals")
    for submission, score in ((1, 1.5), (2, 1.0), (3, 1), (99, 1)):
        same("POST", "/mark_validated", {"submission_id": submission, "score": score})
    same("POST", "/record_verification?submission_id=2&verified=off&cosine_similarity=0.5")
    same("POST", "/record_verification?submission_id=99&verified=1")
    same("GET", "/get_submission_rate?window_minutes=5")
    ours, theirs = (answer.json for answer in same("GET", "/verification_stats"))
    assert ours == theirs
    ours, theirs = (answer.json for answer in same("POST", "/finalize_round/1"))
    assert ours["winner"] == theirs["winner"] == alice.address
    told = ("rank", "submission_id", "miner_hotkey", "weighted_score")
    assert [[entry[name] for name in told] for entry in ours["rankings"]] == [
        [entry[name] for name in told] for entry in theirs["rankings"]]
    same("POST", "/finalize_round/1")
    same("POST", "/finalize_round/99")
    ours, theirs = (answer.json["weights"] for answer in same("GET", "/get_weights"))
    assert ours == theirs
    for miner in (alice, bob):  # nobody has asked for the next round
        same("POST", "/submit_kernel", kernel(miner), miner)
        same("POST", "/commit_submission", commitment(miner, "01" * 32), miner)
    ours, theirs = (answer.json for answer in same("GET", "/get_current_round"))
    assert ours["baseline_submission_id"] is theirs["baseline_submission_id"] is None
    same("POST", "/submit_kernel", kernel(bob), bob)
    same("POST", "/mark_validated", {"submission_id": 5, "score": 0})
    for name in ("/finalize_round/2", "/get_weights", "/get_weights?round_id=1", "/get_weights?round_id=2"):
        ours, theirs = same("POST" if "finalize" in name else "GET", name)
        assert ours.json.get("weights") == theirs.json.get("weights")
    same("GET", "/get_current_round")
    assert all(answer.json == {"status": "completed", "winners": []} for answer in same("POST", "/finalize_round/3"))
    same("POST", "/create_round", {"duration_hours": 3})
    same("GET", "/get_current_round")
    for _ in range(5):
        same("POST", "/record_failure", {"ip_address": "127.0.0.1"})
    banned = same("POST", "/commit_submission", commitment(bob, "ef" * 32), bob)
    assert all(answer.detail.startswith("IP address banned: ") for answer in banned)
    same("POST", "/register_miner", {"hotkey": alice.address, "model_name": "m", "league": "1M"}, alice)


def test_the_same_faults(both, peer_miner):
    alice = peer_miner("//Alice")
    compare(both, "POST", "/register_miner", {"hotkey": alice.address, "model_name": "m", "league": "1M"}, alice.headers)
    for fields in ({"target_sequence_length": 2**60}, {"target_sequence_length": 2**63}, {"fork_url": "\ud800"},
                   {"commit_hash": "a\0b"}, {"fork_url": "u" * 2000000}, {"tokens_per_sec": -1.0}, {"benchmarks": {}},
                   {"target_sequence_length": -5}):
        compare(both, "POST", "/submit_kernel", kernel(alice, **fields), alice.headers)
    ours, theirs = compare(both, "GET", "/get_submission_stats")
    times = "created_at"
    assert [{**entry, times: 0} for entry in ours.json["recent_submissions"]] == [
        {**entry, times: 0} for entry in theirs.json["recent_submissions"]]
    for number in (2**63, -2**63 - 1024):
        compare(both, "GET", f"/get_submission_stats?limit={number}")
        compare(both, "POST", f"/finalize_round/{number}")
        compare(both, "POST", "/reveal_submission", revelation(alice, number, "ab" * 32), alice.headers)
    for submission in (0, None, [], [1], {}, "x", "1", 1.0, 1.5, True, 99, 2**63):
        compare(both, "POST", "/mark_validated", {"submission_id": submission})
    for address in (None, "", "192.0.2.1", 5, [1], {"a": 1}, "\ud800"):
        compare(both, "POST", "/record_failure", {"ip_address": address})
    for headers in ({"Origin": "http://a"}, {"Origin": "http://a", "Access-Control-Request-Method": "POST"}, {}):
        for method in ("GET", "OPTIONS"):
            ours, theirs = (service.request(method, "/health", None, headers) for service in both)
            assert ours.status == theirs.status
            for name in ("Access-Control-Allow-Origin", "Access-Control-Allow-Credentials", "Content-Type"):
                assert ours.headers[name] == theirs.headers[name]
    for path in ("/health/", "/get_weights/?round_id=1", "/nope/", "//health"):
        ours, theirs = (service.request("POST", path, None, {}) for service in both)
        assert ours.status == theirs.status
    for speed in ("NaN", "Infinity", "1e400"):
        body = json.dumps(kernel(alice)).replace("50000.0", speed).encode()
        compare(both, "POST", "/submit_kernel", body, alice.headers)
        compare(both, "GET", "/get_submission_stats")


def test_the_same_signatures(both):
    keypair = Keypair.create_from_uri("//Alice")
    body = {"hotkey": keypair.ss58_address, "model_name": "m", "league": "1M"}
    for message in ("<Bytes>%s</Bytes>", "%s", "<Bytes>%s", " %s", "%s:1"):
        signature = keypair.sign((message % keypair.ss58_address).encode()).hex()
        compare(both, "POST", "/register_miner", body, {"Hotkey": keypair.ss58_address, "Signature": signature})


WRONG = [None, True, "text", "5", "5.0", "5.5", " 5 ", "5e1", "", 7, 7.0, 7.5, -1, [], {}, [1], {"a": 1}]


@pytest.mark.parametrize("field", ["miner_hotkey", "fork_url", "repo_hash", "target_sequence_length",
                                   "tokens_per_sec", "vram_mb", "benchmarks", None])
def test_the_same_complaints_about_fields(both, peer_miner, field):
    alice = peer_miner("//Alice")
    for service in both:
        service.post("/register_miner", {"hotkey": alice.address, "model_name": "m", "league": "1M"}, alice.headers)
    if field:
        for value in WRONG:
            compare(both, "POST", "/submit_kernel", kernel(alice, **{field: value}), alice.headers)
    body = kernel(alice)
    body.pop(field, None)
    compare(both, "POST", "/submit_kernel", body, alice.headers)
    compare(both, "POST", "/submit_kernel", {}, alice.headers)


def test_the_same_complaints_about_bodies(both, peer_miner):
    headers = peer_miner("//Alice").headers
    for body in (b"", b"{", b"[]", b"[1]", b"null", b"5", b'"text"', b"{}", b"{} {}", b"{'a': 1}"):
        for path in ("/commit_submission", "/create_round"):
            compare(both, "POST", path, body, headers)
            compare(both, "POST", path, body, {**headers, "Content-Type": "text/plain"})
            compare(both, "POST", path, body, {**headers, "Content-Type": "application/x+json"})
        compare(both, "POST", "/commit_submission", body)


def test_the_same_complaints_about_queries(both):
    for path in ("/get_submission_stats?limit=x", "/get_submission_stats?limit=", "/get_submission_stats?limit=1.0",
                 "/get_submission_stats?limit=1&limit=2", "/get_submission_rate?window_minutes=1.5",
                 "/get_weights?round_id=a", "/get_weights?round_id=99", "/verification_stats?round_id=%20"):
        compare(both, "GET", path)


def test_the_same_complaints_about_verifications_and_paths(both):
    for query in ("", "?submission_id=1", "?verified=true", "?submission_id=x&verified=maybe",
                  "?submission_id=1&verified=true&cosine_similarity=high", "?submission_id=1&verified=TRUE",
                  "?submission_id=1&verified=yes", "?submission_id=1&verified=2", "?submission_id=1&verified="):
        compare(both, "POST", "/record_verification" + query)
    for path in ("/finalize_round/x", "/finalize_round/1.5", "/finalize_round/-1", "/finalize_round/"):
        compare(both, "POST", path)
    for method, path in (("GET", "/nope"), ("DELETE", "/health"), ("POST", "/health"), ("GET", "/submit_kernel"),
                         ("PUT", "/finalize_round/1")):
        ours, theirs = compare(both, method, path)
        assert ours.json == theirs.json and ours.headers["Allow"] == theirs.headers["Allow"]


def test_the_same_doors_for_credentials(both, peer_miner):
    alice, bob = peer_miner("//Alice"), peer_miner("//Bob")
    signature = alice.headers["Signature"]
    for headers in ({}, {"Hotkey": alice.address}, {"Signature": signature}, alice.headers,
                    {"hotkey": alice.address, "signature": signature.upper()},
                    {"Hotkey": alice.address, "Signature": "0x" + signature},
                    {"Hotkey": alice.address, "Signature": signature[:-1]},
                    {"Hotkey": alice.address, "Signature": signature[:-2]},
                    {"Hotkey": alice.address, "Signature": bob.headers["Signature"]},
                    {"Hotkey": alice.address[:-1], "Signature": signature},
                    {"Hotkey": "0x" + "00" * 32, "Signature": signature}):
        for path in ("/register_miner", "/submit_kernel", "/commit_submission", "/reveal_submission"):
            compare(both, "POST", path, {}, headers)


def test_judging_on_both(both, quasar, peer_miner, tmp_path):
    fork = Fork(tmp_path / "fork")
    alice, bob = peer_miner("//Alice"), peer_miner("//Bob")
    good = {"fork_url": fork.url, "commit_hash": fork.commit_hash, "target_sequence_length": 512,
            "benchmarks": {"512": {"tokens_per_sec": 1}}}
    for service in both:
        for miner, fields in ((alice, {**good, "tokens_per_sec": 1.0}),
                              (bob, {**good, "tokens_per_sec": 1e9, "commit_hash": "0" * 40})):
            service.post("/register_miner", {"hotkey": miner.address, "model_name": "m", "league": "1M"}, miner.headers)
            assert service.post("/submit_kernel", kernel(miner, **fields), miner.headers).status == 200
        done = quasar("validate", "--api", service.url, "--once", "--finalize", "--json", "--budget", "2", "--native")
        assert done.code == 0, done.err
        assert [(entry["miner_hotkey"], entry["valid"]) for entry in done.json["judged"]] == [
            (alice.address, True), (bob.address, False)]
        assert done.json["round"]["winner"] == alice.address
        assert service.get("/get_submission_stats").json["recent_submissions"] == []
