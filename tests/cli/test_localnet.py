"""quasar localnet: every route and status code, over HTTP, with signatures made by `quasar wallet sign`."""
import hashlib
import http.client
import json
import resource
import signal
import socket
import subprocess
import threading
import time

import pytest

from conftest import QUASAR
from patience import LONG

URL = "https://github.com/alice/flash-linear-attention"


def register(localnet, miner, **fields):
    return localnet.post("/register_miner",
                         {"hotkey": miner.address, "model_name": "m", "league": "1M", **fields}, miner.headers)


def kernel(miner, **fields):
    return {"miner_hotkey": miner.address, "fork_url": URL, "commit_hash": "c0ffee", "signature": "s",
            "target_sequence_length": 1000000, "tokens_per_sec": 50000.0, **fields}


def submit(localnet, miner, **fields):
    return localnet.post("/submit_kernel", kernel(miner, **fields), miner.headers)


def commitment(miner, salt, data=URL, **fields):
    return {"miner_hotkey": miner.address, "commitment_hash": hashlib.sha256((salt + data).encode()).hexdigest(),
            "target_sequence_length": 300000, "signature": "s", **fields}


def commit(localnet, miner, salt, **fields):
    return localnet.post("/commit_submission", commitment(miner, salt, **fields), miner.headers)


def revelation(miner, submission_id, salt, **fields):
    return {"submission_id": submission_id, "miner_hotkey": miner.address, "commitment_salt": salt,
            "fork_url": URL, "commit_hash": "c0ffee", "tokens_per_sec": 1234.5, "signature": "s", **fields}


def reveal(localnet, miner, submission_id, salt, **fields):
    return localnet.post("/reveal_submission", revelation(miner, submission_id, salt, **fields), miner.headers)


def wait_until_revealable(localnet):
    """By the server's block clock, as a client would."""
    while True:
        waiting = localnet.get("/pending_reveals").json["pending_reveals"]
        if all(entry["can_reveal"] for entry in waiting):
            return
        time.sleep(0.05)


def state(localnet):
    """All that anybody can read, but for what the clock alone changes."""
    answers = {path: localnet.get(path).json for path in (
        "/get_submission_stats", "/pending_reveals", "/get_current_round", "/get_weights", "/verification_stats")}
    del answers["/get_weights"]["epoch"], answers["/get_current_round"]["time_remaining_seconds"]
    del answers["/pending_reveals"]["current_block"]
    for entry in answers["/pending_reveals"]["pending_reveals"]:
        del entry["blocks_remaining"], entry["can_reveal"]
    return answers


@pytest.fixture
def localnet(start_localnet):
    """A strict one, with blocks of 0.2 s, reveals after 5 of them, and no rate limit."""
    return start_localnet("--like", "strict", "--block-time", "0.2", "--blocks-until-reveal", "5", "--rate-limit", "0")


@pytest.fixture
def deployed(start_localnet):
    """One like the deployed validator, whose reveals need no wait."""
    return start_localnet("--like", "2026-02", "--blocks-until-reveal", "0")


@pytest.fixture
def alice(localnet, make_miner):
    """Registered."""
    miner = make_miner("alice")
    assert register(localnet, miner).json["status"] == "registered"
    return miner


def test_health(localnet):
    answer = localnet.get("/health")
    assert answer.status == 200 and answer.json == {"status": "ok"}
    assert answer.headers["Content-Type"] == "application/json" and answer.headers["Date"]


def test_registering(localnet, make_miner):
    miner = make_miner("alice")
    answer = register(localnet, miner)
    assert answer.status == 200
    assert answer.json == {"status": "registered", "hotkey": miner.address, "model_name": "m", "league": "1M"}
    assert register(localnet, miner).json == {"status": "already_registered", "hotkey": miner.address,
                                              "model_name": "m", "league": "1M", "current_score": 0}
    assert register(localnet, miner, league="100k").json["status"] == "registered"
    refused = register(localnet, miner, league="7k")
    assert refused.status == 400 and "league" in refused.detail


