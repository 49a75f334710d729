"""quasar doctor: what it finds, and what it says to do."""
import json
import socket
import subprocess

import pytest
from scripted_server import reply

ONCE = ("--timeout", "0.5")


def checks(done):
    """The checks by name; of several with one name, the last."""
    return {check["name"]: check for check in done.json["checks"]}


def failed(done):
    return sorted(name for name, check in checks(done).items() if check["status"] == "fail")


def test_a_machine_in_order(quasar, hotkey, localnet, workspace):
    done = quasar("doctor", "--json", cwd=workspace, env={"VALIDATOR_API_URL": localnet.url})
    assert done.code == 0, done.out
    found = checks(done)
    assert done.json["passed"] is True and failed(done) == []
    assert found["wallet"]["detail"] == hotkey and found["workspace"]["detail"] == str(workspace)
    assert found["store"]["detail"] == "sound, 0 submissions"
    for name in ("version", "libraries", "cpu", "memory", "disk", "openblas", "permissions", "git", "git.program", "python", "api",
                 "clock", "round", "reveals"):
        assert found[name]["status"] in ("ok", "warn"), found[name]
    assert "left" in found["round"]["detail"] and "torch" in found and "gpu" in found


def test_outside_of_a_workspace_and_offline(quasar, tmp_path):
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=tmp_path)
    found = checks(done)
    assert done.code == 1 and done.json["passed"] is False
    assert failed(done) == ["api", "wallet"]
    assert "quasar wallet new" in found["wallet"]["remedy"] and "quasar init" in found["workspace"]["remedy"]
    assert "cannot reach" in found["api"]["detail"] and "clock" not in found


def test_a_silent_validator_is_given_up(quasar):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = quasar("doctor", "--json", *ONCE, "--api", f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert "api" in failed(done)


def test_a_person_sees_the_list_of_what_to_mend(quasar):
    done = quasar("doctor", *ONCE, "--api", "http://127.0.0.1:9")
    assert done.code == 1 and "To fix:" in done.out
    assert "quasar wallet new" in done.out[done.out.index("To fix:"):]


def test_a_gpu_that_was_asked_for_is_needed(quasar):
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env={"DEVICE": "cuda"})
    found = checks(done)
    assert (found["gpu"]["status"] == "ok") == (found["device"]["status"] == "ok")
    if found["gpu"]["status"] != "ok":
        assert "device" in failed(done) and "DEVICE=cpu" in found["device"]["remedy"]


def test_the_device_that_is_asked_for(quasar):
    def device(name):
        return checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env={"DEVICE": name}))

    cpu = device("cpu")
    assert cpu["device"]["status"] == "ok" and cpu["gpu"]["status"] in ("ok", "skip")
    assert {"nvrtc", "cublaslt"} <= set(cpu)
    nonsense = device("cudda")["device"]
    assert nonsense["status"] == "fail" and "cudda" in nonsense["detail"] and "cuda:N" in nonsense["remedy"]


def test_open_files_are_named_with_the_command(quasar, hotkey, workspace, home):
    key = home / ".bittensor/wallets/quasar_miner/hotkeys/default"
    for path, mode in ((workspace / ".env", 0o644), (workspace / ".quasar", 0o755), (key, 0o640)):
        path.chmod(mode)
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace)
    remedies = [check.get("remedy") for check in done.json["checks"] if check["name"] == "permissions"]
    assert remedies == [f"chmod 600 '{key}'", f"chmod 600 '{workspace}/.env'", f"chmod 700 '{workspace}/.quasar'"]


def test_a_damaged_store_and_a_missing_fork(quasar, hotkey, workspace):
    (workspace / "fork").rename(workspace / "elsewhere")
    assert "fork" in failed(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace))
    (workspace / ".quasar/state.db").write_bytes(b"garbage" * 100)
    assert "store" in failed(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace))
    assert (workspace / ".quasar/state.db").read_bytes() == b"garbage" * 100


def test_the_remedy_for_a_fork_that_is_none_works(quasar, hotkey, workspace):
    doctor = ("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9")
    (workspace / "fork/.git").rename(workspace / "git")
    remedy = checks(quasar(*doctor, cwd=workspace))["fork"]["remedy"]
    move, _, init = remedy.partition(" && quasar ")
    subprocess.run(["sh", "-c", move], check=True)
    assert quasar(init, cwd=workspace).code == 0
    assert "fork" not in failed(quasar(*doctor, cwd=workspace))


