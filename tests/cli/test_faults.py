"""Faults injected into commit, reveal and submit: wherever the process is killed and whatever its disk does, the
same command finishes afterwards, exactly one submission is at the validator, and no salt is unknown.

A sample of the points is tried; with SWEEP=full in the environment, all of them."""
import datetime
import hashlib
import pathlib
import random
import time

import pytest

from conftest import FULL, QUASAR

pytestmark = pytest.mark.usefixtures("without_python")

SHIM = pathlib.Path(QUASAR).parent / "fault.so"


class Scene:
    """A registered hotkey with a workspace, and a validator that takes its commitments and lets them be revealed
    one block later."""

    def __init__(self, quasar, server, directory, tmp_path):
        self.quasar, self.server, self.directory, self.log = quasar, server, directory, tmp_path / "calls"
        self.database = directory / ".quasar" / "state.db"
        self.claim, self.left, self.cooldown = 10, set(), 0
        assert SHIM.exists(), f"make {SHIM}"

    def __call__(self, *args, fault=None, calls=None, **more):
        env = {"LD_PRELOAD": str(SHIM), "FAULT_LOG": str(self.log)}
        env.update({"FAULT": fault} if fault else {}, **({"FAULT_CALLS": calls} if calls else {}))
        return self.quasar(*args, cwd=self.directory, env=env, **more)

    def forget(self):
        """Every point begins with an empty store, and with a claim of its own, by which the validator's lists
        tell its submission from the others."""
        for name in self.database.parent.glob("state.db*"):
            name.unlink()
        self.database.write_bytes(self.empty)
        self.database.chmod(0o600)
        self.claim += 1
        self.left |= {entry["submission_id"] for entry in self.listed()}
        while self.cooldown and time.time() < self.newest() + self.cooldown:
            time.sleep(0.05)

    def calls(self):
        return self.log.read_text().split()

    def rows(self):
        done = self("status", "--json")
        assert done.code == 0, done.err
        return done.json["submissions"]

    def listed(self):
        return self.server.get("/pending_reveals").json["pending_reveals"]

    def pending(self):
        """The commitments since it last forgot."""
        return [entry for entry in self.listed() if entry["submission_id"] not in self.left]

    def awaited(self):
        """Without those of which the validator did not tell the id."""
        given_up = [row["commitment_hash"][:16] for row in self.rows() if row["step"] == "abandoned"]
        return [entry for entry in self.pending() if entry["commitment_hash"][:16] not in given_up]

    def recent(self):
        return self.server.get("/get_submission_stats?limit=200").json["recent_submissions"]

    def newest(self):
        times = [datetime.datetime.fromisoformat(entry["created_at"] + "+00:00").timestamp() for entry in self.recent()]
        return max(times, default=0)

    def submissions(self):
        return [entry for entry in self.recent() if entry["tokens_per_sec"] == self.claim]

    def send(self, command, **more):
        return self(command, "--no-verify", "--claim", self.claim, "--json", **more)

    def reveal(self, **more):
        return self("reveal", "--wait", "--json", **more)

    def assert_no_salt_is_unknown(self):
        """A commitment that the validator has can be revealed from what is in the store."""
        ours = [row["commitment_hash"][:16] for row in self.rows() if row["commitment_hash"]]
        assert all(entry["commitment_hash"][:16] in ours for entry in self.pending())

    def assert_one_revealed(self):
        assert len(self.submissions()) == 1 and self.awaited() == []
        assert [row["step"] for row in self.rows() if row["step"] != "abandoned"] == ["revealed"]


@pytest.fixture
def make_scene(quasar, start_version, like, tmp_path):
    """`between`, if given, makes what stands between the miner and the validator from the validator's URL; `cooldown`
    is the pause between submissions, of versions that have one."""

    def make(between=None, cooldown=0):
        limits = ("--cooldown", cooldown) if cooldown else ()
        server = start_version(like, "--block-time", "0.02", "--blocks-until-reveal", "1", *limits)
        proxy = between and between(server.url)
        assert quasar("wallet", "new").code == 0
        assert quasar("init", tmp_path / "miner", "--api", (proxy or server).url, "--seq", 512).code == 0
        scene = Scene(quasar, server, tmp_path / "miner", tmp_path)
        assert scene("register").code == 0
        scene.empty, scene.proxy, scene.cooldown = scene.database.read_bytes(), proxy, cooldown
        return scene

    return make


@pytest.fixture
def scene(make_scene):
    return make_scene()


# --- what is done at a point, and what must hold afterwards -----------------------------------------

class Commit:
    name = "commit"

    @staticmethod
    def prepare(scene):
        pass

    @staticmethod
    def run(scene, **more):
        return scene.send("commit", **more)

    @staticmethod
    def check(scene, last):
        assert last.code == 0, last.err
        assert len(scene.awaited()) == 1
        done = scene.reveal()
        assert done.code == 0, done.err
        scene.assert_one_revealed()


