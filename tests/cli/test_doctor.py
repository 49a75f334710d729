"""quasar doctor: what it finds, and what it says to do."""
import json
import os
import shlex
import shutil
import socket
import subprocess
import tempfile

import pytest
from conftest import QUASAR, Result
from scripted_server import reply
from test_wallet import ADDRESS

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
    assert remedies == [f"chmod 600 {key}", f"chmod 600 {workspace}/.env", f"chmod 700 {workspace}/.quasar"]


def test_a_damaged_store_and_a_missing_fork(quasar, hotkey, workspace):
    (workspace / "fork").rename(workspace / "elsewhere")
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace)
    assert "fork" in failed(done) and checks(done)["fork.import"]["detail"] == "there is no fork"
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


@pytest.mark.long
def test_the_password_of_a_wallet_is_tried(quasar, encrypted):
    def wallet(**env):
        return checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", env=env))["wallet"]

    locked = wallet()
    assert locked["status"] == "warn" and "WALLET_PASSWORD" in locked["remedy"]
    wrong = wallet(WALLET_PASSWORD="wrong")
    assert wrong["status"] == "fail" and "password is wrong" in wrong["detail"]
    right = wallet(WALLET_PASSWORD=encrypted)
    assert right["status"] == "ok" and right["detail"].startswith(f"{ADDRESS}, encrypted")


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
    assert found["torch"]["remedy"] == "/there/python3 -m pip install torch"
    assert found["fork.import"]["status"] == "skip" and "no PyTorch" in found["fork.import"]["detail"]


def test_the_systems_python_is_left_alone_unless_it_was_named(quasar, path_with, workspace):
    """An environment of the workspace would not be found before one that was named."""
    env = path_with(answer(virtual=False))

    def remedy(*args, **where):
        return checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", *args, env=env,
                             **where))["torch"]["remedy"]

    assert remedy(cwd=workspace) == "quasar init --venv"
    assert remedy("--python", "python3", cwd=workspace) == "quasar init --venv, and name no other Python by --python"
    assert remedy() == "/there/python3 -m pip install torch"
    told = quasar("bench", cwd=workspace, env=env).err
    assert "--native measures quasar's own layer instead. Install PyTorch: quasar init --venv\n" in told


def test_a_workspace_that_cannot_be_written_to(quasar, hotkey, workspace):
    (workspace / ".quasar").chmod(0o500)
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace, bound=True)
    assert done.code == 1 and checks(done)["workspace"]["status"] == "fail"
    assert "Permission denied" in checks(done)["workspace"]["detail"]


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


@pytest.fixture
def gone(environment, tmp_path):
    """A workspace that a quasar made which is no longer there, and the path of that quasar."""
    program = tmp_path / 'old $HOME 100% `x` "q"' / "quasar"
    program.parent.mkdir()
    shutil.copy(QUASAR, program)
    subprocess.run([program, "init", tmp_path / "miner"], env=environment, check=True, capture_output=True)
    return tmp_path / "miner", program


def services(quasar, **options):
    done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", **options)
    return [check for check in done.json["checks"] if check["name"] == "service"]


def test_files_that_start_a_program_that_is_gone(quasar, gone, tmp_path):
    miner, program = gone
    fine, = services(quasar, cwd=miner)
    assert fine["status"] == "ok" and fine["detail"].startswith("5 files")
    program.unlink()
    found = services(quasar, cwd=miner)
    assert [(check["status"], check["detail"]) for check in found] == [
        ("warn", f"{miner / name} starts {program}, which is not there any more")
        for name in ("ecosystem.config.js", "quasar-miner.service", "start-in-screen.sh", "inference.config.js",
                     "quasar-inference.service")]
    for check in found:
        remove, _, init = check["remedy"].partition(" && quasar ")
        subprocess.run(["sh", "-c", remove], check=True)
    assert quasar(*shlex.split(init)).code == 0
    assert services(quasar, cwd=miner)[0]["status"] == "ok"
    assert services(quasar, cwd=tmp_path)[0]["status"] == "skip"


