"""What goes wrong between a miner and the validator: what arrives there, what the user is told, and how the
command ends."""
import json
import signal
import subprocess

import pytest

from conftest import QUASAR
from patience import LONG
from scripted_server import flood, raw, redirect, refuse, reply, stall

ROUND = {"id": 1, "round_number": 1, "start_time": "2026-11-20T10:00:00", "end_time": "2026-11-22T10:00:00.5",
         "status": "active", "time_remaining_seconds": 4000, "baseline_submission_id": None,
         "winner_hotkey": None, "total_submissions": 12}
STATS = {"total_submissions": 1, "top_performers": [],
         "stats": {"avg_tokens_per_sec": 0.0, "max_tokens_per_sec": 0.0, "min_tokens_per_sec": 0.0,
                   "total_submissions": 1},
         "recent_submissions": [
             {"id": 1, "miner_hotkey": "5Someone", "fork_url": "https://host/fork", "commit_hash": "c0ffee",
              "repo_hash": None, "target_sequence_length": 1000000, "tokens_per_sec": 2.5e6, "vram_mb": None,
              "benchmarks": {"4096": {"tokens_per_sec": 1.0}}, "validated": False,
              "created_at": "2026-11-20T18:14:00.123456"}]}
WEIGHTS = {"epoch": 1, "weights": [{"uid": 0, "hotkey": "5Someone", "weight": 0.6}]}


def registered(address, **changes):
    return reply(200, {"status": "registered", "hotkey": address, "model_name": "Qwen/Qwen2.5-0.5B-Instruct",
                       "league": "100k", **changes})


# --- as it should be -----------------------------------------------------------------------------

def test_round(quasar, serve):
    server = serve(reply(200, ROUND))
    done = quasar("round", "--json", "--api", server.url)
    assert done.code == 0 and done.err == ""
    assert done.json["round_number"] == 1 and done.json["to_beat"] is None and done.json["baseline_submission_id"] is None
    assert [request.path for request in server.requests] == ["/get_current_round"]
    assert server.requests[0].headers["User-Agent"].startswith("quasar/")
    assert "Signature" not in server.requests[0].headers
    text = quasar("round", "--api", server.url + "/")  # a slash at the end does no harm
    assert "round        1 (active)" in text.out and "1 h 06 min" in text.out
    assert server.requests[1].path == "/get_current_round"


def test_round_shows_the_score_to_beat(quasar, serve):
    server = serve(reply(200, {**ROUND, "baseline_submission_id": 1}), reply(200, STATS))
    done = quasar("round", "--json", "--api", server.url)
    assert done.json["to_beat"] == {"submission_id": 1, "hotkey": None, "weighted_score": 7.5e6, "at_most": False}
    assert "7,500,000" in quasar("round", "--api", serve(*server.steps).url).out


def test_leaderboard_marks_the_own_hotkey(quasar, serve, hotkey):
    own = {**STATS["recent_submissions"][0], "id": 2, "miner_hotkey": hotkey, "tokens_per_sec": 9e6}
    stats = {**STATS, "recent_submissions": STATS["recent_submissions"] + [own]}
    steps = [reply(200, stats), reply(200, {"epoch": 1, "weights": [{"uid": 0, "hotkey": hotkey, "weight": 0.6}]})]
    done = quasar("leaderboard", "--json", "--api", serve(*steps).url)
    assert [(entry["submission_id"], entry["own"]) for entry in done.json["ranking"]] == [(2, True), (1, False)]
    assert done.json["rewards"] == [{"hotkey": hotkey, "own": True, "weight": 0.6}]
    text = quasar("leaderboard", "--api", serve(*steps).url).out
    assert [line.split()[0] for line in text.splitlines() if line.endswith("you")] == ["1", "60"]
    assert "27,000,000" in text and "does not show" in text


def test_leaderboard_without_submissions_or_wallet(quasar, serve):
    server = serve(reply(200, {**STATS, "recent_submissions": []}), reply(200, {"epoch": 1, "weights": []}),
                   reply(200, ROUND))
    done = quasar("leaderboard", "--api", server.url)
    assert done.code == 0 and "Nothing has been revealed yet" in done.out and "No round has had rewards" in done.out


