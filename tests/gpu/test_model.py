"""Language models on a GPU. Without one every test here is skipped, and says why."""
import array
import json
import os
import struct
import subprocess

import pytest
import tiny_model
from inference import InferenceServer
from patience import LONG
from test_gpu import QUASAR, ROOT, c_tests, gpu, real_gpu, run_c_test, sanitize  # noqa: F401 (fixtures)

MODELS = ROOT / "build" / "tests-gpu-model"
CONTEXT = 128 + 12  # a challenge's prompt, and what is to be generated


@pytest.mark.parametrize("name", c_tests("model.c"))
def test_models(gpu, name):  # noqa: F811
    run_c_test(MODELS, name)


# racecheck reports accesses that have a barrier of all between them: docs/performance.md
@pytest.mark.parametrize("tool", ["memcheck", "synccheck"])
def test_sanitizer_of_models(real_gpu, tool):  # noqa: F811
    sanitize(tool, MODELS, ["every_kind_agrees_with_the_cpu", "requests_share_steps"])


@pytest.fixture
def serve_on_gpu(tmp_path):
    """Starts a server of a model: serve_on_gpu(folder)."""
    servers = []

    def start(model, **environment):
        options = ["--port", "0", "--model", model, "--device", "cuda"]
        servers.append(InferenceServer(QUASAR, {**os.environ, **environment}, tmp_path, options))
        return servers[-1].wait()

    yield start
    for server in servers:
        server.close()


def test_a_server_on_the_gpu_answers_as_the_cpu_does(gpu, serve_on_gpu, tmp_path):  # noqa: F811
    model = tiny_model.write(tmp_path / "model", max_position_embeddings=CONTEXT)
    server = serve_on_gpu(model)
    assert server.get("/health").json["device"] == "cuda"
    done = subprocess.run([QUASAR, "verify", "--logits", server.url, "--reference", model, "--device", "cpu", "--json"],
                          capture_output=True, text=True,
                          env={**os.environ, "LOGIT_COSINE_THRESHOLD": "0.99999", "LOGIT_MAX_ABS_DIFF": "0.001"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["passed"] is True


def test_logits_that_are_not_finite_are_told(gpu, serve_on_gpu, tmp_path):  # noqa: F811
    model = tiny_model.write(tmp_path / "model", max_position_embeddings=CONTEXT)
    weights = model / "model.safetensors"
    data = bytearray(weights.read_bytes())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    first, last = json.loads(data[8:begin])["model.norm.weight"]["data_offsets"]
    data[begin + first:begin + last] = array.array("f", [3e38] * ((last - first) // 4)).tobytes()
    weights.write_bytes(data)
    answer = serve_on_gpu(model).post("/inference", {"prompt": [1, 2, 3], "gen_len": 4, "logits_at_step": 1})
    assert answer.status == 500 and "not finite" in answer.detail


def test_a_server_ends_when_the_gpu_has_had_a_fault(gpu, serve_on_gpu, tmp_path):  # noqa: F811
    """So that what keeps it running starts it again."""
    if "Emulated" not in gpu["name"]:
        pytest.skip("only an emulated GPU fails when it is asked to")
    server = serve_on_gpu(tiny_model.write(tmp_path / "model", max_position_embeddings=CONTEXT), EMULATOR_FAULT="model_step")
    answer = server.post("/inference", {"prompt": [1, 2, 3], "gen_len": 4, "logits_at_step": 1})
    assert answer.status == 500
    assert server.process.wait(timeout=LONG) == 3
    assert "unspecified launch failure" in (server.cwd / "localnet.log").read_text()