def test_submitting(localnet, alice):
    benchmarks = {"4096": {"tokens_per_sec": 1.5, "vram_mb": 10.0}}
    answer = submit(localnet, alice, vram_mb=512.5, repo_hash="r", benchmarks=benchmarks)
    assert answer.status == 200
    assert answer.json.pop("created_at")
    assert {k: v for k, v in answer.json.items() if k != "created_at"} == {
        "submission_id": 1, "miner_hotkey": alice.address, "fork_url": URL, "commit_hash": "c0ffee",
        "target_sequence_length": 1000000, "tokens_per_sec": 50000.0, "vram_mb": 512.5, "benchmarks": benchmarks,
        "repo_hash": None}
    assert submit(localnet, alice).json["vram_mb"] is None
    stats = localnet.get("/get_submission_stats?limit=1").json
    assert stats["total_submissions"] == 2 and len(stats["recent_submissions"]) == 1
    stats = localnet.get("/get_submission_stats").json
    assert stats["recent_submissions"][1] == {
        "id": 1, "miner_hotkey": alice.address, "fork_url": URL, "commit_hash": "c0ffee", "repo_hash": "r",
        "target_sequence_length": 1000000, "tokens_per_sec": 50000.0, "vram_mb": 512.5,
        "benchmarks": benchmarks, "validated": False, "created_at": answer.json["created_at"]}
    assert set(stats["stats"]) == {"avg_tokens_per_sec", "max_tokens_per_sec", "min_tokens_per_sec",
                                   "total_submissions"}
    assert [entry["id"] for entry in stats["top_performers"]] in ([1, 2], [2, 1])
    assert localnet.get("/get_submission_rate?window_minutes=5").json == {
        "submissions_per_minute": 0.4, "recent_submissions": 2, "window_minutes": 5}


def test_commit_and_reveal(start_localnet, make_miner):
    localnet = start_localnet("--block-time", "1", "--blocks-until-reveal", "5")
    alice = make_miner("alice")
    register(localnet, alice)
    began = int(time.time())
    answer = commit(localnet, alice, "ab" * 32)
    before = localnet.get("/pending_reveals").json
    assert answer.status == 200
    assert set(answer.json) == {"submission_id", "commitment_hash", "reveal_block", "estimated_reveal_time",
                                "message"}
    assert answer.json["reveal_block"] - before["current_block"] <= 5
    assert began <= answer.json["reveal_block"] - 5 + 1609459200 <= before["current_block"] + 1609459200 <= time.time()
    submission = answer.json["submission_id"]
    assert before["pending_reveals"][0].items() >= {
        "submission_id": submission, "miner_hotkey": alice.address,
        "commitment_hash": answer.json["commitment_hash"][:16] + "...",
        "reveal_block": answer.json["reveal_block"]}.items()

    again = commit(localnet, alice, "ab" * 32)
    assert (again.status, again.detail) == (409, "Commitment hash already exists. Use a different salt.")
    early = reveal(localnet, alice, submission, "ab" * 32)
    assert early.status == 425 and early.detail.startswith("Cannot reveal yet. Wait ")
    hidden = localnet.get("/get_submission_stats").json["recent_submissions"][0]
    assert hidden["fork_url"] is None and hidden["tokens_per_sec"] == 0

    wait_until_revealable(localnet)
    assert reveal(localnet, alice, submission + 1, "ab" * 32).status == 404
    mismatch = reveal(localnet, alice, submission, "cd" * 32)
    assert mismatch.status == 400 and "mismatch" in mismatch.detail
    done = reveal(localnet, alice, submission, "ab" * 32, vram_mb=3.0)
    assert done.status == 200 and done.json.pop("message")
    assert {k: v for k, v in done.json.items() if k != "message"} == {
        "submission_id": submission, "miner_hotkey": alice.address, "fork_url": URL, "commit_hash": "c0ffee",
        "is_revealed": True}
    assert reveal(localnet, alice, submission, "ab" * 32).status == 409
    assert localnet.get("/pending_reveals").json["pending_reveals"] == []