def test_register_sends_what_the_settings_say(quasar, serve, hotkey):
    server = serve(registered(hotkey, league="1M", model_name="some/model"))
    done = quasar("register", "--json", "--seq", "1M",
                  env={"VALIDATOR_API_URL": server.url, "REFERENCE_MODEL": "some/model"})
    assert done.code == 0, done.err
    assert done.json == {"status": "registered", "hotkey": hotkey, "league": "1M", "model_name": "some/model"}
    [request] = server.requests
    assert (request.method, request.path) == ("POST", "/register_miner")
    assert request.json == {"hotkey": hotkey, "model_name": "some/model", "league": "1M"}
    assert request.headers["Hotkey"] == hotkey and request.headers["Content-Type"] == "application/json"
    assert quasar("wallet", "verify", "--address", hotkey, "--message-hex", hotkey.encode().hex(),
                  "--signature", request.headers["Signature"]).code == 0


def test_register_again(quasar, serve, hotkey):
    done = quasar("register", "--api", serve(registered(hotkey, status="already_registered", current_score=0.5)).url)
    assert done.code == 0 and "already registered" in done.out


def test_register_without_a_wallet_asks_nothing(quasar, serve):
    server = serve(reply(200, {}))
    done = quasar("register", "--api", server.url)
    assert done.code == 3 and "quasar wallet" in done.err and server.requests == []


# --- answers that are none -----------------------------------------------------------------------

@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b"[]", b"null", b"{} {}", b'{"id": 1e999}', b"\xff\xfe",
                                  b"[" * 100000, json.dumps(ROUND).encode() + b"x"], ids=range(10))
def test_what_is_not_a_json_object_is_refused(quasar, serve, body):
    server = serve(reply(200, body))
    done = quasar("round", "--api", server.url)
    assert done.code == 4 and "GET /get_current_round" in done.err and done.out == ""
    assert "VALIDATOR_API_URL" in done.err
    assert len(server.requests) == 1


def test_a_web_page_is_named_as_such(quasar, serve):
    done = quasar("round", "--api", serve(reply(200, b"<html>", content_type="text/html")).url)
    assert done.code == 4 and "text/html" in done.err


@pytest.mark.parametrize("field", [field for field in ROUND if ROUND[field] is not None])
@pytest.mark.parametrize("wrong", ["missing", None, [], {"a": 1}, True], ids=str)
def test_a_field_that_is_missing_or_of_another_type_is_named(quasar, serve, field, wrong):
    answer = {**ROUND, field: wrong}
    if wrong == "missing":
        del answer[field]
    server = serve(reply(200, answer))
    done = quasar("round", "--api", server.url)
    assert done.code == 4 and f'"{field}"' in done.err and "GET /get_current_round" in done.err
    assert len(server.requests) == 1


@pytest.mark.parametrize("changes", [{"id": 0}, {"id": -1}, {"id": 1.5}, {"id": 1e300}, {"total_submissions": -1},
                                     {"start_time": "yesterday"}, {"end_time": ""}, {"winner_hotkey": 7},
                                     {"baseline_submission_id": "x"}], ids=str)
def test_a_value_that_cannot_be_is_named(quasar, serve, changes):
    done = quasar("round", "--api", serve(reply(200, {**ROUND, **changes})).url)
    assert done.code == 4 and f'"{next(iter(changes))}"' in done.err


def test_a_time_beyond_any_calendar_is_told_as_such(quasar, serve):
    answer = {**ROUND, "start_time": "0000-01-01T00:00:00", "end_time": "9999-12-31T23:59:59-23:59"}
    done = quasar("round", "--api", serve(reply(200, answer)).url)
    assert done.code == 0 and "began        ? at  UTC\nends         ? at  UTC, in 1 h 06 min\n" in done.out


def test_a_claim_beyond_all_numbers_is_not_cut(quasar, serve):
    row = {**STATS["recent_submissions"][0], "tokens_per_sec": 1.7e308, "target_sequence_length": 512}
    done = quasar("leaderboard", "--api", serve(reply(200, {**STATS, "recent_submissions": [row]}), reply(200, WEIGHTS)).url)
    assert done.code == 0 and "  1.7e+308  " in done.out


def test_what_is_cut_is_still_words(quasar, serve):
    """Names and times of others, cut to what there is room for, at any byte."""
    for odd in ("\u00e9" * 60, "x" + "\u00e9" * 60):
        row = {**STATS["recent_submissions"][0], "miner_hotkey": odd}
        steps = reply(200, {**STATS, "recent_submissions": [row]}), reply(200, WEIGHTS)
        assert f"{odd[:12]}…" in quasar("leaderboard", "--api", serve(*steps).url).out
        done = quasar("round", "--api", serve(reply(200, {**ROUND, "end_time": odd})).url)
        assert done.code == 4 and odd[:20] in done.err