def test_the_password_of_a_wallet_is_tried(quasar, tmp_path):
    def wallet(**env):
        return checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env=env))["wallet"]

    address = quasar("wallet", "new", "--encrypt", "--json", env={"WALLET_PASSWORD": "right"}).json["address"]
    locked = wallet()
    assert locked["status"] == "warn" and "WALLET_PASSWORD" in locked["remedy"]
    wrong = wallet(WALLET_PASSWORD="wrong")
    assert wrong["status"] == "fail" and "password is wrong" in wrong["detail"]
    right = wallet(WALLET_PASSWORD="right")
    assert right["status"] == "ok" and right["detail"].startswith(f"{address}, encrypted")


def test_a_wrong_clock_is_noticed(quasar, serve):
    server = serve(reply(200, {"status": "ok"}), date="Thu, 01 Jan 2032 00:00:00 GMT")
    clock = checks(quasar("doctor", "--json", *ONCE, "--api", server.url))["clock"]
    assert clock["status"] == "warn" and "behind" in clock["detail"] and clock["remedy"]


@pytest.fixture
def path_with(tmp_path):
    """A PATH of one folder, with a python3 that runs this shell script."""
    def make(script):
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python3").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin/python3").chmod(0o755)
        return {"PATH": f"{tmp_path}/bin", "QUASAR_PYTHON": ""}

    return make


def answer(**fields):
    return "echo '" + json.dumps({"path": "/there/python3", "version": "3.99.1", "virtual": True, "pip": True,
                                  "torch": None, "cuda": None, **fields}) + "'"


def test_the_python_of_the_path_is_asked(quasar, path_with):
    env = path_with(answer(torch="2.9.0", cuda="13.0"))
    found = checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env=env))
    assert found["python"]["detail"] == "3.99.1 /there/python3, from PATH"
    assert found["torch"] == {"name": "torch", "status": "ok", "detail": "2.9.0, CUDA 13.0"}
    assert found["fork.import"]["status"] == "skip"
    git = found["git.program"]
    assert git["status"] == "warn" and "no git" in git["detail"]


def test_no_torch(quasar, path_with, workspace):
    env = path_with(answer())
    found = checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env=env, cwd=workspace))
    assert found["torch"]["status"] == "warn" and "no PyTorch" in found["torch"]["detail"]
    assert found["torch"]["remedy"] == "'/there/python3' -m pip install torch"
    assert found["fork.import"]["status"] == "skip" and "no PyTorch" in found["fork.import"]["detail"]


def test_which_python_and_why(quasar, path_with, workspace, tmp_path):
    """This machine's own, linked to where a virtual environment would have it."""
    env = path_with("exit 1")
    ask = ("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9")

    def python(*args, **more):
        return checks(quasar(*ask, *args, env={**env, **more}, cwd=workspace))["python"]

    def environment(place):
        (place / "bin").mkdir(parents=True)
        (place / "bin/python").symlink_to("/usr/bin/python3")
        return place

    none = python()
    assert none["status"] == "warn" and "PATH" in none["detail"] and "--python" in none["remedy"]
    environment(workspace / "fork/.venv")
    assert python()["detail"].endswith("/fork/.venv/bin/python, from the fork's .venv")
    environment(workspace / ".venv")
    assert python()["detail"].endswith("/miner/.venv/bin/python, from the workspace's .venv")
    active = environment(tmp_path / "active")
    assert python(VIRTUAL_ENV=str(active))["detail"].endswith("/active/bin/python, from VIRTUAL_ENV")
    (workspace / ".env").write_text("QUASAR_PYTHON=fork/.venv\n")
    (workspace / ".env").chmod(0o600)
    assert python(VIRTUAL_ENV=str(active))["detail"].endswith("/fork/.venv/bin/python, from QUASAR_PYTHON")
    assert python("--python", active)["detail"].endswith("/active/bin/python, from --python")
    missing = python("--python", tmp_path / "missing")
    assert missing["status"] == "warn" and "missing" in missing["detail"]


def test_it_shows_no_secrets_and_changes_nothing(quasar, hotkey, workspace):
    secrets = {"GITHUB_TOKEN": "s3cret-token", "WALLET_PASSWORD": "s3cret-password"}
    before = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    for form in ([], ["--json"]):
        done = quasar("doctor", *form, *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace, env=secrets)
        assert "s3cret" not in done.out + done.err
    after = {path: path.read_bytes() for path in workspace.rglob("*") if path.is_file()}
    assert {p: b for p, b in after.items() if "state.db-" not in p.name} == {
        p: b for p, b in before.items() if "state.db-" not in p.name}


def test_a_command_that_signs_warns_of_an_open_key(quasar, hotkey, home):
    key = home / ".bittensor/wallets/quasar_miner/hotkeys/default"
    assert "chmod" not in quasar("wallet", "sign", "--message-hex", "00").err
    key.chmod(0o644)
    done = quasar("wallet", "sign", "--message-hex", "00")
    assert done.code == 0 and f"chmod 600 {key}" in done.err
    assert quasar("wallet", "show").err.count("chmod") == 1