def test_rounds_rankings_and_weights(localnet, alice):
    current = localnet.get("/get_current_round").json
    assert current["round_number"] == 1 and current["status"] == "active"
    assert 48 * 3600 - 60 < current["time_remaining_seconds"] <= 48 * 3600
    assert set(current) == {"id", "round_number", "start_time", "end_time", "status", "time_remaining_seconds",
                            "baseline_submission_id", "winner_hotkey", "total_submissions"}
    ids = [submit(localnet, alice, tokens_per_sec=speed).json["submission_id"] for speed in (3, 9, 5, 7, 1, 99)]
    for submission in ids[:5]:
        answer = localnet.post("/mark_validated", {"submission_id": submission, "score": 1.25})
        assert answer.json == {"status": "ok", "submission_id": submission, "score": 1.25}
    verified = localnet.post(f"/record_verification?submission_id={ids[3]}&verified=false&cosine_similarity=0.5"
                             "&max_abs_diff=3&throughput=9.5&reason=no%20match")
    assert verified.json == {"status": "recorded", "verified": False}
    assert localnet.get("/verification_stats").json == {
        "total_submissions": 6, "verified_passed": 0, "verified_failed": 1, "pending_verification": 5,
        "pass_rate": 0, "avg_cosine_similarity": 0.5, "avg_max_abs_diff": 3}
    assert localnet.get("/verification_stats?round_id=77").json["total_submissions"] == 0

    assert localnet.get("/get_weights").json["weights"] == []
    final = localnet.post(f"/finalize_round/{current['id']}").json
    assert final["status"] == "completed" and final["round_id"] == current["id"]
    assert final["winner"] == alice.address
    assert [entry["submission_id"] for entry in final["rankings"]] == [ids[1], ids[2], ids[0], ids[4]]
    assert [entry["rank"] for entry in final["rankings"]] == [1, 2, 3, 4]
    assert final["rankings"][0]["weighted_score"] == 27 and final["rankings"][0]["league"] == "1M"
    again = localnet.post(f"/finalize_round/{current['id']}")
    assert (again.status, again.detail) == (400, "Round already finalized")
    assert localnet.post("/finalize_round/77").status == 404

    weights = localnet.get("/get_weights").json
    assert abs(weights["epoch"] - time.time()) < 60
    assert weights["weights"] == [{"uid": 0, "hotkey": alice.address, "weight": w} for w in (0.6, 0.25, 0.1, 0.05)]
    assert localnet.get(f"/get_weights?round_id={current['id']}").json["weights"] == weights["weights"]

    following = localnet.post("/create_round", {"duration_hours": 2}).json
    assert following["round_number"] == 2 and following["baseline_submission_id"] == ids[1]
    assert 7100 < following["time_remaining_seconds"] <= 7200


def test_judges_are_refused_what_makes_no_sense(localnet):
    assert localnet.post("/mark_validated", {"score": 1}).status == 400
    assert localnet.post("/mark_validated", {"submission_id": 5, "score": 1}).status == 404
    assert localnet.post("/record_verification?submission_id=5&verified=true").status == 404
    assert localnet.post("/record_failure", {}).json == {"status": "ok", "message": "No IP address provided"}
    assert localnet.post("/create_round", {"duration_hours": "soon"}).status == 422


@pytest.mark.parametrize("path", ["/register_miner", "/submit_kernel", "/commit_submission", "/reveal_submission"])
def test_unsigned_requests_change_nothing(localnet, alice, make_miner, path):
    mallory = make_miner("mallory")
    assert submit(localnet, alice).status == 200
    submission = commit(localnet, alice, "ab" * 32).json["submission_id"]
    wait_until_revealable(localnet)
    body = {"/register_miner": {"hotkey": mallory.address, "model_name": "m", "league": "1M"},
            "/submit_kernel": kernel(alice), "/commit_submission": commitment(alice, "cd" * 32),
            "/reveal_submission": revelation(alice, submission, "ab" * 32)}[path]
    before = state(localnet)
    signature = alice.headers["Signature"]
    flipped = f"{signature[:20]}{int(signature[20], 16) ^ 1:x}{signature[21:]}"
    for headers in ({}, {"Hotkey": alice.address}, {"Signature": signature},
                    {"Hotkey": "", "Signature": signature}, {"Hotkey": alice.address, "Signature": ""},
                    {"Hotkey": alice.address, "Signature": "0x" + signature},
                    {"Hotkey": alice.address, "Signature": signature[:-2]},
                    {"Hotkey": alice.address, "Signature": signature + "00"},
                    {"Hotkey": alice.address, "Signature": "zz" * 64},
                    {"Hotkey": alice.address, "Signature": flipped},
                    {"Hotkey": alice.address, "Signature": mallory.headers["Signature"]},
                    {"Hotkey": "x" * 48, "Signature": signature}):
        answer = localnet.post(path, body, headers)
        assert answer.status == 401 and isinstance(answer.detail, str)
    if path != "/register_miner":
        unregistered = localnet.post(path, {**body, "miner_hotkey": mallory.address}, mallory.headers)
        assert (unregistered.status, unregistered.detail) == (404, "Miner not registered")
        register(localnet, mallory)
        foreign = localnet.post(path, body, mallory.headers)
    else:
        foreign = localnet.post(path, body, alice.headers)
    assert (foreign.status, foreign.detail) == (403, "Hotkey mismatch")
    assert state(localnet) == before


