"""quasar validate at a service of April 2026: what it asks for, what it tells, what it leaves pending."""
import time

import pytest

import tiny_model
from lossy import LossyProxy, Say
from sample_fork import Fork
from scripted_server import Step, redirect, reply
from test_image import tools  # noqa: F401: a fixture

IMAGE = "me/image:1"


@pytest.fixture
def fork(tmp_path):
    return Fork(tmp_path / "fork")


@pytest.fixture
def judge(make_miner):
    return make_miner("judge")


@pytest.fixture
def start_april(start_localnet, judge):
    """Starts a validator's service that `judge` is authorized at: start_april("--round-time", "3")."""
    return lambda *args: start_localnet("--like", "2026-04", "--cooldown", "0", "--validator-hotkeys", judge.address, *args)


@pytest.fixture
def april(start_april):
    return start_april()


@pytest.fixture
def submit(fork, make_miner):
    """Submits, as a miner of its own unless told: submit(server, docker_image=None); the id."""
    alice = make_miner("alice")

    def submit(server, miner=alice, **fields):
        body = {"miner_hotkey": miner.address, "fork_url": fork.url, "commit_hash": fork.commit_hash, "signature": "s",
                "target_sequence_length": 100, "tokens_per_sec": 1000.0, "docker_image": IMAGE, "network": "test",
                "benchmarks": {"64": {"tokens_per_sec": 1.0}}, **fields}
        answer = server.post("/submit_kernel", body, miner.headers)
        assert answer.status == 200, answer.body
        return answer.json["submission_id"]

    return submit


@pytest.fixture
def validate(quasar):
    """In a rehearsal: quasar's own layer stands in for the forks."""

    def validate(server, *args, wallet="judge", **more):
        return quasar("validate", "--api", server.url, "--once", "--json", "--native", "--device", "cpu", "--budget", "60",
                      "--wallet", wallet, *args, **more)

    return validate


def pending(server, judge):
    answer = server.request("GET", "/get_pending_validations?network=test&limit=100", None, judge.headers)
    return [entry["id"] for entry in answer.json["submissions"]]


def own_submissions(server, miner, judge):
    path = f"/dashboard/miner/{miner.address}?network=test"
    return server.request("GET", path, None, judge.headers).json


def test_what_runs_scores_1_by_its_normalised_speed(april, judge, submit, validate, make_miner):
    alice, bold = make_miner("carol"), make_miner("bold")
    modest = submit(april, alice)
    submit(april, bold, tokens_per_sec=5e7)
    done = validate(april, "--assume-verified", "--gpu-factor", "2")
    assert done.code == 0, done.err
    first, second = done.json["judged"]
    assert first["submission_id"] == modest and first["valid"] and first["score"] == first["normalized_score"] == 1
    measured = next(entry["tokens_per_sec"] for entry in first["benchmarks"] if entry["seq"] == 100)
    assert first["normalized_tokens_per_sec"] == pytest.approx(measured / 2)
    checks = {check["name"]: check for check in first["checks"]}
    assert checks["claim"]["status"] == "ok" and "normalised" in checks["claim"]["detail"]
    assert second["score"] == 1 and next(check for check in second["checks"] if check["name"] == "claim")["status"] == "warn"
    assert pending(april, judge) == []
    row, = own_submissions(april, alice, judge)["submissions"]
    assert row["score"] == 1 and row["validated_tokens_per_sec"] == pytest.approx(measured / 2)
    assert own_submissions(april, alice, judge)["is_flagged"] is False
    assert "50000000" in own_submissions(april, bold, judge)["flag_reason"]
    weights = april.request("GET", "/get_weights?network=test", None, judge.headers).json["weights"]
    assert [entry["hotkey"] for entry in weights] == [alice.address]


def test_logits_that_nobody_looked_at_are_not_told(april, judge, submit, validate):
    waits, without = submit(april), submit(april, docker_image=None)
    done = validate(april)
    assert done.code == 3 and "Qwen3-4B-Instruct-2507 is not in" in done.err  # which the image would be verified by
    assert [entry["submission_id"] for entry in done.json["pending"]] == [waits]
    assert [entry["submission_id"] for entry in done.json["judged"]] == [without]
    assert pending(april, judge) == [waits]
    assert validate(april, "--assume-verified").code == 0
    assert pending(april, judge) == []


