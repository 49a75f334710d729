"""quasar image and verify --image, with real tools, containers and a registry of this machine's own."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tiny_model  # noqa: E402
from localnet import Localnet, Miner  # noqa: E402
from patience import LONG  # noqa: E402
from sample_fork import Fork  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
QUASAR = os.path.abspath(os.environ.get("QUASAR", ROOT / "build" / "quasar"))


def document(said):
    """The JSON in what a command has said, other lines before and behind it."""
    return json.JSONDecoder().raw_decode(said[said.index("{"):])[0]


def until(condition):
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("image")


@pytest.fixture(scope="session")
def model(place):
    return tiny_model.write(place / "tiny", max_position_embeddings=2048)


@pytest.fixture(scope="session")
def registry(place):
    """The address of a registry."""
    port = free_port()
    (place / "registry.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n")
    with open(place / "registry.log", "wb") as log, \
            subprocess.Popen(["docker-registry", "serve", place / "registry.yml"], stdout=log, stderr=log) as process:
        for _ in range(200):
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
        process.terminate()


@pytest.fixture(scope="session")
def environment(place, registry):
    """Tools with images and containers of their own, that work where limits may not be raised."""
    (place / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n')
    (place / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{place}/graph"\nrunroot = "{place}/run"\n')
    (place / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    return {"HOME": str(place), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(place),
            "CONTAINERS_CONF": f"{place}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{place}/storage.conf",
            "CONTAINERS_REGISTRIES_CONF": f"{place}/registries.conf"}


@pytest.fixture(scope="session")
def run(environment, place):
    """Runs a command there; what it says. All containers are gone in the end."""

    def run(*args, code=0, cwd=place):
        done = subprocess.run([str(arg) for arg in args], env=environment, cwd=cwd, text=True, capture_output=True,
                              timeout=600)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    yield run
    run("podman", "rm", "--all", "--force")


@pytest.fixture(scope="session")
def image(run, model):
    run(QUASAR, "image", "--model", model, "--tag", "localhost/tiny:1", "--tool", "podman")
    return "localhost/tiny:1"


@pytest.fixture
def container(run, image):
    """One as validators start it."""
    run("podman", "run", "--name", "tiny", "--detach", "--read-only", "--tmpfs=/tmp", image)
    yield "tiny"
    run("podman", "rm", "--force", "tiny")


def test_validators_accept_it(run, image, model):
    said = run(QUASAR, "verify", f"--image={image}", "--reference", model)
    assert "all 512 tokens the same" in said and "accepted" in said
    assert run("podman", "ps", "--all", "--quiet") == ""


def test_another_model_is_found_out(run, image, place):
    other = tiny_model.write(place / "other", seed=2, max_position_embeddings=2048)
    assert "rejected" in run(QUASAR, "verify", f"--image={image}", "--reference", other, code=1)
    assert run("podman", "ps", "--all", "--quiet") == ""


def test_nothing_is_left_of_it_when_the_user_stops(run, environment, image, place):
    slow = tiny_model.write(place / "slow", hidden_size=128, intermediate_size=512, num_hidden_layers=6, vocab_size=3000,
                            max_position_embeddings=2048)
    with subprocess.Popen([QUASAR, "verify", f"--image={image}", "--reference", slow, "--challenges", "100"],
                          env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: run("podman", "ps", "--quiet"))
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LONG) == 130
    assert run("podman", "ps", "--all", "--quiet") == ""


def test_what_it_may(run, image):
    about, = json.loads(run("podman", "image", "inspect", image))
    assert about["User"] == "65532:65532" and "8000/tcp" in about["Config"]["ExposedPorts"]
    assert about["Healthcheck"]["Test"] == ["CMD", "/usr/bin/quasar", "serve", "--port", "8000", "--health"]
    assert len(about["RootFS"]["Layers"]) == 2  # weights and program
    with_rights = run("podman", "run", "--rm", "--entrypoint", "/usr/bin/quasar", image, "version", code=2)
    assert "quasar" in with_rights  # it runs at all, with its libraries


def test_its_health_check_tells_when_it_is_healthy(run, container):
    until(lambda: "Ready after" in run("podman", "logs", container))
    run("podman", "healthcheck", "run", container)


def test_it_ends_when_it_is_asked_to(run, container):
    until(lambda: "Ready after" in run("podman", "logs", container))
    started = time.monotonic()
    run("podman", "stop", "--time", "60", container)
    assert time.monotonic() - started < 30
    assert run("podman", "inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"


def test_the_same_files_make_the_same_image(run, image, model):
    def layers(name):
        return json.loads(run("podman", "image", "inspect", name))[0]["RootFS"]["Layers"]

    run(QUASAR, "image", "--model", model, "--tag", "localhost/tiny:2", "--tool", "buildah")
    assert layers("localhost/tiny:2") == layers(image)


def test_what_is_pushed_is_submitted(run, registry, model, place):
    workspace = place / "miner"
    run(QUASAR, "init", workspace)
    name = f"{registry}/you/quasar-miner"
    said = run(QUASAR, "image", "--model", model, "--tag", f"{name}:1", "--push", cwd=workspace)
    line, = [line for line in (workspace / ".env").read_text().splitlines() if line.startswith("MINER_DOCKER_IMAGE=")]
    reference = line.split('"')[1]
    assert reference.startswith(f"{name}@sha256:") and reference in said
    run("podman", "rmi", "--force", f"{name}:1")
    assert "accepted" in run(QUASAR, "verify", "--image", "--reference", model, cwd=workspace)  # pulls it


def test_without_its_model_it_takes_a_mounted_one(run, model):
    run(QUASAR, "image", "--no-model", "--tag", "localhost/empty:1")
    assert "/model" in run("podman", "run", "--rm", "localhost/empty:1", code=3)
    run("podman", "run", "--name", "empty", "--detach", "--volume", f"{model}:/model:ro", "localhost/empty:1")
    try:
        until(lambda: "Ready after" in run("podman", "logs", "empty"))
    finally:
        run("podman", "rm", "--force", "empty")


def test_a_damaged_model_gets_into_no_image(run, model, place):
    damaged = place / "damaged"
    shutil.copytree(model, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert "model.safetensors" in run(QUASAR, "image", "--model", damaged, "--tag", "localhost/damaged:1", code=3)
    run("podman", "image", "exists", "localhost/damaged:1", code=1)


# --- images of strangers ---------------------------------------------------------------------------------

@pytest.fixture
def strangers_model(place):
    return tiny_model.write(place / "strange", seed=3, max_position_embeddings=2048)


@pytest.fixture
def published(run, registry, strangers_model):
    """An image that is in the registry, and not here; its name by digest."""
    name = f"{registry}/alice/miner"
    said = run(QUASAR, "image", "--model", strangers_model, "--tag", f"{name}:1", "--push", "--json")
    run("podman", "rmi", "--force", f"{name}:1")
    return document(said)["reference"]


@pytest.fixture
def april(run, environment, place):
    """A service of April 2026, with a fork to submit: submit(image) gives the submission's id."""

    def miner(name):
        address = document(run(QUASAR, "wallet", "new", "--wallet", name, "--json"))["address"]
        return Miner(address, run(QUASAR, "wallet", "sign", "--wallet", name, "--message-hex", address.encode().hex()).strip())

    fork, judge, alice = Fork(place / "fork"), miner("judge"), miner("alice")
    service = Localnet(QUASAR, environment, place, ["--like", "2026-04", "--cooldown", "0", "--db", place / "april.db",
                                                    "--validator-hotkeys", judge.address])

    def submit(image):
        answer = service.post("/submit_kernel", {
            "miner_hotkey": alice.address, "fork_url": fork.url, "commit_hash": fork.commit_hash, "signature": "s",
            "target_sequence_length": 512, "tokens_per_sec": 1000.0, "docker_image": image, "network": "test",
            "benchmarks": {}}, alice.headers)
        assert answer.status == 200, answer.body
        return answer.json["submission_id"]

    service.submit = submit
    yield service
    service.close()


def test_a_validator_runs_it_cut_off_from_the_network(run, april, published, strangers_model):
    good, gone = april.submit(published), april.submit(published.replace("alice", "nobody"))
    said = run(QUASAR, "validate", "--api", april.url, "--once", "--json", "--native", "--device", "cpu", "--wallet", "judge",
               "--reference", strangers_model)
    judged = {entry["submission_id"]: entry for entry in document(said)["judged"]}
    assert judged[good]["score"] == 1 and judged[good]["checks"][-1]["name"] == "logits.2026-04.1", said
    assert judged[gone]["score"] == 0 and "cannot pull" in judged[gone]["reason"]
    assert run("podman", "ps", "--all", "--quiet") == "" and run("podman", "network", "ls", "--quiet").split() == ["podman"]
    run("podman", "image", "exists", published, code=1)
