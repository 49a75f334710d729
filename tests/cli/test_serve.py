"""quasar serve: the protocol of both versions, with a real, small model."""
import concurrent.futures
import json
import random
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest
import tiny_model
from conftest import QUASAR
from inference import InferenceServer
from patience import LONG

VOCABULARY = tiny_model.TINY["vocab_size"]
CONTEXT = tiny_model.TINY["max_position_embeddings"]
PROMPT = random.Random(5).choices(range(VOCABULARY), k=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")


def start(model, place, *args, env=None):
    place.mkdir(exist_ok=True)
    environment = {"HOME": str(place), "PATH": "/usr/bin:/bin", **(env or {})}
    return InferenceServer(QUASAR, environment, place, ["--port", "0", "--model", model, *args])


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    """One for all tests that only ask."""
    server = start(model, tmp_path_factory.mktemp("server"), "--batch", "4", "--max-tokens", "400")
    yield server.wait()
    server.close()


@pytest.fixture
def own(model, tmp_path):
    """Starts servers of a test's own."""
    running = []

    def run(*args, **options):
        running.append(start(model, tmp_path / f"server-{len(running)}", *args, **options))
        return running[-1]

    yield run
    for server in running:
        server.close()


def largest(logits):
    return logits.index(max(logits))


# --- what is answered ------------------------------------------------------------------------------------

def test_an_answer_of_february(server):
    answer = server.infer(PROMPT, 30, step=7)
    assert list(answer) == ["tokens", "captured_logits", "elapsed_sec"]
    assert len(answer["tokens"]) == 30 and all(0 <= token < VOCABULARY for token in answer["tokens"])
    assert len(answer["captured_logits"]) == VOCABULARY
    assert largest(answer["captured_logits"]) == answer["tokens"][6]
    assert answer["elapsed_sec"] > 0


def test_an_answer_of_april(server):
    answer = server.infer(PROMPT, 30, step=2, steps=[9, 1, 30, 9, 31])
    assert list(answer) == ["tokens", "captured_logits", "captured_logits_multi", "elapsed_sec"]
    several = answer["captured_logits_multi"]
    assert list(several) == ["1", "9", "30"] and answer["captured_logits"] == several["1"]
    assert [largest(logits) for logits in several.values()] == [answer["tokens"][i] for i in (0, 8, 29)]
    for step, logits in several.items():
        assert server.infer(PROMPT, 30, step=int(step))["captured_logits"] == logits


def test_it_goes_on_where_it_stopped(server):
    tokens = server.infer(PROMPT, 40)["tokens"]
    assert server.infer(PROMPT + tokens[:15], 25)["tokens"] == tokens[15:]


@pytest.mark.parametrize("step, gen_len", [(0, 5), (6, 5), (-1, 5), (1, 0)])
def test_a_step_that_is_not_reached_has_no_logits(server, step, gen_len):
    answer = server.infer(PROMPT, gen_len, step=step)
    assert answer["captured_logits"] is None and len(answer["tokens"]) == gen_len
    assert server.infer(PROMPT, gen_len, step=step, steps=[step])["captured_logits_multi"] == {}


def test_logits_are_read_back_bit_for_bit(server):
    body = server.post("/inference", {"prompt": PROMPT, "gen_len": 2, "logits_at_step": 2}).body.decode()
    text = body.split('"captured_logits":[')[1].split("]")[0]
    for number in text.split(","):
        value = float(number)
        assert abs(struct.unpack("f", struct.pack("f", value))[0] - value) <= 1e-8 * abs(value)


def test_what_the_server_says_of_itself(server, model):
    assert server.get("/health").json == {"status": "healthy", "model_name": str(model), "device": "cpu"}
    assert server.get("/model_info").json == {
        "model_name": str(model), "vocab_size": VOCABULARY, "device": "cpu", "dtype": "torch.float32",
        "model_config": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}}


