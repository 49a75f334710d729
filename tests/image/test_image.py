"""quasar image and verify --image, with real tools, containers and a registry of this machine's own. With podman and buildah,
and once more with docker where a daemon answers: its images and containers that are made here are removed in the end."""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
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


@pytest.fixture(scope="session", params=["podman", "docker"])
def tool(request):
    """What runs the containers."""
    if request.param == "docker" and subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no daemon of docker answers")
    return request.param


@pytest.fixture(scope="session")
def home(tool, place):
    """Of the user who has that tool."""
    (place / tool).mkdir()
    return place / tool


def of_podman(home, registry):
    """Images and containers of its own, and what works where limits may not be raised."""
    (home / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n')
    (home / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{home}/graph"\nrunroot = "{home}/run"\n')
    (home / "registries.conf").write_text(f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n')
    return {"PATH": os.environ["PATH"], "CONTAINERS_CONF": f"{home}/containers.conf",
            "CONTAINERS_STORAGE_CONF": f"{home}/storage.conf", "CONTAINERS_REGISTRIES_CONF": f"{home}/registries.conf"}


def of_docker(home):
    """No other such tool in the PATH. The daemon is this machine's; of loopback it takes images without a certificate."""
    (home / "bin").mkdir()
    for name in ("docker", "mktemp", "rm"):
        (home / "bin" / name).symlink_to(shutil.which(name))
    return {"PATH": f"{home}/bin", **{name: value for name, value in os.environ.items() if name.startswith("DOCKER_")}}


@pytest.fixture(scope="session")
def environment(tool, home, registry):
    return {"HOME": str(home), "LANG": "C.UTF-8", "TMPDIR": str(home),
            **(of_podman(home, registry) if tool == "podman" else of_docker(home))}


@pytest.fixture(scope="session")
def run(environment, home, tool):
    """Runs a command there; what it says. Of the images, those that are new are gone in the end."""

    def run(*args, code=0, cwd=home):
        done = subprocess.run([str(arg) for arg in args], env=environment, cwd=cwd, text=True, capture_output=True,
                              timeout=600)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def images():
        return set(run(tool, "images", "--quiet", "--no-trunc").split())

    before = images()
    yield run
    for image in images() - before:
        run(tool, "rmi", "--force", image)


@pytest.fixture
def containers(run, tool):
    """Those that quasar started and that are there."""
    return lambda: run(tool, "ps", "--all", "--quiet", "--filter=name=quasar-verify").split()


@pytest.fixture(scope="session")
def image(run, model, tool):
    run(QUASAR, "image", "--model", model, "--tag", "localhost/tiny:1", "--tool", tool)
    return "localhost/tiny:1"


@pytest.fixture
def container(run, tool, image):
    """One as validators start it."""
    run(tool, "run", "--name", "quasar-tiny", "--detach", "--read-only", "--tmpfs=/tmp", image)
    yield "quasar-tiny"
    run(tool, "rm", "--force", "quasar-tiny")


def test_validators_accept_it(run, containers, image, model):
    said = run(QUASAR, "verify", f"--image={image}", "--reference", model)
    assert "all 512 tokens the same" in said and "accepted" in said
    assert not containers()


def test_another_model_is_found_out(run, containers, image, home):
    other = tiny_model.write(home / "other", seed=2, max_position_embeddings=2048)
    assert "rejected" in run(QUASAR, "verify", f"--image={image}", "--reference", other, code=1)
    assert not containers()


def test_nothing_is_left_of_it_when_the_user_stops(containers, environment, image, home):
    slow = tiny_model.write(home / "slow", hidden_size=128, intermediate_size=512, num_hidden_layers=6, vocab_size=3000,
                            max_position_embeddings=2048)
    with subprocess.Popen([QUASAR, "verify", f"--image={image}", "--reference", slow, "--challenges", "100"],
                          env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(containers)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LONG) == 130
    assert not containers()


def test_what_it_says_does_not_fill_the_disk(run, tool, containers, environment, home, model):
    """A hundred megabytes, with what the tools add to each line."""
    (home / "talk.c").write_text('#include <stdio.h>\n#include <unistd.h>\nint main(void) { for (int i = 0; i < 2000000; i++)'
                                 ' puts("nothing"); puts("the end"); fflush(stdout); for (;;) pause(); }\n')
    subprocess.run(["cc", "-static", "-o", home / "talk", home / "talk.c"], check=True)
    with tarfile.open(home / "talk.tar", "w") as archive:
        archive.add(home / "talk", "talk")
    run(tool, "import", "--change", 'CMD ["/talk"]', home / "talk.tar", "localhost/talk:1")

    def logs():
        """The files; the last one is still written to."""
        for container in containers():
            about, = json.loads(run(tool, "inspect", container))
            last = pathlib.Path(about.get("LogPath") or about["HostConfig"]["LogConfig"]["Path"])
            yield from last.parent.glob(f"{last.name}*")

    with subprocess.Popen([QUASAR, "verify", "--image=localhost/talk:1", "--reference", model], env=environment,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: any(b"the end" in log.read_bytes() for log in logs()))
        kept = sum(log.stat().st_size for log in logs())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LONG) == 130
    assert kept < 3 << 20


def test_what_it_may(run, tool, image):
    about, = json.loads(run(tool, "image", "inspect", image))
    assert about["Config"]["User"] == "65532:65532" and "8000/tcp" in about["Config"]["ExposedPorts"]
    check = (about if tool == "podman" else about["Config"])["Healthcheck"]["Test"]
    assert check == ["CMD", "/usr/bin/quasar", "serve", "--port", "8000", "--health"]
    assert len(about["RootFS"]["Layers"]) == 2  # weights and program
    with_rights = run(tool, "run", "--rm", "--entrypoint", "/usr/bin/quasar", image, "version", code=2)
    assert "quasar" in with_rights  # it runs at all, with its libraries


def test_its_health_check_tells_when_it_is_healthy(run, tool, container):
    until(lambda: "Ready after" in run(tool, "logs", container))
    if tool == "podman":
        run("podman", "healthcheck", "run", container)
    else:  # runs it by itself
        until(lambda: run("docker", "inspect", "--format", "{{.State.Health.Status}}", container).strip() == "healthy")


def test_it_ends_when_it_is_asked_to(run, tool, container):
    until(lambda: "Ready after" in run(tool, "logs", container))
    started = time.monotonic()
    run(tool, "stop", "-t", "60", container)
    assert time.monotonic() - started < 30
    assert run(tool, "inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"


def test_the_same_files_make_the_same_image(run, tool, image, model):
    if tool == "docker":
        pytest.skip("it has no way to leave times out")

    def layers(name):
        return json.loads(run("podman", "image", "inspect", name))[0]["RootFS"]["Layers"]

    run(QUASAR, "image", "--model", model, "--tag", "localhost/tiny:2", "--tool", "buildah")
    assert layers("localhost/tiny:2") == layers(image)


def test_what_is_pushed_is_submitted(run, tool, registry, model, home):
    workspace = home / "miner"
    run(QUASAR, "init", workspace)
    name = f"{registry}/you/quasar-miner"
    said = run(QUASAR, "image", "--model", model, "--tag", f"{name}:1", "--push", cwd=workspace)
    line, = [line for line in (workspace / ".env").read_text().splitlines() if line.startswith("MINER_DOCKER_IMAGE=")]
    reference = line.split('"')[1]
    assert reference.startswith(f"{name}@sha256:") and reference in said
    run(tool, "rmi", "--force", f"{name}:1")
    assert "accepted" in run(QUASAR, "verify", "--image", "--reference", model, cwd=workspace)  # pulls it


def test_without_its_model_it_takes_a_mounted_one(run, tool, model):
    run(QUASAR, "image", "--no-model", "--tag", "localhost/empty:1")
    assert "/model" in run(tool, "run", "--rm", "localhost/empty:1", code=3)
    run(tool, "run", "--name", "quasar-empty", "--detach", "--volume", f"{model}:/model:ro", "localhost/empty:1")
    try:
        until(lambda: "Ready after" in run(tool, "logs", "quasar-empty"))
    finally:
        run(tool, "rm", "--force", "quasar-empty")


@pytest.fixture
def is_here(run, tool):
    """Whether an image of that name is."""
    return lambda name: bool(run(tool, "images", "--quiet", name).strip())


def test_a_damaged_model_gets_into_no_image(run, is_here, model, home):
    damaged = home / "damaged"
    shutil.copytree(model, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4])
    assert "model.safetensors" in run(QUASAR, "image", "--model", damaged, "--tag", "localhost/damaged:1", code=3)
    assert not is_here("localhost/damaged:1")


# --- images of strangers ---------------------------------------------------------------------------------

@pytest.fixture
def strangers_model(home):
    return tiny_model.write(home / "strange", seed=3, max_position_embeddings=2048)


@pytest.fixture
def published(run, tool, registry, strangers_model):
    """An image that is in the registry, and not here; its name by digest."""
    name = f"{registry}/alice/miner"
    said = run(QUASAR, "image", "--model", strangers_model, "--tag", f"{name}:1", "--push", "--json")
    run(tool, "rmi", "--force", f"{name}:1")
    return document(said)["reference"]


@pytest.fixture
def april(run, environment, home):
    """A service of April 2026, with a fork to submit: submit(image) gives the submission's id."""

    def miner(name):
        address = document(run(QUASAR, "wallet", "new", "--wallet", name, "--json"))["address"]
        return Miner(address, run(QUASAR, "wallet", "sign", "--wallet", name, "--message-hex", address.encode().hex()).strip())

    fork, judge, alice = Fork(home / "fork"), miner("judge"), miner("alice")
    service = Localnet(QUASAR, environment, home, ["--like", "2026-04", "--cooldown", "0", "--db", home / "april.db",
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


def test_a_validator_runs_it_cut_off_from_the_network(run, tool, containers, is_here, april, published, strangers_model):
    networks = run(tool, "network", "ls", "--quiet")
    good, gone = april.submit(published), april.submit(published.replace("alice", "nobody"))
    said = run(QUASAR, "validate", "--api", april.url, "--once", "--json", "--native", "--device", "cpu", "--wallet", "judge",
               "--reference", strangers_model)
    judged = {entry["submission_id"]: entry for entry in document(said)["judged"]}
    assert judged[good]["score"] == 1 and judged[good]["checks"][-1]["name"] == "logits.2026-04.1", said
    assert judged[gone]["score"] == 0 and "cannot pull" in judged[gone]["reason"]
    assert not containers() and run(tool, "network", "ls", "--quiet") == networks
    assert not is_here(published)