ROW = STATS["recent_submissions"][0]
BAD_ROWS = [
    {"id": 2}, 7, None, [], "row", {**ROW, "id": 2 ** 63}, {**ROW, "id": "7"}, {**ROW, "id": 0},
    {**ROW, "miner_hotkey": None}, {**ROW, "tokens_per_sec": None}, {**ROW, "tokens_per_sec": "fast"},
    {**ROW, "target_sequence_length": 2 ** 60}, {**ROW, "fork_url": "https://" + "a" * (2 << 20)},
    {**ROW, "fork_url": "https://host/\x00hidden"}, {**ROW, "fork_url": "\ud800"}, {**ROW, "created_at": "yesterday"},
    {**ROW, "benchmarks": {str(n): {"tokens_per_sec": 1.0} for n in range(3000)}}, {**ROW, "commit_hash": {"a": 1}}]


def test_rows_that_make_no_sense_hide_no_others(quasar, serve):
    good = [{**ROW, "id": number + 1, "tokens_per_sec": float(number)} for number in range(len(BAD_ROWS))]
    rows = [row for pair in zip(good, BAD_ROWS) for row in pair]
    text = json.dumps({**STATS, "stats": None, "recent_submissions": rows})
    broken = text.replace('"created_at": "yesterday"', '"created_at": NaN')
    broken = broken.replace('"recent_submissions": [', '"recent_submissions": [{"id": 1e999}, {"id": ], , ')
    server = serve(reply(200, broken.encode()), reply(200, WEIGHTS))
    done = quasar("leaderboard", "--json", "--top", 1000, "--api", server.url)
    assert done.code == 0, done.err
    assert [entry["submission_id"] for entry in done.json["ranking"]] == [row["id"] for row in reversed(good)]
    assert done.json["skipped_rows"] == len(BAD_ROWS) + 3
    assert f"{len(BAD_ROWS) + 3} rows that make no sense" in done.err


def test_claims_that_cannot_be_averaged_are_ranked_like_others(quasar, serve):
    """Two claims of 1.7e308: their average is none."""
    rows = [{**ROW, "id": number, "tokens_per_sec": 1.7e308} for number in (2, 3)]
    stats = {**STATS, "recent_submissions": rows + [ROW], "stats": {**STATS["stats"], "avg_tokens_per_sec": None}}
    for extra in ([], ["--json"]):
        done = quasar("leaderboard", *extra, "--api", serve(reply(200, stats), reply(200, WEIGHTS)).url)
        assert done.code == 0 and done.err == "", done.err
    assert [entry["submission_id"] for entry in done.json["ranking"]] == [2, 3, 1]


@pytest.mark.parametrize("changes", [{"hotkey": "5Another"}, {"league": "1M"}, {"model_name": "x"},
                                     {"status": "perhaps"}], ids=str)
def test_an_answer_about_something_else_is_refused(quasar, serve, hotkey, changes):
    done = quasar("register", "--api", serve(registered(hotkey, **changes)).url)
    assert done.code == 4 and next(iter(changes)) in done.err and done.out == ""


MEGABYTE = b" " * (1 << 20)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n",
                                  b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n",
                                  b"HTTP/1.1 500 Oops\r\n\r\n"], ids=["endless", "announced", "refusal"])
def test_an_answer_of_a_gigabyte_is_cut_short(quasar, serve, head):
    server = serve(flood(head, MEGABYTE, 1024))
    done = quasar("round", "--api", server.url, "--timeout", "20")
    assert done.code == 4 and ("is too large" in done.err or "HTTP 500" in done.err)
    assert server.flooded < 64  # what the kernels' buffers hold included


def test_headers_without_end_are_cut_short(quasar, serve):
    server = serve(flood(b"HTTP/1.1 200 OK\r\n", b"X-Filler: " + b"x" * 1000 + b"\r\n", 1 << 20))
    done = quasar("round", "--api", server.url)
    assert done.code == 4 and server.flooded < 1 << 15


def test_what_does_not_speak_http(quasar, serve):
    done = quasar("round", "--api", serve(raw(b"220 smtp ready\r\n")).url, "--timeout", "1")
    assert done.code == 4 and "GET /get_current_round" in done.err