def test_many_at_once_get_what_each_gets_alone(server):
    rng = random.Random(7)
    asked = [(rng.choices(range(VOCABULARY), k=rng.randint(1, 200)), rng.randint(1, 60)) for _ in range(24)]

    def ask(request):
        prompt, gen_len = request
        return server.infer(prompt, gen_len, steps=[gen_len])

    alone = [ask(request) for request in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(ask, asked))
    for one, other in zip(alone, together):
        assert one["tokens"] == other["tokens"]
        (a,), (b,) = one["captured_logits_multi"].values(), other["captured_logits_multi"].values()
        assert max(abs(x - y) for x, y in zip(a, b)) < 1e-4


def test_metrics_count_what_was_done(own):
    server = own().wait()
    server.infer(PROMPT, 10)
    assert server.post("/inference", {}).status == 422
    metrics = server.metrics()
    assert server.get("/metrics").headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert metrics['quasar_requests_total{outcome="ok"}'] == metrics['quasar_requests_total{outcome="invalid"}'] == 1
    assert metrics["quasar_prompt_tokens_total"] == len(PROMPT) and metrics["quasar_generated_tokens_total"] == 10
    assert metrics['quasar_request_seconds_bucket{le="+Inf"}'] == metrics["quasar_first_token_seconds_count"] == 1
    assert metrics["quasar_steps_total"] == 10 and metrics["quasar_requests_running"] == 0


# --- what is refused -------------------------------------------------------------------------------------

GOOD = {"prompt": PROMPT, "gen_len": 3, "logits_at_step": 1}


@pytest.mark.parametrize("change, where", [
    ({"prompt": None}, ["prompt"]), ({"prompt": "1 2 3"}, ["prompt"]), ({"prompt": {"0": 1}}, ["prompt"]),
    ({"prompt": [1, VOCABULARY]}, ["prompt", 1]), ({"prompt": [-1]}, ["prompt", 0]), ({"prompt": [0.5]}, ["prompt", 0]),
    ({"prompt": [1, "x"]}, ["prompt", 1]), ({"prompt": [[1]]}, ["prompt", 0]), ({"prompt": [1e300]}, ["prompt", 0]),
    ({"gen_len": -1}, ["gen_len"]), ({"gen_len": 401}, ["gen_len"]), ({"gen_len": 2**70}, ["gen_len"]),
    ({"gen_len": "many"}, ["gen_len"]), ({"gen_len": None}, ["gen_len"]), ({"logits_at_step": [1]}, ["logits_at_step"]),
    ({"logits_at_steps": 5}, ["logits_at_steps"]), ({"logits_at_steps": [1, {}]}, ["logits_at_steps", 1]),
])
def test_wrong_fields(server, change, where):
    answer = server.post("/inference", {**GOOD, **change})
    assert answer.status == 422
    assert answer.json["detail"][0]["loc"] == ["body", *where]


@pytest.mark.parametrize("name", GOOD)
def test_missing_fields(server, name):
    answer = server.post("/inference", {key: value for key, value in GOOD.items() if key != name})
    assert answer.status == 422 and answer.json["detail"][0]["loc"] == ["body", name]


@pytest.mark.parametrize("change, words", [
    ({"prompt": []}, "at least one token"), ({"prompt": [1] * 398}, "401 tokens together; at most 400"),
    ({"gen_len": 20, "logits_at_steps": list(range(1, 18))}, "17 steps; at most 16"),
])
def test_wrong_counts(server, change, words):
    answer = server.post("/inference", {**GOOD, **change})
    assert answer.status == 422 and words in answer.detail


@pytest.mark.parametrize("body, status", [
    (b'{"prompt": [1, 2', 422), (b"", 422), (b"[]", 422), (b"\xff\xfe", 422), (b"[" * 3000, 413), (b" " * 40000, 413),
], ids=["cut", "empty", "list", "bytes", "values", "size"])
def test_wrong_bodies(server, body, status):
    assert server.post("/inference", body).status == status


def test_many_wrong_tokens_do_not_make_a_long_answer(server):
    answer = server.post("/inference", {**GOOD, "prompt": [VOCABULARY] * 300})
    assert answer.status == 422 and len(answer.json["detail"]) == 8


def test_wrong_routes(server):
    assert server.get("/inference").status == 405 and server.get("/").status == 404
    assert server.post("/inference", GOOD, {"Origin": "https://evil.example"}).status == 403