class Reveal:
    name = "reveal"

    @staticmethod
    def prepare(scene):
        done = scene.send("commit")
        assert done.code == 0, done.err
        while not scene.pending()[0]["can_reveal"]:
            pass

    @staticmethod
    def run(scene, **more):
        return scene.reveal(**more)

    @staticmethod
    def check(scene, last):
        """When the killed one had come to its end, there is nothing left to do for the next."""
        assert last.code == 0 or (last.code == 3 and "nothing to reveal" in last.out), last.err
        scene.assert_one_revealed()


class Submit:
    name = "submit"

    @staticmethod
    def prepare(scene):
        pass

    @staticmethod
    def run(scene, **more):
        return scene.send("submit", **more)

    @staticmethod
    def check(scene, last):
        assert last.code == 0, last.err
        [listed] = scene.submissions()
        told = last.json["submission_id"]
        assert told == listed["id"] or (told is None and scene.cooldown)
        assert [row["step"] for row in scene.rows()] == ["submitted"]


def trace(scene, task, calls=None):
    """The calls that the undisturbed command makes."""
    scene.forget()
    task.prepare(scene)
    last = task.run(scene, calls=calls)
    names = scene.calls()
    task.check(scene, last)
    return names


def sample(points, count):
    """Spread evenly, the first and the last among them."""
    if FULL or len(points) <= count:
        return points
    return [points[i * (len(points) - 1) // (count - 1)] for i in range(count)]


def report(capsys, text):
    with capsys.disabled():
        print(f"\n  {text}", flush=True)


# --- kill -9 ----------------------------------------------------------------------------------------

def kill_points(names):
    for number, name in enumerate(names, 1):
        yield f"before@{number}"
        if name in ("write", "send", "recv"):
            yield f"tear@{number}"
        yield f"after@{number}"


def kill_at_every_step(scene, capsys, task, count):
    points, killed = sample(list(kill_points(trace(scene, task))), count), 0
    for point in points:
        scene.forget()
        task.prepare(scene)
        killed += task.run(scene, fault=point).code == -9
        scene.assert_no_salt_is_unknown()
        task.check(scene, task.run(scene))
    assert killed >= count - 2  # an answer that arrives in one piece rather than two makes a call less
    report(capsys, f"{task.name}: killed at {killed} points, 0 lost, 0 double")


@pytest.mark.parametrize("task", [Commit, Reveal, Submit], ids=lambda task: task.name)
def test_killed_at_every_step(scene, capsys, task):
    kill_at_every_step(scene, capsys, task, 22)


@pytest.mark.parametrize("task", [Commit, Reveal, Submit], ids=lambda task: task.name)
def test_killed_again_while_going_on(scene, capsys, task):
    """What takes up an interrupted submission may be interrupted itself, more than once."""
    points = list(kill_points(trace(scene, task)))
    chance = random.Random(task.name)
    rounds, kills = 60 if FULL else 3, 0
    for _ in range(rounds):
        scene.forget()
        task.prepare(scene)
        kills += sum(task.run(scene, fault=chance.choice(points)).code == -9 for _ in range(4))
        task.check(scene, task.run(scene))
    assert kills > rounds
    report(capsys, f"{task.name}: {rounds} rounds of {kills} kills, 0 lost, 0 double")


# --- disks that fail --------------------------------------------------------------------------------

FAILURES = {"full": ("ENOSPC", "create,write,truncate,mkdir", "+"),
            "read-only": ("EROFS", "create,truncate,write,fsync,rename,link,unlink,mkdir", "+"),
            "one fsync fails": ("EIO", "fsync", ""),
            "no fsync works": ("EIO", "fsync", "+")}


@pytest.mark.parametrize("task", [Commit, *(pytest.param(task, marks=pytest.mark.long) for task in (Reveal, Submit))],
                         ids=lambda task: task.name)
def test_a_disk_that_fails(scene, capsys, task):
    tried = 0
    for failure, (error, calls, lasting) in FAILURES.items():
        names, told = trace(scene, task, calls), 0
        points = sample(range(1, len(names) + 1), 3)
        for number in points:
            scene.forget()
            task.prepare(scene)
            done = task.run(scene, fault=f"{error}@{number}{lasting}", calls=calls)
            if done.code:
                assert done.code == 3, (failure, number, done.err)
                assert "/.quasar/" in done.json["error"]["message"], (failure, number, done.out)
                told += 1
            scene.assert_no_salt_is_unknown()
            task.check(scene, task.run(scene))
        assert told, failure
        tried += len(points)
    report(capsys, f"{task.name}: the disk failed at {tried} points, 0 lost, 0 double")


def test_a_folder_that_cannot_be_written(scene):
    scene.forget()
    scene.database.chmod(0o400)
    scene.database.parent.chmod(0o500)
    assert scene("status", "--json", bound=True).json["submissions"] == []
    for command in ("commit", "submit"):
        done = scene(command, "--json", bound=True)
        assert done.code == 3, (command, done.err)
        error = done.json["error"]
        assert ".quasar" in error["message"] and "writable" in error["hint"], error
    assert scene.pending() == []
    scene.database.parent.chmod(0o700)
    scene.database.chmod(0o600)
    Commit.check(scene, Commit.run(scene))