def test_another_ones_commitment_cannot_be_revealed(localnet, alice, make_miner):
    mallory = make_miner("mallory")
    register(localnet, mallory)
    submission = commit(localnet, alice, "ab" * 32).json["submission_id"]
    wait_until_revealable(localnet)
    before = state(localnet)
    assert reveal(localnet, mallory, submission, "ab" * 32).status == 404
    assert state(localnet) == before


def test_five_mismatches_ban_the_address(localnet, alice, make_miner):
    submission = commit(localnet, alice, "ab" * 32).json["submission_id"]
    wait_until_revealable(localnet)
    assert [reveal(localnet, alice, submission, "cd" * 32).status for _ in range(5)] == [400] * 5
    before = state(localnet)
    for answer in (reveal(localnet, alice, submission, "ab" * 32), submit(localnet, alice),
                   commit(localnet, alice, "ef" * 32), register(localnet, make_miner("bob"))):
        assert answer.status == 403
        assert answer.detail.startswith("IP address banned: ") and "24.0 more hours" in answer.detail
    assert state(localnet) == before
    localnet.restart()
    assert submit(localnet, alice).status == 403


def test_the_rate_limit(start_localnet, make_miner):
    localnet = start_localnet("--like", "strict", "--rate-limit", "3")
    alice = make_miner("alice")
    assert [register(localnet, alice).status for _ in range(4)] == [200, 200, 200, 429]
    limited = register(localnet, alice)
    assert 50 <= int(limited.headers["Retry-After"]) <= 60 and "Rate limit" in limited.detail
    assert register(localnet, make_miner("bob")).status == 200
    assert localnet.get("/pending_reveals").status == 200


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_everything(localnet, alice, how):
    submit(localnet, alice)
    submission = commit(localnet, alice, "ab" * 32).json["submission_id"]
    localnet.post("/mark_validated", {"submission_id": 1, "score": 1})
    localnet.post(f"/finalize_round/{localnet.get('/get_current_round').json['id']}")
    before = state(localnet)
    localnet.restart(how)
    assert state(localnet) == before
    assert register(localnet, alice).json["status"] == "already_registered"
    wait_until_revealable(localnet)
    assert reveal(localnet, alice, submission, "ab" * 32).status == 200


# --- FastAPI's words --------------------------------------------------------------------------------


def test_unknown_paths_and_methods(localnet):
    for path in ("/nope", "/health/", "/finalize_round", "/finalize_round/1/2", "//health", "/finalize_round/"):
        answer = localnet.post(path)
        assert (answer.status, answer.json) == (404, {"detail": "Not Found"}), path
    for method, path, allowed in (("POST", "/health", "GET"), ("GET", "/submit_kernel", "POST"),
                                  ("DELETE", "/finalize_round/1", "POST"), ("PUT", "/get_weights", "GET")):
        answer = localnet.request(method, path)
        assert (answer.status, answer.json) == (405, {"detail": "Method Not Allowed"})
        assert answer.headers["Allow"] == allowed