def test_the_context_of_the_model_bounds_requests(own):
    server = own().wait()
    assert server.post("/inference", {**GOOD, "gen_len": CONTEXT}).status == 422
    assert len(server.infer([1], CONTEXT - 1)["tokens"]) == CONTEXT - 1


# --- clients that leave, and the end ---------------------------------------------------------------------

def post(server, body):
    """A connection on which a request was sent."""
    text = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.port))
    connection.sendall(b"POST /inference HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
    return connection


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory):
    """Takes some milliseconds a token."""
    return tiny_model.write(tmp_path_factory.mktemp("models") / "slow", hidden_size=128, intermediate_size=512,
                            num_hidden_layers=4, vocab_size=3000, max_position_embeddings=100000)


def test_what_nobody_waits_for_is_given_up(own, slow_model):
    server = own("--model", slow_model, "--max-tokens", "100000").wait()
    connection = post(server, {"prompt": [1], "gen_len": 99999, "logits_at_step": 1})
    until(lambda: server.metrics()["quasar_requests_running"] == 1)
    connection.close()
    until(lambda: server.metrics()["quasar_requests_running"] == 0)
    assert server.metrics()['quasar_requests_total{outcome="abandoned"}'] == 1


def test_when_too_many_wait_others_may_come_again(own, slow_model):
    server = own("--model", slow_model, "--max-tokens", "100000", "--batch", "1", "--queue", "1", "--drain", "0.1").wait()
    long = {"prompt": [1], "gen_len": 99999, "logits_at_step": 1}
    first = post(server, long)
    until(lambda: server.metrics()["quasar_requests_running"] == 1)
    second = post(server, long)
    until(lambda: server.metrics()["quasar_requests_waiting"] == 1)
    answer = server.post("/inference", GOOD)
    assert answer.status == 503 and answer.headers["Retry-After"] == "1"
    assert server.stop() == 0  # in spite of both
    for connection in first, second:
        assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 503")


def test_sigterm_lets_running_requests_finish(own, slow_model):
    server = own("--model", slow_model).wait()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        answer = pool.submit(server.infer, [1, 2, 3], 600, steps=[600])
        until(lambda: server.metrics()["quasar_requests_running"] == 1)
        assert server.stop(signal.SIGTERM) == 0
        assert len(answer.result()["tokens"]) == 600


# --- models that are not there ---------------------------------------------------------------------------

def test_a_model_of_the_cache_is_found_by_its_name(model, own, tmp_path):
    snapshot = tmp_path / "hf" / "hub" / "models--Some--Tiny" / "snapshots" / ("a" * 40)
    shutil.copytree(model, snapshot)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("a" * 40)
    server = own("--model", "Some/Tiny", env={"HF_HOME": str(tmp_path / "hf")}).wait()
    assert server.get("/model_info").json["model_name"] == "Some/Tiny"


def test_without_its_model_it_does_not_start(quasar, tmp_path):
    done = quasar("serve", "--port", "0", "--model", "Qwen/Qwen2.5-0.5B-Instruct", env={"HF_HOME": str(tmp_path)})
    assert done.code == 3 and "Qwen/Qwen2.5-0.5B-Instruct" in done.err and "download" in done.err
    assert done.out == ""


def test_a_damaged_model_ends_it(quasar, tmp_path):
    damaged = tiny_model.write(tmp_path / "damaged")
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    done = quasar("serve", "--port", "0", "--model", damaged)
    assert done.code == 3 and "model.safetensors" in done.err


def test_settings_name_model_and_port(quasar, model, workspace, environment):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with open(workspace / ".env", "a") as settings:
        settings.write(f"\nREFERENCE_MODEL={model}\nMINER_INFERENCE_PORT={port}\n")
    assert quasar("serve", "--health", cwd=workspace).code == 4
    with subprocess.Popen([QUASAR, "serve", "-C", workspace], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout.readline() == f"Listening on http://127.0.0.1:{port}; loading {model} …\n"
        until(lambda: quasar("serve", "--health", cwd=workspace).code == 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LONG) == 0
