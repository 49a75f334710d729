"""`quasar verify --logits`: an inference server, or a model, against the reference. That the reference is right, the peer
tests tell."""
import json

import pytest

import tiny_model
from scripted_server import raw, refuse, reply

HEALTHY = reply(200, {"status": "healthy"})
GEN_LEN = 40


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model whose context leaves room for few tokens, so that it is soon done."""
    return tiny_model.write(tmp_path_factory.mktemp("models") / "tiny", max_position_embeddings=128 + GEN_LEN)


@pytest.fixture
def verify(quasar, folder):
    """Challenges a server or model, once as in February unless told otherwise."""

    def run(target, *args, version="2026-02", **env):
        return quasar("verify", "--logits", target, "--reference", folder, "--seed", 1, *args,
                      env={"API_VERSION": version, **env})

    return run


def details(done):
    return {check["name"]: (check["status"], check["detail"]) for check in done.json["checks"]}


def test_a_model_is_accepted_by_itself(verify, folder):
    done = verify(folder, "--json", version="auto")
    assert done.code == 0 and done.json["passed"] is True
    assert list(details(done)) == ["logits.2026-02.1", "logits.2026-04.1"]
    assert all(f"all {GEN_LEN} tokens the same" in detail for _, detail in details(done).values())
    assert done.json["cosine_similarity"] > 0.999999 and done.json["max_abs_diff"] < 1e-4
    assert done.json["reference"]["type"] == "qwen2" and done.json["reference"]["weights"] == "fp32"
    assert done.json["throughput"] > 0
    shown = verify(folder, "--challenges", 2, version="2026-04")
    assert shown.code == 0 and shown.out.count("\nok ") == 2 and "accepted: 2 of 2 checks passed" in shown.out


def test_another_model_is_rejected(verify, tmp_path):
    other = tiny_model.write(tmp_path / "other", seed=2)
    done = verify(other)
    assert done.code == 1 and "FAIL  logits.2026-02.1" in done.out and "rejected: 0 of 1" in done.out
    done = verify(other, LOGIT_COSINE_THRESHOLD="-1", LOGIT_MAX_ABS_DIFF="1000")
    assert done.code == 0 and "another token at step" in done.out
    smaller = tiny_model.write(tmp_path / "smaller", vocab_size=200)
    assert verify(smaller).code == 1


def test_the_question_is_the_validators(verify, serve):
    server = serve(HEALTHY, refuse(400, "no"))
    done = verify(server.url, "--json", version="2026-04")
    assert done.code == 1 and details(done)["logits.2026-04.1"][1].startswith("/inference answers 400")
    health, asked = server.requests
    assert (health.method, health.path) == ("GET", "/health")
    assert (asked.method, asked.path) == ("POST", "/inference")
    assert set(asked.json) == {"prompt", "gen_len", "logits_at_step", "logits_at_steps"}
    assert len(asked.json["prompt"]) == 128 and all(10 <= token < 300 for token in asked.json["prompt"])
    assert asked.json["gen_len"] == GEN_LEN and len(asked.json["logits_at_steps"]) == 3
    assert asked.json["logits_at_step"] == min(asked.json["logits_at_steps"])


def answer(**changes):
    return reply(200, {"tokens": [1] * GEN_LEN, "captured_logits": [0.5] * 300, "elapsed_sec": 1, **changes})


@pytest.mark.parametrize("reply, because", [
    (answer(), "cosine"),
    (answer(captured_logits=None), "no logits of step"),
    (answer(captured_logits=[1.0] * 299), "299 logits"),
    (answer(captured_logits=[0] * 300), "all zero"),
    (answer(captured_logits=["1"] * 300), "no number"),
    (answer(tokens=[-1]), "no token"),
    (answer(tokens=None), "tokens"),
    (answer(captured_logits=[1e-9] * 100_000), "more than"),
    (reply(200, b"{"), "not a JSON document"),
    (reply(500, b"\x1b[31mInternal Server Error"), "answers 500: Internal Server Error"),
    (raw(b""), ""),
], ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "")
def test_a_bad_answer_fails_its_challenge_only(reply, because, verify, serve):
    server = serve(HEALTHY, reply, answer())
    done = verify(server.url, "--json", "--challenges", 2)
    assert done.code == 1 and done.json["passed"] is False
    status, detail = details(done)["logits.2026-02.1"]
    assert status == "fail" and because in detail
    assert "cosine" in details(done)["logits.2026-02.2"][1]


def test_a_server_that_loads_is_waited_for(verify, serve):
    server = serve(reply(503, {"detail": "loading"}), reply(200, {"status": "loading"}), HEALTHY, answer())
    done = verify(server.url, "--json")
    assert details(done)["logits.health"][0] == "ok" and len(server.requests) == 4


@pytest.mark.parametrize("health", [reply(404, {}), reply(200, []), reply(200, b"fine")])
def test_what_is_no_inference_server_is_rejected(health, verify, serve):
    done = verify(serve(health).url, "--json")
    assert done.code == 1 and details(done)["logits.health"][0] == "fail"


def test_what_cannot_be_checked_is_no_verdict(verify, quasar, folder, tmp_path):
    done = verify("http://127.0.0.1:9")
    assert done.code == 4 and "Is the inference server running?" in done.err
    assert verify(folder, "--static").code == 2
    assert verify(folder, "--device", "cuda").code == 3
    done = quasar("verify", "--logits", folder, env={"HF_HOME": str(tmp_path)})
    assert done.code == 3 and "hf download Qwen/Qwen2.5-0.5B-Instruct" in done.err
    weights = folder / "model.safetensors"
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_bytes((folder / "config.json").read_bytes())
    (broken / "model.safetensors").write_bytes(weights.read_bytes()[:-4])
    done = verify(broken, "--json")
    assert done.code == 3 and "down_proj.weight" in json.loads(done.out)["error"]["message"]
