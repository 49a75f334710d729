"""What starts a miner under systemd, pm2 and screen: the files that `quasar init` writes."""
import json
import os
import re
import shutil
import subprocess
import time

import pytest
from conftest import QUASAR
from patience import LONG
from systemd import Systemd

ODD = 'we"i\\rd $d%r `x` \'q\''


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"no {program} here")


@pytest.fixture
def odd(quasar, tmp_path):
    """A workspace with letters in its name that each of the files has to quote."""
    assert quasar("init", tmp_path / ODD).code == 0
    return tmp_path / ODD


def unit_of(workspace, name="quasar-miner"):
    return (workspace / f"{name}.service").read_text()


# --- systemd -------------------------------------------------------------------------------------------

def test_the_unit_names_program_and_workspace_whatever_their_letters(odd):
    for unit, command in (unit_of(odd), 'run -C "(.*)"'), \
            (unit_of(odd, "quasar-inference"), 'serve -C "(.*)" --host 0.0.0.0'):
        words = re.search(rf'^ExecStart="(.*)" {command}$', unit, re.M).groups()
        assert [re.sub(r"\\(.)", r"\1", word).replace("$$", "$").replace("%%", "%") for word in words] == \
            [QUASAR, str(odd)]


def test_each_workspace_has_a_name_of_its_own(odd, workspace):
    for place, name in (odd, "quasar-we-i-rd--d-r--x---q-"), (workspace, "quasar-miner"):
        assert f"systemctl --user enable --now {name}\n" in unit_of(place)
        assert f'name: "{name}"' in (place / "ecosystem.config.js").read_text()
        assert f"screen -dmS {name} " in (place / "start-in-screen.sh").read_text()


def test_the_unit_has_the_path_of_the_shell(quasar, tmp_path):
    path = "/opt/100%/bin:" + os.environ["PATH"]
    assert quasar("init", tmp_path / "miner", env={"PATH": path}).code == 0
    assert f'\nEnvironment="PATH={path.replace("%", "%%")}"\n' in unit_of(tmp_path / "miner")


@needs("systemd-analyze")
def test_systemd_has_nothing_to_object_to(odd, environment, tmp_path):
    units = odd / "quasar-miner.service", odd / "quasar-inference.service"
    done = subprocess.run(["systemd-analyze", "--user", "verify", *units], text=True,
                          env={**environment, "XDG_RUNTIME_DIR": str(tmp_path)}, capture_output=True)
    assert done.returncode == 0 and done.stdout + done.stderr == ""


@pytest.fixture
def systemd(environment):
    try:
        systemd = Systemd(environment)
    except RuntimeError as why:
        pytest.skip(f"no systemd of its own can run here: {why}")
    yield systemd
    systemd.close()


def test_a_real_systemd_keeps_it_running(systemd, localnet, odd, quasar, home, tmp_path):
    (odd / ".env").write_text(f"VALIDATOR_API_URL={localnet.url}\nTARGET_SEQUENCE_LENGTH=64\n")
    assert quasar("wallet", "new").code == 0 and quasar("register", cwd=odd).code == 0
    name, log, units = "quasar-odd", tmp_path / "log", home / ".config/systemd/user"
    (units / f"{name}.service.d").mkdir(parents=True)
    shutil.copy(odd / "quasar-miner.service", units / f"{name}.service")
    (units / f"{name}.service.d" / "quick.conf").write_text(
        f"[Service]\nRestartSec=100ms\nWatchdogSec=3\nStandardOutput=append:{log}\n")
    systemd.systemctl("daemon-reload")

    def restarts():
        return int(systemd.property(name, "NRestarts"))

    def kill(how):
        before = restarts()
        assert systemd.systemctl("kill", "--kill-who=main", f"--signal={how}", name).returncode == 0
        systemd.until(lambda: restarts() > before and systemd.property(name, "ActiveState") == "active")

    started = systemd.systemctl("start", name)
    assert started.returncode == 0, started.stderr
    assert systemd.property(name, "StatusText")
    assert systemd.systemctl("reload", name).returncode == 0
    systemd.until(lambda: '"settings"' in log.read_text())
    kill("SIGKILL")
    kill("SIGSTOP")  # the watchdog's work
    assert systemd.systemctl("stop", name).returncode == 0
    assert systemd.property(name, "Result") == "success" and systemd.property(name, "ExecMainStatus") == "0"

    (home / ".bittensor").rename(home / "away")
    assert systemd.systemctl("start", name).returncode != 0
    # systemd forgets both when it starts the service again, which it does all the time
    systemd.until(lambda: systemd.property(name, "ExecMainStatus") == "3")
    systemd.until(lambda: "has no hotkey" in systemd.property(name, "StatusText"))
    (home / "away").rename(home / ".bittensor")
    systemd.until(lambda: systemd.property(name, "ActiveState") == "active")


# --- pm2 -----------------------------------------------------------------------------------------------

@needs("node")
def test_pm2_starts_it_again_whatever_ended_it(odd):
    def read(name):
        script = "console.log(JSON.stringify(require(process.argv[1])))"
        done = subprocess.run(["node", "-e", script, odd / name], capture_output=True, check=True)
        app, = json.loads(done.stdout)["apps"]
        return app

    server = read("inference.config.js")
    assert server["script"] == QUASAR and server["interpreter"] == "none" and "stop_exit_codes" not in server
    assert server["args"] == ["serve", "-C", str(odd), "--host", "0.0.0.0"]
    assert server["kill_timeout"] > 30000  # what serve takes to finish requests
    app = read("ecosystem.config.js")
    assert app["script"] == QUASAR and app["args"] == ["run", "-C", str(odd)] and app["interpreter"] == "none"
    # pm2 takes the end by a signal for exit code 0, and code 3 passes when a disk is mounted late
    assert "stop_exit_codes" not in app and app["restart_delay"] >= 60000
    assert app["kill_timeout"] > 10000  # what run may need for its last events


# --- screen --------------------------------------------------------------------------------------------

def test_screen_gets_program_and_workspace_whatever_their_letters(odd, tmp_path):
    (tmp_path / "screen").write_text('#!/bin/sh\n[ "$1" = -ls ] && exit 1\nprintf "%s\\n" "$@"\n')
    (tmp_path / "screen").chmod(0o755)
    done = subprocess.run([odd / "start-in-screen.sh"], capture_output=True, text=True, check=True,
                          env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.stdout.splitlines()[-2:] == [QUASAR, str(odd)]


@needs("screen")
def test_in_a_screen_it_goes_on_until_it_is_stopped(workspace, environment, tmp_path):
    shown = tmp_path / "shown"

    def screen(*command):
        return subprocess.run(command, env={**environment, "SCREENDIR": str(tmp_path / "s")}, cwd=tmp_path,
                              capture_output=True, text=True, timeout=LONG)

    def until(condition):
        end = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < end

    def listed():
        return "quasar-miner" in screen("screen", "-ls").stdout

    def shows(text):
        screen("screen", "-S", "quasar-miner", "-X", "hardcopy", str(shown))
        return shown.exists() and text in shown.read_text(errors="replace")

    (tmp_path / "s").mkdir(mode=0o700)
    assert screen(workspace / "start-in-screen.sh").returncode == 0
    until(lambda: shows("has no hotkey") and shows("Again in five minutes."))
    second = screen(workspace / "start-in-screen.sh")
    assert second.returncode == 1 and "already running" in second.stderr
    screen("screen", "-S", "quasar-miner", "-X", "stuff", "\x03")
    until(lambda: not listed())