def test_services_that_would_not_start_after_a_reboot(quasar, gone, home, tmp_path):
    miner, program = gone
    units = home / ".config/systemd/user"
    units.mkdir(parents=True)
    shutil.copy(miner / "quasar-miner.service", units)
    (units / "edited.service").write_text(f"[Service]\nExecStart = {tmp_path}/bin/quasar run\nExecStart=/old/quasar run\n")
    (units / "other.service").write_text("[Service]\nExecStart=/gone/elsewhere\n")
    (units / "mine.service").write_text("[Service]\nExecStart=%h/bin/quasar run\n")
    (home / ".pm2").mkdir()
    (home / ".pm2/dump.pm2").write_text(json.dumps([
        {"name": "quasar-miner", "pm_exec_path": str(program), "args": ["run", "-C", str(miner)]},
        {"name": "web", "pm_exec_path": "/gone/node"}, {"name": 7}, 8]))
    found = services(quasar, cwd=tmp_path)
    assert [(check["status"], check["detail"].partition(" ")[0]) for check in found] == [("fail", f"{units}/edited.service")]
    program.unlink()
    found = {check["detail"].partition(" starts ")[0]: check["remedy"] for check in services(quasar, cwd=tmp_path)}
    assert found.keys() == {f"{units}/edited.service", f"{units}/quasar-miner.service", f"{home}/.pm2/dump.pm2"}
    assert found[f"{home}/.pm2/dump.pm2"] == "pm2 delete quasar-miner && pm2 start ecosystem.config.js && pm2 save"
    assert found[f"{units}/quasar-miner.service"].endswith("quasar-miner.service && systemctl --user daemon-reload")


def test_names_in_the_settings_that_nothing_reads(quasar, workspace):
    def settings():
        done = quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", cwd=workspace)
        return [check for check in done.json["checks"] if check["name"] == "settings"]

    assert [check["status"] for check in settings()] == ["ok"]
    with (workspace / ".env").open("a") as env:
        env.write("CLAIM_MARGN=5\nCUDA_VISIBLE_DEVICES=0\nFROM_ELSEWHERE=s3cret\n")
    margin, other = settings()
    assert margin["status"] == other["status"] == "warn"
    assert "CLAIM_MARGN" in margin["detail"] and margin["remedy"] == "Did you mean CLAIM_MARGIN?"
    assert "FROM_ELSEWHERE" in other["detail"] and "quasar generate env" in other["remedy"]
    assert "s3cret" not in str(other)


def test_what_the_settings_say_to_cuda_and_pytorch_reaches_the_python(quasar, path_with, workspace, tmp_path):
    env = path_with(f"/usr/bin/env >>{tmp_path}/seen\n" + answer(path=f"{tmp_path}/bin/python3", torch="2.9.0"))
    with (workspace / ".env").open("a") as file:
        file.write("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nCUDA_VISIBLE_DEVICES=1\nTRITON_CACHE_DIR=/theirs\n")
    quasar("verify", "--seq", "64", cwd=workspace, env={**env, "TRITON_CACHE_DIR": "/mine"})
    seen = (tmp_path / "seen").read_text().splitlines()
    runs = sum(line.startswith("PATH=") for line in seen)  # it was asked what it has, and it was to run the fork
    assert runs >= 2 and seen.count("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True") == runs
    assert "CUDA_VISIBLE_DEVICES=1" in seen  # and none for a fork on the CPU
    assert "TRITON_CACHE_DIR=/mine" in seen and "TRITON_CACHE_DIR=/theirs" not in seen


def test_why_the_fork_is_not_imported(quasar, environment, workspace, tmp_path):
    """With something that Python takes for PyTorch."""
    (tmp_path / "site/torch").mkdir(parents=True)
    (tmp_path / "site/torch/__init__.py").write_text("")
    (tmp_path / "site/torch-9.9.dist-info").mkdir()
    (tmp_path / "site/torch-9.9.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9\n")
    layer = workspace / "fork/fla/layers/quasar.py"

    def imported(text):
        layer.write_text(text)
        return checks(quasar("doctor", "--json", *ONCE, "--api", "http://127.0.0.1:9", "--python", "/usr/bin/python3",
                             cwd=workspace, env={"PYTHONPATH": str(tmp_path / "site")}))["fork.import"]

    (workspace / "fork/fla/layers/__init__.py").write_text("")
    (workspace / "fork/fla/__init__.py").write_text("")
    assert imported("import torch\n")["status"] == "ok"
    broken = imported("import torch\n\ntorch.no_such_thing\n")
    assert broken["status"] == "fail" and ": fla/layers/quasar.py:3: AttributeError" in broken["detail"]
    missing = imported("import einops_that_nobody_has\n")
    assert missing["remedy"].endswith("-m pip install einops_that_nobody_has")


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


def test_a_sandbox_works_for_root_and_for_others(quasar, environment):
    """As far as this machine lets them: where it does not, it is said what to allow."""
    found = checks(quasar("doctor", "--json"))["sandbox"]
    assert found["status"] == "ok" or "bubblewrap" in found["remedy"]
    if os.geteuid() == 0 and found["status"] == "ok":
        with tempfile.TemporaryDirectory() as place:
            os.chmod(place, 0o755)
            binary = shutil.copy(QUASAR, place)
            done = subprocess.run(["setpriv", "--reuid", "12345", "--regid", "12345", "--clear-groups", binary, "doctor",
                                   "--json"], cwd="/", env=environment, capture_output=True, text=True)
        assert checks(Result(done))["sandbox"]["status"] == "ok"