def test_escape_sequences_do_not_reach_the_terminal(quasar, serve):
    nasty = "\x1b]0;owned\x07\x1b[2Jhello\u202e\x9b31m\r\nworld"
    done = quasar("round", "--api", serve(refuse(404, nasty)).url)
    assert done.code == 4 and "hello" in done.err and "world" in done.err and "owned" not in done.err
    done_list = quasar("round", "--api", serve(reply(200, {**ROUND, "status": nasty, "winner_hotkey": nasty})).url)
    assert done_list.code == 0
    for text in (done.err, done_list.out):
        assert not any(ord(c) < 32 and c != "\n" or 0x7f <= ord(c) < 0xa0 or c == "\u202e" for c in text)


# --- refusals ------------------------------------------------------------------------------------

@pytest.mark.parametrize("status, detail, code, told", [
    (400, "Invalid league. Must be one of: 100k, 1M", 5, ["Must be one of: 100k, 1M"]),
    (401, "Invalid signature", 5, ["sr25519", "quasar wallet show"]),
    (401, "Missing Hotkey or Signature headers", 5, ["proxy"]),
    (403, "Hotkey mismatch", 5, ["WALLET_HOTKEY"]),
    (403, "IP address banned: IP banned for 23.5 more hours", 5, ["ends in 23 h 30 min", "UTC", "wrong reveals"]),
    (404, "Miner not registered", 5, ["quasar register"]),
    (404, "Not Found", 5, ["VALIDATOR_API_URL"]),
    (405, "Method Not Allowed", 5, ["VALIDATOR_API_URL"]),
    (401, "Authentication error: module has no attribute Keypair", 4, ["later"]),
    (409, "Commitment hash already exists. Use a different salt.", 4, ["later"]),  # words for another request
    (404, "Submission not found", 4, ["later"]),
    (425, "Cannot reveal yet. Wait 7 blocks (~1 minutes)", 4, ["later"])])
def test_refusals_are_told_in_the_validators_words_and_not_repeated(quasar, serve, hotkey, status, detail, code, told):
    server = serve(refuse(status, detail))
    done = quasar("register", "--api", server.url)
    assert done.code == code and done.out == ""
    assert detail in done.err and str(status) in done.err and all(words in done.err for words in told)
    assert len(server.requests) == 1


def test_a_schema_violation_is_made_readable(quasar, serve, hotkey):
    server = serve(refuse(422, [{"loc": ["body", "league"], "msg": "Field required", "type": "missing"},
                                {"loc": ["body", "hotkey"], "msg": "Input should be a valid string", "type": "x"}]))
    done = quasar("register", "--api", server.url)
    assert done.code == 5 and len(server.requests) == 1
    assert "league: Field required; hotkey: Input should be a valid string" in done.err


def test_a_refusal_without_words(quasar, serve):
    done = quasar("round", "--api", serve(reply(404, b"<html>gone</html>", content_type="text/html")).url)
    assert done.code == 4 and "Not Found" in done.err and "html" not in done.err and "VALIDATOR_API_URL" in done.err


def test_a_refusal_is_one_json_document(quasar, serve, hotkey):
    done = quasar("register", "--json", "--api", serve(refuse(404, "Miner not registered")).url)
    assert done.code == 5
    assert done.json["error"]["kind"] == "refused" and done.json["error"]["exit"] == 5
    assert "Miner not registered" in done.json["error"]["message"] and "quasar register" in done.json["error"]["hint"]


def test_the_end_of_a_ban_is_by_the_validators_clock(quasar, serve, hotkey):
    server = serve(refuse(403, "IP address banned: IP banned for 2.5 more hours"),
                   date="Tue, 14 Nov 2023 22:13:20 GMT")
    done = quasar("register", "--api", server.url)
    assert done.code == 5 and "2023-11-15 at about 00:43 UTC" in done.err


# --- worth another try ---------------------------------------------------------------------------