@pytest.fixture
def inference(serve, tmp_path):
    """The options that have a server challenged whose answers are wrong."""
    model = tiny_model.write(tmp_path / "model", max_position_embeddings=128 + 40)

    def answer(handler):
        if handler.command == "GET":
            return reply(200, {"status": "healthy"}).act(handler)
        steps = handler.server.owner.requests[-1].json["logits_at_steps"]
        logits = dict.fromkeys(steps, [1.0] * 299 + [2.0])
        reply(200, {"tokens": [1] * 40, "captured_logits_multi": logits}).act(handler)

    return ["--reference", model, "--inference", serve(Step(answer)).url]


def test_a_server_is_challenged_in_the_place_of_images(april, judge, submit, validate, inference, make_miner):
    refused = submit(april)
    done = validate(april, *inference)
    assert done.code == 0, done.err
    judged, = done.json["judged"]
    assert judged["submission_id"] == refused and judged["valid"] and judged["score"] == judged["normalized_score"] == 0
    assert judged["checks"][-1]["name"] == "logits.2026-04.1" and "cosine" in judged["reason"]
    stats = april.request("GET", "/verification_stats", None, judge.headers).json
    assert stats["verified_failed"] == 1
    carol = make_miner("carol")
    submit(april, carol)
    done = validate(april, *inference, env={"LOGIT_COSINE_THRESHOLD": "-1", "LOGIT_MAX_ABS_DIFF": "1e9"})
    assert done.code == 0 and done.json["judged"][0]["score"] == 1
    row, = own_submissions(april, carol, judge)["submissions"]
    assert row["score"] == 1 and pending(april, judge) == []


@pytest.mark.parametrize("image", ["--all", "-a", "--help", "a b", "../../etc", "me/image:1\n"])
def test_what_names_no_image_reaches_no_tool(april, judge, submit, validate, tools, tmp_path, image):  # noqa: F811
    """`podman image rm --all` would remove each image that this machine has."""
    submit(april, docker_image=image)
    model = tiny_model.write(tmp_path / "model")
    done = validate(april, "--reference", model, env=tools(podman="[ $1 = info ] || exit 1"))
    assert done.code == 0, done.err
    judged, = done.json["judged"]
    assert judged["score"] == 0 and "is not the reference of an image" in judged["reason"]
    assert judged["checks"][-1]["name"] == "image.syntax"
    assert not (tmp_path / "tools" / "asked").exists()


def test_a_server_leads_nowhere_else(april, judge, submit, validate, serve, tmp_path):
    """An image is a stranger's: what answers for it must not have this machine ask others, nor keep it from a verdict."""
    model = tiny_model.write(tmp_path / "model", max_position_embeddings=128 + 40)
    other = serve(reply(200, {"status": "healthy"}))
    healthy = reply(200, {"status": "healthy"})
    for steps in ([redirect(other.url)], [healthy, redirect(other.url)], [healthy, redirect("/again")]):
        submission = submit(april)
        done = validate(april, "--reference", model, "--inference", serve(*steps).url)
        assert done.code == 0, done.err
        judged, = done.json["judged"]
        assert judged["submission_id"] == submission and judged["score"] == 0 and "redirect" in judged["reason"]
    assert other.requests == []


def test_an_image_that_ends_at_once_has_failed(april, judge, submit, validate, tools, tmp_path):  # noqa: F811
    """Before the way into its network is open."""
    submit(april)
    ended = tools(podman="case $1 in image) exit 1 ;; inspect) echo 4194303 ;; esac")
    done = validate(april, "--reference", tiny_model.write(tmp_path / "model"), env=ended)
    assert done.code == 0, done.err
    judged, = done.json["judged"]
    assert judged["checks"][-1]["name"] == "image.start" and judged["score"] == 0 and "has ended" in judged["reason"]


@pytest.mark.parametrize("words, score", [
    ("Error: no command or entrypoint provided, and no CMD or ENTRYPOINT from image", 0),
    ("Error response from daemon: no command specified", 0), ("Error: no space left on device", None)])
