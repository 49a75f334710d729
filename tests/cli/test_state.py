"""quasar export-state and import-state: the journal on its way to another machine."""
import json
import os
import pathlib
import shutil
import sqlite3
import stat
import subprocess

import pytest

from conftest import QUASAR

pytestmark = pytest.mark.usefixtures("without_python")

PASSPHRASE = {"QUASAR_PASSPHRASE": "correct horse battery"}


def add_submission(workspace, number, kind="commit", step="committed", server_id=None):
    """Puts a submission and its journal into a store, as if it had been made there. Its salt."""
    salt = f"{number:032x}" if kind == "commit" else None
    with sqlite3.connect(workspace / ".quasar/state.db") as db:
        row = db.execute(
            "INSERT INTO submission (kind, step, api_url, hotkey, fork_url, commit_hash, target_sequence_length,"
            " tokens_per_sec, salt, commitment_hash, server_id, reveal_block, created_at, updated_at)"
            " VALUES (?, ?, 'http://validator', 'key', 'file:///fork', ?, 1000000, 1234.5, ?, ?, ?, 77, ?, ?)",
            (kind, step, f"{number:040x}", salt, salt and f"{number:064x}", server_id, number + 0.1, number + 0.2))
        db.execute("INSERT INTO journal (submission, at, text) VALUES (?, ?, ?)",
                   (row.lastrowid, number + 0.1, f"prepared {number}"))
    db.close()
    return salt


def rows(workspace, table="submission", columns="*"):
    db = sqlite3.connect(workspace / ".quasar/state.db")
    try:
        return db.execute(f"SELECT {columns} FROM {table} ORDER BY id").fetchall()
    finally:
        db.close()


@pytest.fixture
def make_workspace(quasar, tmp_path):
    def make(name):
        assert quasar("init", tmp_path / name).code == 0
        return tmp_path / name

    return make


def add_three(workspace):
    add_submission(workspace, 1, server_id=11)
    add_submission(workspace, 2, step="revealed", server_id=12)
    add_submission(workspace, 3, kind="direct", step="submitted", server_id=13)


@pytest.fixture(scope="module")
def sealed(tmp_path_factory):
    """A workspace's file, made once: to derive a key takes its time, by design."""
    place = tmp_path_factory.mktemp("sealed")
    environment = {"HOME": str(place), "PATH": os.environ["PATH"], **PASSPHRASE}
    subprocess.run([QUASAR, "init", place / "miner"], env=environment, capture_output=True, check=True)
    add_three(place / "miner")
    subprocess.run([QUASAR, "export-state", place / "state.sealed"], cwd=place / "miner", env=environment,
                   capture_output=True, check=True)
    return place / "state.sealed"


@pytest.fixture
def exported(sealed, workspace, tmp_path):
    """A file with three submissions that `workspace` has: one waiting, one revealed, one direct."""
    add_three(workspace)
    return pathlib.Path(shutil.copy(sealed, tmp_path))


def test_everything_arrives(quasar, workspace, exported, make_workspace):
    other = make_workspace("other")
    done = quasar("import-state", exported, "--json", cwd=other, env=PASSPHRASE)
    assert done.code == 0, done.err
    assert done.json == {"file": str(exported), "added": 3, "known": 0, "salts": 0, "unrevealed": 1}
    assert rows(other) == rows(workspace)
    assert rows(other, "journal", "submission, text") == [
        (1, "prepared 1"), (1, "imported"), (2, "prepared 2"), (2, "imported"), (3, "prepared 3"), (3, "imported")]


def test_nothing_is_doubled_or_overwritten(quasar, workspace, exported, make_workspace):
    other = make_workspace("other")
    add_submission(other, 9)
    add_submission(other, 1, step="revealed", server_id=11)  # further on here than in the file
    assert quasar("import-state", exported, "--json", cwd=other, env=PASSPHRASE).json["added"] == 2
    assert rows(other, columns="created_at, step") == [
        (9.1, "committed"), (1.1, "revealed"), (2.1, "revealed"), (3.1, "submitted")]
    before = rows(other), rows(other, "journal")
    done = quasar("import-state", exported, cwd=other, env=PASSPHRASE)
    assert done.code == 0 and done.out == "0 submissions added, 3 already known.\n"
    assert (rows(other), rows(other, "journal")) == before


def test_a_salt_is_kept_when_another_commitment_has_the_same_server_id(quasar, exported, make_workspace):
    other = make_workspace("other")
    add_submission(other, 5, server_id=11)  # a validator that began anew counts from the start again
    assert quasar("import-state", exported, "--json", cwd=other, env=PASSPHRASE).json["added"] == 3


def test_the_file_is_private_and_shows_nothing(exported):
    assert stat.S_IMODE(exported.stat().st_mode) == 0o600
    content = exported.read_bytes()
    assert b"SQLite" not in content and f"{1:032x}".encode() not in content and b"validator" not in content


def test_an_existing_file_is_kept_unless_forced(quasar, workspace, exported):
    before = exported.read_bytes()
    done = quasar("export-state", exported, cwd=workspace, env=PASSPHRASE)
    assert done.code == 3 and "--force" in done.err and exported.read_bytes() == before
    assert quasar("export-state", "--force", exported, cwd=workspace, env=PASSPHRASE).code == 0
    assert exported.read_bytes() != before