@pytest.mark.parametrize("fault", [refuse(504, "oops"), reply(502, b"<html>"), refuse(503, "busy"), refuse(429, "slow"),
                                   refuse(429, "slow", {"Retry-After": "1"}), raw(b""), raw(b"HTTP/1.1 200 OK\r\n"),
                                   raw(b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"id":')], ids=range(8))
@pytest.mark.parametrize("command", ["round", "register"])
def test_faults_that_pass_are_waited_out(quasar, serve, hotkey, fault, command):
    server = serve(fault, fault, reply(200, ROUND) if command == "round" else registered(hotkey))
    done = quasar(command, "--api", server.url)
    assert done.code == 0, done.err
    assert len(server.requests) == 3
    assert len({(request.method, request.path, request.body) for request in server.requests}) == 1


def test_a_fault_that_stays_ends_when_the_time_is_up(quasar, serve):
    server = serve(refuse(503, "down for today"))
    done = quasar("round", "--api", server.url, "--timeout", "2")
    assert done.code == 4 and "down for today" in done.err and "gave up after" in done.err
    assert len(server.requests) > 1


def test_a_500_to_a_registration_may_mean_that_there_is_one(quasar, serve, hotkey):
    server = serve(reply(500, b"Internal Server Error", content_type="text/plain; charset=utf-8"))
    done = quasar("register", "--api", server.url)
    assert done.code == 4 and "Internal Server Error" in done.err and "another league" in done.err
    assert len(server.requests) == 1


@pytest.mark.parametrize("value", ["3600", "Tue, 14 Nov 2023 23:13:20 GMT"])
def test_a_wait_longer_than_the_time_left_is_not_begun(quasar, serve, value):
    # as a date it is meant by the server's clock, which is years away from ours
    server = serve(refuse(429, "Rate limit exceeded", {"Retry-After": value}), date="Tue, 14 Nov 2023 22:13:20 GMT")
    done = quasar("round", "--api", server.url)
    assert done.code == 4 and "Rate limit exceeded" in done.err and "asks to wait 1 h 00 min" in done.err
    assert len(server.requests) == 1


@pytest.mark.parametrize("value", ["-5", "soon", "nan", "Tue, 14 Nov 2023 20:00:00 GMT"])
def test_a_wait_that_makes_no_sense_is_none(quasar, serve, value):
    server = serve(refuse(429, "slow", {"Retry-After": value}), reply(200, ROUND), date="Tue, 14 Nov 2023 22:13:20 GMT")
    assert quasar("round", "--api", server.url).code == 0
    assert len(server.requests) == 2


def test_a_long_wait_is_announced(quasar, serve):
    server = serve(refuse(503, "back soon", {"Retry-After": "1"}), reply(200, ROUND))
    assert "back soon" in quasar("round", "--api", server.url).err
    server = serve(refuse(503, "back soon", {"Retry-After": "1"}), reply(200, ROUND))
    assert quasar("round", "--quiet", "--api", server.url).err == ""


def test_no_answer_at_all(quasar, serve):
    server = serve(stall())
    done = quasar("round", "--api", server.url, "--timeout", "1")
    assert done.code == 4 and "no response in time" in done.err and len(server.requests) == 1


def test_nobody_there(quasar, serve):
    server = serve(reply(200, ROUND))
    server.close()
    done = quasar("round", "--api", server.url, "--timeout", "1")
    assert done.code == 4 and "cannot reach" in done.err and "quasar localnet" in done.err


def test_ctrl_c_ends_the_wait(environment, serve, tmp_path):
    server = serve(stall())
    process = subprocess.Popen([QUASAR, "round", "--api", server.url], cwd=tmp_path, stderr=subprocess.PIPE,
                               env=environment, text=True)
    assert server.arrived.wait(LONG)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert process.returncode == 130 and "interrupted" in err and len(server.requests) == 1


# --- redirects -----------------------------------------------------------------------------------

@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_on_the_same_host_everything_goes_along(quasar, serve, hotkey, status):
    server = serve(redirect("/moved/register_miner", status), registered(hotkey))
    assert quasar("register", "--api", server.url).code == 0
    first, second = server.requests
    assert second.path == "/moved/register_miner" and second.method == "POST" and second.body == first.body
    assert second.headers["Signature"] == first.headers["Signature"]


def test_a_signature_does_not_go_to_another_host(quasar, serve, hotkey):
    other = serve(registered(hotkey))
    for target in (f"http://localhost:{other.port}/", other.url + "/", f"//127.0.0.1:{other.port}/"):
        server = serve(redirect(target))
        done = quasar("register", "--api", server.url)
        assert done.code == 5 and "VALIDATOR_API_URL" in done.err and f":{other.port}" in done.err
        assert len(server.requests) == 1
    assert other.requests == []


def test_what_is_only_read_may_come_from_another_host(quasar, serve):
    other = serve(reply(200, ROUND))
    server = serve(redirect(f"http://localhost:{other.port}/there"))
    assert quasar("round", "--api", server.url).code == 0
    assert [request.path for request in other.requests] == ["/there"]


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/", "gopher://x/", "http://"])
def test_redirects_lead_to_http_only(quasar, serve, target):
    done = quasar("round", "--api", serve(redirect(target)).url, "--timeout", "2")
    assert done.code in (4, 5) and done.out == ""


def test_redirects_in_a_circle_end(quasar, serve):
    server = serve(redirect("/again"))
    done = quasar("round", "--api", server.url)
    assert done.code == 5 and "more than 5" in done.err and len(server.requests) == 6


# --- TLS -----------------------------------------------------------------------------------------

@pytest.fixture
def certificate(tmp_path):
    """Makes a self-signed certificate for an address, with its key, in one file."""

    def make(address, name="server.pem"):
        path = tmp_path / name
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName=IP:{address}",
                        "-keyout", path, "-out", tmp_path / "certificate"], check=True, capture_output=True)
        path.write_text(path.read_text() + (tmp_path / "certificate").read_text())
        return path

    return make


def test_a_certificate_that_nobody_vouches_for_is_refused(quasar, serve, hotkey, certificate):
    server = serve(registered(hotkey), certificate=certificate("127.0.0.1"))
    done = quasar("register", "--api", server.url, "--timeout", "1")
    assert done.code == 4 and "cannot trust" in done.err and "SSL_CERT_FILE" in done.err and server.requests == []


@pytest.fixture
def expired(tmp_path):
    """A self-signed certificate for 127.0.0.1 whose time is over, with its key, in one file."""
    key, request, path = (tmp_path / name for name in ("key", "request", "expired.pem"))
    subprocess.run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
                    "/CN=test", "-keyout", key, "-out", request], check=True, capture_output=True)
    (tmp_path / "index").touch()
    (tmp_path / "ca").write_text(f"[ca]\ndefault_ca = ca\n[ca]\ndatabase = {tmp_path}/index\nnew_certs_dir = {tmp_path}\n"
                                 "rand_serial = yes\ndefault_md = sha256\npolicy = any\nx509_extensions = names\n"
                                 "[any]\ncommonName = supplied\n[names]\nsubjectAltName = IP:127.0.0.1\n")
    subprocess.run(["openssl", "ca", "-batch", "-selfsign", "-config", tmp_path / "ca", "-keyfile", key, "-in", request,
                    "-out", path, "-notext", "-startdate", "20200101000000Z", "-enddate", "20200201000000Z"],
                   check=True, capture_output=True)
    path.write_text(key.read_text() + path.read_text())
    return path