@pytest.mark.parametrize("fields, problems", [
    ({"target_sequence_length": "many"}, [(["body", "target_sequence_length"], "int_parsing")]),
    ({"target_sequence_length": 1.5}, [(["body", "target_sequence_length"], "int_from_float")]),
    ({"target_sequence_length": None}, [(["body", "target_sequence_length"], "int_type")]),
    ({"tokens_per_sec": {}}, [(["body", "tokens_per_sec"], "float_type")]),
    ({"fork_url": 7, "commit_hash": ["x"]},
     [(["body", "fork_url"], "string_type"), (["body", "commit_hash"], "string_type")]),
    ({"benchmarks": {"4096": {"tokens_per_sec": "fast"}}},
     [(["body", "benchmarks", "4096", "tokens_per_sec"], "float_type")]),
])
def test_wrong_types_are_named(localnet, alice, fields, problems):
    answer = submit(localnet, alice, **fields)
    assert answer.status == 422
    assert [(entry["loc"], entry["type"]) for entry in answer.detail] == problems
    assert all(entry["msg"] for entry in answer.detail)


@pytest.mark.parametrize("path", ["/register_miner", "/submit_kernel", "/commit_submission", "/reveal_submission",
                                  "/mark_validated", "/record_failure", "/create_round"])
@pytest.mark.parametrize("body", [b"", b"{", b"[1, 2]", b"null", b'"text"', b"\xff\xfe", b"{}{}", b'{"a": \xff}',
                                  pytest.param(b"[" * 5000, id="deep"), b'{"a": 1e}'])
def test_bodies_that_are_no_object(localnet, alice, path, body):
    before = state(localnet)
    answer = localnet.post(path, body, alice.headers)
    assert answer.status == 422 and answer.detail[0]["loc"][0] == "body"
    assert state(localnet) == before


def test_a_body_that_is_not_declared_as_json_is_not_read(localnet):
    """So no page in a browser can have it changed: such requests can only be of plain types."""
    round_before = localnet.get("/get_current_round").json["id"]
    answer = localnet.post("/create_round", {}, {"Content-Type": "text/plain"})
    assert answer.status == 422
    assert localnet.get("/get_current_round").json["id"] == round_before
    assert localnet.post("/create_round", {}, {"Content-Type": "application/json; charset=utf-8"}).status == 200


@pytest.mark.parametrize("path", ["/get_submission_stats?limit=x", "/get_submission_rate?window_minutes=1.5",
                                  "/get_weights?round_id=", "/verification_stats?round_id=[]"])
def test_wrong_queries(localnet, path):
    answer = localnet.get(path)
    assert answer.status == 422 and answer.detail[0]["loc"][0] == "query"


# --- abuse ------------------------------------------------------------------------------------------


def test_a_large_body_is_refused_and_the_connection_lives(localnet, alice):
    connection = http.client.HTTPConnection("127.0.0.1", localnet.port, timeout=LONG)
    headers = {**alice.headers, "Content-Type": "application/json"}
    connection.request("POST", "/submit_kernel", json.dumps(kernel(alice, fork_url="x" * 70000)), headers)
    answer = connection.getresponse()
    assert answer.status == 413 and "65536" in json.load(answer)["detail"]
    connection.request("POST", "/submit_kernel", json.dumps(kernel(alice)), headers)
    assert connection.getresponse().status == 200
    connection.close()


def raw(localnet, data, wants_answer):
    """Sends bytes and returns the head of the answer, b"" when the server just hangs up."""
    with socket.create_connection(("127.0.0.1", localnet.port), timeout=LONG) as stream:
        answer = b""
        try:
            stream.sendall(data)
            while wants_answer and b"\r\n\r\n" not in answer and (piece := stream.recv(65536)):
                answer += piece
        except ConnectionError:
            pass
        return answer