def test_an_image_without_a_command_has_failed(april, judge, submit, validate, tools, tmp_path, words, score):  # noqa: F811
    """It can be made no container of; which may also be this machine's fault."""
    submission = submit(april)
    made = tools(podman=f"case $1 in image) exit 1 ;; create) echo '{words}' >&2; exit 125 ;; esac")
    done = validate(april, "--reference", tiny_model.write(tmp_path / "model"), env=made)
    assert [judged["score"] for judged in done.json["judged"]] == ([] if score is None else [score]), done.err
    assert [entry["submission_id"] for entry in done.json["pending"]] == ([submission] if score is None else [])
    assert words in done.out


def test_without_an_answer_a_submission_stays_pending(april, judge, submit, validate, inference, quasar):
    submission = submit(april)
    done = validate(april, *inference[:-1], "http://127.0.0.1:9")
    assert done.code == 3 and [entry["submission_id"] for entry in done.json["pending"]] == [submission]
    assert pending(april, judge) == [submission]
    assert validate(april, *inference, "--assume-verified").code == 2
    done = quasar("validate", "--api", "https://validator.example", "--once", *inference)
    assert done.code == 2 and "--inference is for rehearsals" in done.err


def test_what_is_no_fork_scores_0_for_good(april, judge, submit, validate, fork, make_miner):
    alice = make_miner("carol")
    submit(april, alice, commit_hash="0" * 40)
    done = validate(april)
    assert done.code == 0, done.err
    judged, = done.json["judged"]
    assert not judged["valid"] and judged["score"] == 0 and judged["normalized_tokens_per_sec"] is None
    row, = own_submissions(april, alice, judge)["submissions"]
    assert row["validated"] and row["score"] == 0 and row["validated_tokens_per_sec"] is None
    assert own_submissions(april, alice, judge)["is_flagged"] is False
    stats = april.request("GET", "/verification_stats", None, judge.headers).json
    assert stats["verified_failed"] == 1


def test_a_speed_that_no_validator_takes_stays_pending(april, judge, submit, validate):
    submission = submit(april)
    done = validate(april, "--assume-verified", "--gpu-factor", "1000000")
    assert done.code == 3 and "no validator takes less than 10" in done.err
    assert pending(april, judge) == [submission]


def test_who_may_judge(april, start_localnet, quasar, validate, make_miner):
    make_miner("alice")
    done = validate(april, wallet="alice")
    assert done.code == 5 and "not an authorized validator" in done.err
    done = validate(april, wallet="nobody")
    assert done.code == 3 and "nobody" in done.err
    nobody = start_localnet("--like", "2026-04")
    done = validate(nobody, "--timeout", "1", wallet="alice")
    assert done.code == 4 and "HTTP 503" in done.err
    done = quasar("validate", "--api", "https://validator.example", "--once", "--assume-verified")
    assert done.code == 2 and "rehearsals" in done.err


def test_more_than_a_docket_holds(april, judge, submit, validate):
    for _ in range(102):
        submit(april, commit_hash="0" * 40, docker_image=None, fork_url="ssh://nowhere.example/fork")
    done = validate(april)
    assert done.code == 0, done.err
    assert len(done.json["judged"]) == 102 and pending(april, judge) == []


def test_what_stays_pending_does_not_hide_the_next_docket(april, judge, submit, validate):
    ids = [submit(april, fork_url="ssh://nowhere.example/fork") for _ in range(103)]
    proxy = LossyProxy(april.url)
    proxy.faults[("POST", "/mark_validated_with_verification")] = [Say(422, {"detail": []})]
    done = validate(proxy)
    proxy.close()
    assert done.code == 3, done.err
    assert [entry["submission_id"] for entry in done.json["pending"]] == ids[:1] == pending(april, judge)
    assert [judged["submission_id"] for judged in done.json["judged"]] == ids[1:]


def test_rounds_end_by_themselves_and_are_ranked_anew(start_april, judge, submit, validate):
    server = start_april("--round-time", "4")
    submit(server)
    done = validate(server, "--assume-verified", "--finalize")
    assert done.code in (0, 6), done.err  # 6: the first round still runs
    assert done.code == 0 or "no round has ended yet" in done.err
    while server.request("GET", "/get_current_round?network=test", None, judge.headers).json["round_number"] == 1:
        time.sleep(0.05)
    done = validate(server, "--finalize")
    assert done.code == 0, done.err
    assert done.json["round"]["rankings"][0]["submission_id"] == 1
