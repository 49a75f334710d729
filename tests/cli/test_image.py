"""quasar image, as far as no container is needed; the rest is in tests/image."""
import json
import os
import stat
import subprocess

import pytest
import tiny_model

DIGEST = "sha256:" + "5e" * 32


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def tools(tmp_path):
    """Puts tools into a PATH of their own, which note what they are asked: tools(docker="echo said")."""
    place = tmp_path / "tools"
    place.mkdir()

    def make(**scripts):
        for name, script in scripts.items():
            (place / name).write_text(f'#!/bin/sh\necho "$0 $@" >>{place}/asked\n{script}\n')
            (place / name).chmod(0o755)
        return {"PATH": f"{place}:/usr/bin:/bin"} if scripts else {"PATH": str(place)}

    def asked():
        return [line[len(f"{place}/"):].split() for line in (place / "asked").read_text().splitlines()]

    make.asked = asked
    return make


def test_what_goes_into_it(quasar, model, tmp_path):
    done = quasar("image", "--model", model, "--context", "context", env={"PATH": "/usr/bin:/bin"})
    assert done.code == 0, done.err
    context = tmp_path / "context"
    root = context / "root"
    assert sorted(path.name for path in (context / "model").iterdir()) == ["config.json", "model.safetensors"]
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777
    lines = (context / "Containerfile").read_text().splitlines()
    assert lines[0] == "FROM scratch" and "USER 65532:65532" in lines
    entry = json.loads(lines[-1].removeprefix("ENTRYPOINT "))
    assert entry[:4] == ["/usr/bin/quasar", "serve", "--port", "8000"] and entry[-1] == model.name  # no path of ours
    loader, = (root / "lib64").glob("ld-linux*") if (root / "lib64").exists() else (root / "lib").glob("ld-linux*")
    said = subprocess.run([loader, "--inhibit-cache", "--library-path", root / "usr/lib", "--list", root / "usr/bin/quasar"],
                          env={}, capture_output=True, text=True, check=True).stdout
    assert all(str(root) in line for line in said.splitlines() if "=>" in line), said
    assert list((root / "usr/lib").glob("libopenblas*"))
    assert quasar("image", "--model", model, "--context", "context").code == 3  # nothing is written over


def test_models_are_linked_not_copied(quasar, model, tmp_path):
    weights = tmp_path / "tiny" / "model.safetensors"
    weights.parent.mkdir()
    weights.write_bytes((model / "model.safetensors").read_bytes())
    weights.chmod(0o644)
    (weights.parent / "config.json").symlink_to(model / "config.json")
    assert quasar("image", "--model", weights.parent, "--context", "context").code == 0
    assert os.path.samefile(tmp_path / "context" / "model" / "model.safetensors", weights)
    assert not (tmp_path / "context" / "model" / "config.json").is_symlink()
    weights.chmod(0o600)  # nobody else could read it in the image
    assert quasar("image", "--model", weights.parent, "--context", "other").code == 0
    copy = tmp_path / "other" / "model" / "model.safetensors"
    assert not os.path.samefile(copy, weights) and stat.S_IMODE(copy.stat().st_mode) == 0o644


def test_docker_builds_and_pushes_it_and_env_names_it(quasar, model, workspace, tools):
    environment = tools(docker=f'[ $1 = push ] && echo "1: digest: {DIGEST} size: 528"; exit 0', podman="exit 1")
    done = quasar("image", "--model", model, "--tag", "docker.io/you/it:1", "--push", "--json", cwd=workspace,
                  env=environment)
    assert done.code == 0, done.err
    assert done.json == {"image": "docker.io/you/it:1", "reference": f"docker.io/you/it@{DIGEST}"}
    assert f'\nMINER_DOCKER_IMAGE="docker.io/you/it@{DIGEST}"\n' in (workspace / ".env").read_text()
    assert (workspace / ".env").stat().st_mode & 0o077 == 0
    build, push = [words for words in tools.asked() if words[0] == "docker" and words[1] != "info"]
    assert build[1:6] == ["build", "--quiet", "--tag", "docker.io/you/it:1", "--file"] and not os.path.exists(build[-1])
    assert push == ["docker", "push", "docker.io/you/it:1"]
    # the next one goes by the same name
    assert quasar("image", "--model", model, cwd=workspace, env=environment).code == 0
    assert tools.asked()[-1][4] == "docker.io/you/it"


def test_logins_reach_the_tool_and_other_secrets_do_not(quasar, model, tools, tmp_path):
    environment = tools(podman=f"env >{tmp_path}/seen")
    quasar("image", "--model", model, env={**environment, "REGISTRY_AUTH_FILE": "logins", "WALLET_PASSWORD": "pw"})
    seen = (tmp_path / "seen").read_text()
    assert "REGISTRY_AUTH_FILE=logins" in seen and "WALLET_PASSWORD" not in seen


@pytest.mark.parametrize("args, code, words", [
    (["--push"], 2, "--tag"), (["--context", "c", "--push", "--tag", "a/b"], 2, "--context"),
    (["--tag", "A B"], 2, "not the reference"), (["--tool", "make"], 2, "make"), ([], 3, "apt-get install podman"),
])
def test_what_cannot_be(quasar, model, tools, args, code, words):
    done = quasar("image", "--model", model, *args, env=tools())
    assert done.code == code and words in done.err


def test_a_tool_that_fails_is_heard(quasar, model, tools, tmp_path):
    environment = {**tools(buildah='[ $1 = info ] || { echo "no space left"; exit 125; }'), "TMPDIR": str(tmp_path / "t")}
    (tmp_path / "t").mkdir()
    done = quasar("image", "--model", model, "--tool", "buildah", env=environment)
    assert done.code == 3 and "no space left" in done.err
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize("args, words", [
    (["--image"], "MINER_DOCKER_IMAGE"), (["--image=A B"], "not the reference"),
    (["--image=a", "--logits", "http://localhost:1"], "only one"), (["--image=a", "--static"], "--image cannot"),
])
def test_what_verify_cannot_run(quasar, model, args, words):
    done = quasar("verify", "--reference", model, *args)
    assert done.code == 2 and words in done.err