@pytest.mark.parametrize("data, status", [
    pytest.param(data, status, id=name) for name, data, status in (
        ("no request", b"nonsense\r\n\r\n", None),
        ("no host", b"GET /health HTTP/1.1\r\n\r\n", b"400"),
        ("version", b"GET /health HTTP/9.9\r\nHost: x\r\n\r\n", b"505"),
        ("huge", b"POST /submit_kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n", b"413"),
        ("negative", b"POST /submit_kernel HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", b"400"),
        ("chunk", b"POST /submit_kernel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", None),
        ("long path", b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", None),
        ("many headers", b"GET /health HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20000 + b"\r\n", None),
        ("zeros", b"\x00" * 5000, None),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None))])
def test_malformed_requests_hurt_nobody(localnet, data, status):
    answer = raw(localnet, data, status is not None)
    assert status is None or answer.split(b" ")[1] == status
    assert localnet.get("/health").status == 200


def test_a_slow_client_is_cut_off_and_stops_nobody(start_localnet, make_miner):
    """The head arrives a byte at a time: the time for a request runs from its first byte."""
    localnet = start_localnet("--request-timeout", "2", "--rate-limit", "0")
    alice = make_miner("alice")
    register(localnet, alice)
    slow = [socket.create_connection(("127.0.0.1", localnet.port), timeout=LONG) for _ in range(50)]
    started = time.monotonic()
    cut = threading.Event()

    def trickle():
        try:
            for byte in b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 10000:
                for stream in slow:
                    stream.send(bytes([byte]))
                if cut.wait(0.2):
                    return
        except OSError:
            cut.set()

    thread = threading.Thread(target=trickle)
    thread.start()
    answered = 0
    while not cut.is_set():
        assert submit(localnet, alice).status == 200
        answered += 1
        assert time.monotonic() - started < LONG, "the slow clients were never cut off"
    thread.join()
    assert answered > 10
    for stream in slow:
        stream.close()


def test_more_connections_than_there_is_room_for(start_localnet):
    """Those that do nothing give way to those that ask."""
    localnet = start_localnet("--connections", "64")
    idle = [socket.create_connection(("127.0.0.1", localnet.port), timeout=LONG) for _ in range(200)]
    for _ in range(20):
        assert localnet.get("/pending_reveals").status == 200
    for stream in idle:
        stream.close()


def test_a_query_of_many_arguments_is_refused(localnet):
    query = "&".join(f"a{number}={number}" for number in range(1000))
    answer = localnet.get("/get_weights?" + query)
    assert answer.status == 400 and "100" in answer.detail


# --- like the deployed one --------------------------------------------------------------------------


def test_which_one_it_is_like(start_localnet, quasar):
    assert start_localnet().like == "2026-02"
    done = quasar("localnet", "--like", "2025")
    assert done.code == 2 and "2026-02" in done.err and "strict" in done.err


def test_faults_of_the_deployed_one(deployed, make_miner):
    alice = make_miner("alice")
    assert register(deployed, alice).status == 200
    again = register(deployed, alice, league="100k")
    assert (again.status, again.body) == (500, b"Internal Server Error")
    assert again.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert deployed.post("/create_round", {}).status == 500
    current = deployed.get("/get_current_round").json
    assert current["round_number"] == 1
    assert deployed.post(f"/finalize_round/{current['id']}").json == {"status": "completed", "winners": []}
    assert submit(deployed, alice).status == commit(deployed, alice, "ab").status == 500
    assert deployed.get("/get_current_round").json["round_number"] == 2
    assert commit(deployed, alice, "ab").status == 200
    answer = deployed.post("/submit_kernel", json.dumps(kernel(alice, fork_url="\ud800")).encode(), alice.headers)
    assert answer.status == 500
    assert submit(deployed, alice, fork_url="a\0b", target_sequence_length=2**60).json["fork_url"] == "a\0b"
    assert deployed.get("/get_submission_stats").json["recent_submissions"][0]["target_sequence_length"] == 2**60
    assert reveal(deployed, alice, 2**63, "ab").status == 500
    answer = submit(deployed, alice, tokens_per_sec="fast")
    assert answer.status == 422 and answer.detail[0]["input"] == "fast"
    answer = deployed.post("/submit_kernel", b"{", alice.headers)
    assert answer.detail[0]["ctx"]["error"] and answer.detail[0]["input"] == {}


@pytest.mark.parametrize("speed", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_claim_that_is_no_number_spoils_everybodys_list(deployed, make_miner, speed):
    alice = make_miner("alice")
    register(deployed, alice)
    body = json.dumps(kernel(alice)).replace("50000.0", speed).encode()
    assert deployed.post("/submit_kernel", body, alice.headers).status == 500
    assert deployed.get("/get_submission_stats").status == 500
    assert deployed.get("/get_current_round").json["total_submissions"] == 1
    assert submit(deployed, alice).status == 200
    assert deployed.get("/get_submission_stats?limit=1").status == (500 if speed in ("Infinity", "1e400") else 200)


def test_pages_of_others_may_read_but_change_nothing(deployed, localnet):
    for server in (deployed, localnet):
        round_id = server.get("/get_current_round").json["id"]
        for path, body in ((f"/finalize_round/{round_id}", None), ("/mark_validated", {"submission_id": 1}),
                           ("/record_verification?submission_id=1&verified=true", None)):
            answer = server.post(path, body, {"Origin": "https://page.example"})
            assert answer.status == 403 and "origin" in answer.detail
        assert server.get("/get_current_round").json["id"] == round_id
        assert server.post(f"/finalize_round/{round_id}", None, {"Origin": server.url}).status == 200
    answer = deployed.request("GET", "/health", None, {"Origin": "https://page.example"})
    assert answer.headers["Access-Control-Allow-Origin"] == "https://page.example"
    assert localnet.request("GET", "/health", None, {"Origin": "https://page.example"}).headers[
        "Access-Control-Allow-Origin"] is None


def test_a_slash_too_many_leads_on(deployed):
    assert deployed.get("/get_weights/?round_id=1").json["weights"] == []  # urllib follows a GET
    connection = http.client.HTTPConnection("127.0.0.1", deployed.port, timeout=LONG)
    connection.request("POST", "/register_miner/", "{}")
    answer = connection.getresponse()
    assert answer.status == 307 and answer.getheader("Location") == deployed.url + "/register_miner"
    connection.close()


def test_what_it_takes_does_not_fill_the_memory(deployed, make_miner):
    """The deployed one takes bodies and lists of any size. Here a list ends at 32 MiB, and the rest is still served."""
    alice = make_miner("alice")
    register(deployed, alice)
    for _ in range(12):
        assert submit(deployed, alice, fork_url="u" * 3000000).status == 200
    assert submit(deployed, alice, fork_url="u" * 5000000).status == 413
    threads = [threading.Thread(target=deployed.get, args=("/get_submission_stats",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert deployed.get("/get_submission_stats").status == 500
    assert len(deployed.get("/get_submission_stats?limit=5").json["recent_submissions"]) == 5
    peak = next(line for line in open(f"/proc/{deployed.pid}/status") if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 700 << 10


def test_the_score_to_beat_and_the_rewards_are_found(deployed, make_miner, quasar):
    alice, bob = make_miner("alice"), make_miner("bob")
    for miner in (alice, bob):
        register(deployed, miner)

    def end_round():
        deployed.post(f"/finalize_round/{deployed.get('/get_current_round').json['id']}")
        deployed.get("/get_current_round")

    def ask(command):
        done = quasar(command, "--json", "--api", deployed.url)
        assert done.code == 0, done.err
        return done.json

    assert ask("round")["to_beat"] is None
    assert ask("leaderboard")["rewards"] == []
    for miner, speed in ((alice, 2e6), (alice, 1e6), (bob, 1.5e6)):
        submission = submit(deployed, miner, tokens_per_sec=speed).json["submission_id"]
        deployed.post("/mark_validated", {"submission_id": submission, "score": 0.5})
    end_round()
    assert ask("round")["to_beat"] == {"submission_id": 1, "hotkey": alice.address, "weighted_score": 6e6,
                                       "at_most": False}
    assert ask("leaderboard")["rounds_since_rewards"] == 0
    submit(deployed, alice, tokens_per_sec=9e6)  # in this round: nothing to be beaten yet
    assert ask("round")["to_beat"]["weighted_score"] == 6e6

    for _ in range(3):
        end_round()
    assert deployed.get("/get_weights").json["weights"] == []
    board = ask("leaderboard")
    assert board["rounds_since_rewards"] == 3
    assert [entry["hotkey"] for entry in board["rewards"]] == [alice.address, bob.address, alice.address]
    assert ask("round")["to_beat"]["at_most"]
    text = quasar("round", "--api", deployed.url).out
    assert "at most weighted score" in text and alice.address in text
    assert "latest round that had any" in quasar("leaderboard", "--api", deployed.url).out


# --- the process ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly(localnet, how):
    assert localnet.stop(how) == 0


def test_what_was_received_is_answered_before_it_ends(localnet, alice):
    """Whoever got an answer is in the database, whoever got none may ask again."""
    answered = []

    def send(number):
        try:
            answer = submit(localnet, alice, tokens_per_sec=number)
        except (OSError, http.client.HTTPException):
            return
        if answer.status == 200:
            answered.append(answer.json["submission_id"])
        else:
            assert answer.status == 503

    threads = [threading.Thread(target=send, args=(number,)) for number in range(1, 30)]
    for thread in threads:
        thread.start()
    assert localnet.stop() == 0
    for thread in threads:
        thread.join()
    localnet.start("--port", "0")
    kept = {entry["id"] for entry in localnet.get("/get_submission_stats").json["recent_submissions"]}
    assert set(answered) <= kept


def test_a_full_disk_is_answered_with_500_and_survived(localnet, alice):
    """As far as a limit on file sizes stands for it: writes fail, and later succeed again."""
    localnet.command = ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", *localnet.command]
    localnet.restart()
    limits = resource.prlimit(localnet.process.pid, resource.RLIMIT_FSIZE)
    accepted = [commit(localnet, alice, "before").json["submission_id"]]
    resource.prlimit(localnet.process.pid, resource.RLIMIT_FSIZE, (100000, limits[1]))
    answers = [commit(localnet, alice, f"during {number}") for number in range(100)]
    assert {answer.status for answer in answers} == {200, 500}
    assert answers[-1].body == b"Internal Server Error" and localnet.get("/health").status == 200
    accepted += [answer.json["submission_id"] for answer in answers if answer.status == 200]
    resource.prlimit(localnet.process.pid, resource.RLIMIT_FSIZE, limits)
    accepted.append(commit(localnet, alice, "after").json["submission_id"])
    localnet.restart(signal.SIGKILL)
    kept = [entry["submission_id"] for entry in localnet.get("/pending_reveals").json["pending_reveals"]]
    assert kept == accepted
    assert "database" in (localnet.cwd / "localnet.log").read_text()


def test_a_port_in_use_and_a_database_in_use(localnet, quasar, tmp_path):
    done = quasar("localnet", "--port", localnet.port, "--db", "other.db")
    assert done.code == 3 and str(localnet.port) in done.err and "port" in done.err
    done = quasar("localnet", "--port", "0", "--db", localnet.db)
    assert done.code == 3 and localnet.db in done.err and "Another process" in done.err
    (tmp_path / "text.db").write_text("this is no database, but it is long enough to be taken for one" * 50)
    done = quasar("localnet", "--port", "0", "--db", "text.db")
    assert done.code == 3 and "text.db" in done.err
    done = quasar("localnet", "--port", "0", "--db", tmp_path / "missing" / "x.db")
    assert done.code == 3
    assert quasar("localnet", "--host", "nonsense.invalid").code == 3
    for wrong in (("--port", "70000"), ("--block-time", "0"), ("--blocks-until-reveal", "-1"), ("--port", "x")):
        assert quasar("localnet", *wrong).code == 2


def test_what_it_says_and_where_it_keeps_things(quasar, environment, tmp_path):
    assert quasar("init", "work").code == 0
    process = subprocess.Popen([QUASAR, "localnet", "--port", "0", "-v"], cwd=tmp_path / "work" / "fork", text=True,
                               env={**environment, "BLOCKS_UNTIL_REVEAL": "7"},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline().startswith("Listening on http://127.0.0.1:")
    database = tmp_path / "work" / "localnet.db"
    assert f"{database};" in (line := process.stdout.readline()) and "after 7 blocks" in line
    process.terminate()
    process.communicate(timeout=LONG)
    assert process.returncode == 0 and database.stat().st_mode & 0o777 == 0o600


def test_requests_are_logged_without_what_steers_a_terminal(start_localnet):
    localnet = start_localnet("-v")
    raw(localnet, b"GET /%1b%5b31mred%0aline HTTP/1.1\r\nHost: x\r\n\r\n", True)
    assert localnet.get("/health").status == 200
    localnet.stop()
    log = (localnet.cwd / "localnet.log").read_text()
    assert "GET /red line 404" in log and "\x1b" not in log and "GET /health 200" in log
