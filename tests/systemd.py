"""A real systemd for user services, in namespaces of its own: nothing of the machine's is touched."""
import os
import pathlib
import signal
import subprocess
import time

from patience import LONG

PROGRAM = "/lib/systemd/systemd"

# In the new namespaces: what a user's systemd looks for on a machine that has booted with systemd.
BEGIN = """
set -e
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system /run/user
mount -t cgroup2 cgroup2 /sys/fs/cgroup
XDG_RUNTIME_DIR=/run/user {program} --user --unit=basic.target &
wait
"""


class Systemd:
    """Runs when made; RuntimeError where it cannot: it takes root and a cgroup2 to make a cgroup in."""

    def __init__(self, environment):
        self.environment = {**environment, "XDG_RUNTIME_DIR": "/run/user"}
        self.cgroup = self.make_cgroup()
        command = ["unshare", "--cgroup", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                   "sh", "-c", BEGIN.format(program=PROGRAM)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, text=True, preexec_fn=self.enter_cgroup)
        try:
            self.until(lambda: self.process.poll() is not None or
                       self.systemctl("is-system-running").stdout in ("running\n", "degraded\n"))
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stdout.read())
        except BaseException:
            self.close()
            raise

    @staticmethod
    def make_cgroup():
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        places = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
        if not os.path.exists(PROGRAM) or os.geteuid() != 0 or not places:
            raise RuntimeError("no systemd, not root, or no cgroup2")
        cgroup = pathlib.Path(places[0]) / f"quasar-test-{os.getpid()}"
        try:
            cgroup.mkdir()
        except OSError as why:
            raise RuntimeError(str(why)) from why
        return cgroup

    def enter_cgroup(self):
        (self.cgroup / "cgroup.procs").write_text(str(os.getpid()))

    def systemctl(self, *args):
        """`systemctl --user` there."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        inside = ["nsenter", "--all", "--target", children.read_text().strip() or "0"]
        return subprocess.run([*inside, "systemctl", "--user", *args], env=self.environment, text=True,
                              capture_output=True, timeout=LONG)

    def property(self, unit, name):
        return self.systemctl("show", "--property", name, "--value", unit).stdout.strip()

    @staticmethod
    def until(condition):
        end = time.monotonic() + LONG
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    def close(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.until(lambda: "populated 0" in (self.cgroup / "cgroup.events").read_text())
        for folder in sorted(self.cgroup.glob("**/"), reverse=True):
            folder.rmdir()