def test_a_certificate_whose_time_is_over_is_refused(quasar, serve, hotkey, expired):
    server = serve(registered(hotkey), certificate=expired)
    done = quasar("register", "--api", server.url, "--timeout", "1", env={"SSL_CERT_FILE": str(expired)})
    assert done.code == 4 and "cannot trust" in done.err and "expired" in done.err and server.requests == []


def test_a_certificate_for_another_host_is_refused(quasar, serve, hotkey, certificate):
    path = certificate("192.0.2.1")
    server = serve(registered(hotkey), certificate=path)
    done = quasar("register", "--api", server.url, "--timeout", "1", env={"SSL_CERT_FILE": str(path)})
    assert done.code == 4 and "cannot trust" in done.err and server.requests == []


def test_a_certificate_that_is_trusted_serves(quasar, serve, hotkey, certificate):
    path = certificate("127.0.0.1")
    server = serve(registered(hotkey), certificate=path)
    done = quasar("register", "--api", server.url, env={"SSL_CERT_FILE": str(path)})
    assert done.code == 0, done.err


def test_from_https_nothing_goes_on_to_http(quasar, serve, certificate):
    path = certificate("127.0.0.1")
    plain = serve(reply(200, ROUND))
    server = serve(redirect(plain.url), certificate=path)
    done = quasar("round", "--api", server.url, env={"SSL_CERT_FILE": str(path)})
    assert done.code == 5 and "without TLS" in done.err and plain.requests == []


# --- settings ------------------------------------------------------------------------------------

@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://user:secret@host", "http://host/?a", "file:///"])
def test_a_url_that_is_none(quasar, url):
    done = quasar("round", "--api", url)
    assert done.code == 2 and "secret" not in done.err and "VALIDATOR_API_URL" in done.err


@pytest.mark.parametrize("timeout", ["0", "-1", "soon", "1e9"])
def test_a_timeout_that_is_none(quasar, timeout):
    assert quasar("round", "--timeout", timeout).code == 2