@pytest.mark.parametrize("damage, says", [
    (lambda data: data[:-1], "cut short"),
    (lambda data: data[:100], "cut short"),
    (lambda data: data[:20], "cut short"),
    (lambda data: b"", "cut short"),
    (lambda data: data + b"x", "damaged"),
    (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "damaged"),
    (lambda data: data[:10] + bytes([data[10] ^ 1]) + data[11:], "damaged"),
    (lambda data: data[:7] + b"\x02" + data[8:], "version 2"),
    (lambda data: b"x" + data[1:], "not made by"),
])
def test_a_damaged_file_changes_nothing(quasar, exported, make_workspace, damage, says):
    other = make_workspace("other")
    exported.write_bytes(damage(exported.read_bytes()))
    done = quasar("import-state", exported, cwd=other, env=PASSPHRASE)
    assert done.code == 3 and says in done.err and rows(other) == []


def test_a_wrong_passphrase_changes_nothing_and_is_not_shown(quasar, exported, make_workspace):
    other = make_workspace("other")
    done = quasar("import-state", exported, "--json", cwd=other, env={"QUASAR_PASSPHRASE": "guess"})
    assert done.code == 3 and "passphrase is wrong" in done.json["error"]["message"]
    assert "guess" not in done.out + done.err and rows(other) == []


def test_the_passphrase_is_asked_for_twice(quasar, workspace, terminal, tmp_path):
    run = terminal("export-state", "-C", workspace, "asked.sealed")
    for answer in ("same", "other"):
        run.expect(": ")
        run.send(answer + "\n")
    assert run.finish() == 3 and "differ" in run.out and not (tmp_path / "asked.sealed").exists()
    run = terminal("export-state", "-C", workspace, "asked.sealed")
    for _ in range(2):
        run.expect(": ")
        run.send("same\n")
    assert run.finish() == 0
    assert quasar("import-state", "-C", workspace, "asked.sealed", env={"QUASAR_PASSPHRASE": "same"}).code == 0


def test_without_terminal_and_setting_it_says_so(quasar, workspace):
    done = quasar("export-state", "x.sealed", cwd=workspace)
    assert done.code == 3 and "QUASAR_PASSPHRASE" in done.err
    assert quasar("export-state", "x.sealed").code == 3  # not a workspace


def test_a_reveal_on_the_other_machine(quasar, hotkey, localnet, tmp_path):
    api = {"VALIDATOR_API_URL": localnet.url, **PASSPHRASE}
    for name in ("old", "new"):
        assert quasar("init", name, "--seq", "512").code == 0
    assert quasar("register", cwd=tmp_path / "old", env=api).code == 0
    assert quasar("bench", "--native", "--runs", 1, cwd=tmp_path / "old", env=api).code == 0
    done = quasar("commit", "--margin", "50%", cwd=tmp_path / "old", env=api)
    assert done.code == 0, done.err
    assert quasar("export-state", "../state.sealed", cwd=tmp_path / "old", env=api).code == 0
    assert quasar("import-state", "../state.sealed", cwd=tmp_path / "new", env=api).code == 0
    done = quasar("reveal", "--wait", cwd=tmp_path / "new", env=api)
    assert done.code == 0, done.err
    step = json.loads(quasar("status", "--json", cwd=tmp_path / "new", env=api).out)["submissions"][0]["step"]
    assert step == "revealed"


@pytest.fixture
def backed_up(quasar, hotkey, localnet, tmp_path):
    """A workspace with a commitment, of which there is a backup; runs commands in it."""
    env = {"VALIDATOR_API_URL": localnet.url, **PASSPHRASE}
    directory = tmp_path / "miner"

    def run(*args, code=0):
        done = quasar(*args, cwd=directory, env=env)
        assert done.code == code, done.err
        return done

    assert quasar("init", directory, "--seq", 512).code == 0
    run("register")
    run("commit", "--no-verify", "--claim", 5)
    run("export-state", tmp_path / "state.sealed")
    run.directory = directory
    run.lose_store = lambda: [path.unlink() for path in (directory / ".quasar").glob("state.db*")]
    return run


def test_a_backup_brings_back_what_recover_could_not(backed_up, tmp_path):
    backed_up.lose_store()
    backed_up("init", ".")
    assert len(backed_up("recover", "--json", code=1).json["unrevealable"]) == 1
    assert backed_up("import-state", tmp_path / "state.sealed", "--json").json["unrevealed"] == 1
    assert backed_up("recover", "--json").json["unrevealable"] == []
    backed_up("reveal", "--wait")


def test_what_recover_took_from_the_validator_is_not_doubled(backed_up, tmp_path):
    [salt] = rows(backed_up.directory, columns="salt")
    backed_up("reveal", "--wait")
    backed_up.lose_store()
    backed_up("init", ".")
    assert len(backed_up("recover", "--json").json["found"]) == 1
    assert rows(backed_up.directory, columns="kind, step, salt") == [("direct", "submitted", None)]
    for salts in (1, 0):
        done = backed_up("import-state", tmp_path / "state.sealed", "--json")
        assert [done.json[name] for name in ("added", "known", "salts", "unrevealed")] == [0, 1, salts, 0]
        assert rows(backed_up.directory, columns="kind, step, salt") == [("commit", "revealed", *salt)]
    assert rows(backed_up.directory, "journal", "text")[-1] == ("salt imported",)


def test_a_spoilt_salt_is_replaced_by_one_that_gives_the_hash(backed_up, tmp_path):
    def spoil():
        with sqlite3.connect(backed_up.directory / ".quasar/state.db") as db:
            db.execute("UPDATE submission SET salt = 'spoilt'")
        db.close()

    spoil()
    done = backed_up("reveal", "--wait", code=3)
    assert "does not belong to its commitment" in done.err and "import-state" in done.err
    backed_up("export-state", tmp_path / "spoilt.sealed")
    assert backed_up("import-state", tmp_path / "spoilt.sealed", "--json").json["salts"] == 0
    assert "1 of those lacked their salt" in backed_up("import-state", tmp_path / "state.sealed").out
    backed_up("reveal", "--wait")
