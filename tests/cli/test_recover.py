"""quasar recover: a damaged state store is set aside, what can be read of it is kept, what the validator knows is
taken in, and what is lost is named."""
import hashlib
import os
import sqlite3

import pytest

from test_faults import kill_points, make_scene, report, sample, scene  # noqa: F401: two are fixtures

pytestmark = pytest.mark.usefixtures("without_python")

FORK = "file:///fork"


def make_rows(scene, count):
    """Puts revealed submissions of an earlier time into the store; their salts."""
    with sqlite3.connect(scene.database) as db:
        for number in range(count):
            salt = f"{number:064x}"
            db.execute(
                "INSERT INTO submission (kind, step, api_url, hotkey, fork_url, commit_hash, target_sequence_length,"
                " tokens_per_sec, salt, commitment_hash, server_id, reveal_block, created_at, updated_at)"
                " VALUES ('commit', 'revealed', ?, 'another', ?, ?, 512, 1.5, ?, ?, ?, 7, ?, ?)",
                (scene.server.url, FORK, f"{number:040x}", salt,
                 hashlib.sha256((salt + FORK).encode()).hexdigest(), 10000 + number, number, number))
    db.close()


def salts(scene):
    with sqlite3.connect(scene.database) as db:
        found = [row[0] for row in db.execute("SELECT salt FROM submission ORDER BY id")]
    db.close()
    return found


def aside(scene):
    return sorted(path for path in scene.database.parent.glob("state.db.damaged-*") if path.name[-7] == ".")


@pytest.fixture
def damaged(scene):
    """A store with 40 submissions of earlier times and a commitment that waits for its reveal; `break_store`
    rewrites its file."""
    scene.forget()
    make_rows(scene, 40)
    done = scene.send("commit")
    assert done.code == 0, done.err
    scene.salts = salts(scene)

    def break_store(change):
        scene.content = change(scene.database.read_bytes())
        scene.database.write_bytes(scene.content)
        assert scene("reveal").code == 3

    scene.break_store = break_store
    return scene


def page_of(data, text):
    return data.index(text.encode()) // 4096


def spoil_page(data, page):
    return data[:page * 4096] + os.urandom(4096) + data[(page + 1) * 4096:]


def test_a_sound_store_stays(scene):
    scene.forget()
    assert scene.send("commit").code == 0
    before = salts(scene)
    done = scene("recover", "--json")
    assert done.code == 0, done.err
    assert done.json == {"missing": False, "aside": None, "read": 0, "unreadable": 0, "unreadable_stores": 0, "found": [],
                         "unrevealable": [], "skipped_rows": 0, "compared": True}
    assert salts(scene) == before and aside(scene) == []
    assert "sound" in scene("recover").out


def test_one_bad_page_takes_only_its_own_with_it(damaged):
    bad = f"{20:064x}"
    damaged.break_store(lambda data: spoil_page(data, page_of(data, bad)))
    done = damaged("recover", "--json")
    assert done.code == 0, done.err
    assert done.json["read"] + done.json["unreadable"] == 41 and 1 <= done.json["unreadable"] <= 20
    assert done.json["unrevealable"] == []
    kept = salts(damaged)
    assert bad not in kept and set(kept) < set(damaged.salts) and len(kept) == done.json["read"]
    [file] = aside(damaged)
    assert str(file) == done.json["aside"] and file.read_bytes() == damaged.content
    assert file.stat().st_mode & 0o077 == 0
    assert damaged("recover", "--json").json["read"] == 0  # nothing twice
    assert damaged.reveal().code == 0
    assert len(damaged.submissions()) == 1 and damaged.pending() == []


@pytest.mark.parametrize("columns, rest", [
    (["sent_at"], "PRAGMA user_version = 5"),
    (["sent_at", "score"], "PRAGMA user_version = 4"),
    (["sent_at", "score", "docker_image", "reveal_time", "doubt_since"], "DROP TABLE validator; PRAGMA user_version = 3")])
def test_a_damaged_store_of_an_earlier_program_is_read(damaged, columns, rest):
    with sqlite3.connect(damaged.database) as db:
        for column in columns:
            db.execute(f"ALTER TABLE submission DROP COLUMN {column}")
        db.executescript(rest)
    db.close()
    damaged.break_store(lambda data: spoil_page(data, page_of(data, f"{20:064x}")))
    done = damaged("recover", "--json")
    assert done.code == 0, done.err
    assert done.json["read"] + done.json["unreadable"] == 41 and done.json["read"] >= 20
    assert damaged.reveal().code == 0


def test_a_lost_salt_is_named(damaged):
    damaged.break_store(lambda data: spoil_page(data, page_of(data, damaged.salts[-1])))
    waiting = damaged.pending()[0]
    done = damaged("recover")
    assert done.code == 1 and done.err == ""
    assert f"Submission {waiting['submission_id']} " in done.out and "cannot be revealed from here" in done.out
    done = damaged("recover", "--json")
    assert done.code == 1
    assert done.json["unrevealable"] == [{name: waiting[name] for name in ("submission_id", "commitment_hash",
                                                                           "reveal_block")}]
    status = damaged("status")
    assert "1 more by this hotkey" in status.out and "quasar recover" in status.out


def cut(data, rest):
    """Ends the file behind the page that holds the 21st submission, and `rest` bytes of the next."""
    return data[:(page_of(data, f"{20:064x}") + 1) * 4096 + rest]


@pytest.mark.parametrize("change", [lambda data: cut(data, 0), lambda data: cut(data, 1000),
                                    lambda data: data[:-4096]], ids=["between pages", "in a page", "last page"])
def test_a_truncated_store(damaged, change):
    damaged.break_store(change)
    done = damaged("recover", "--json")
    assert done.code in (0, 1), done.err
    assert done.json["read"] > 0 and done.json["read"] + done.json["unreadable"] == 41
    assert len(salts(damaged)) == done.json["read"] and set(salts(damaged)) < set(damaged.salts)
    assert (done.code == 1) == (damaged.salts[-1] not in salts(damaged))


@pytest.mark.parametrize("change", [lambda data: b"", lambda data: b"garbage" * 5000,
                                    lambda data: bytes(4096) + data[4096:], lambda data: data[:100]],
                         ids=["empty", "garbage", "no header", "header only"])
def test_a_store_of_which_nothing_is_left(damaged, change):
    damaged.break_store(change)
    done = damaged("recover", "--json")
    assert done.code == 1, done.err
    assert done.json["read"] == 0 and done.json["unreadable_stores"] == 1
    assert len(done.json["unrevealable"]) == 1
    assert aside(damaged)[0].read_bytes() == damaged.content
    assert damaged("status").code == 0


def test_what_the_validator_lists_is_recorded_again(damaged):
    assert damaged.send("submit").code == 0
    assert damaged.reveal().code == 0
    ids = sorted(entry["id"] for entry in damaged.submissions())
    damaged.break_store(lambda data: b"")
    done = damaged("recover", "--json")
    assert done.code == 0, done.err
    assert sorted(done.json["found"]) == ids and len(ids) == 2
    again = damaged.send("submit")
    assert again.code == 0 and again.json["already"]
    assert sorted(entry["id"] for entry in damaged.submissions()) == ids
    assert damaged("status", "--json").json["unknown_here"] == 0


def test_without_the_validator_the_store_is_mended_all_the_same(damaged):
    damaged.break_store(lambda data: spoil_page(data, page_of(data, f"{20:064x}")))
    damaged.server.stop()
    done = damaged("recover", "--timeout", 1)
    assert done.code == 4 and "state.db.damaged-" in done.out
    assert damaged.salts[-1] in salts(damaged)


def test_another_program_s_file_is_left_alone(scene):
    scene.forget()
    scene.database.unlink()
    with sqlite3.connect(scene.database) as db:
        db.execute("CREATE TABLE recipes (name)")
    db.close()
    content = scene.database.read_bytes()
    done = scene("recover")
    assert done.code == 3 and "is not a workspace's state store" in done.err
    assert scene.database.read_bytes() == content and aside(scene) == []


# --- the journal of a transaction ---------------------------------------------------------------------

@pytest.fixture
def killed(scene):
    """The process was killed when the answer to its commitment was half recorded."""
    scene.forget()
    assert scene.send("commit").code == 0
    names = scene.calls()
    assert scene.reveal().code == 0
    scene.forget()
    done = scene.send("commit", fault=f"before@{len(names) - names[::-1].index('unlink')}")
    assert done.code == -9
    scene.journal = scene.database.with_name("state.db-journal")
    assert scene.journal.stat().st_size > 0 and len(scene.pending()) == 1
    return scene


def test_half_a_transaction_is_undone(killed):
    assert killed.send("commit").code == 0
    assert not killed.journal.exists()
    assert killed.reveal().code == 0
    killed.assert_one_revealed()


def test_the_journal_of_a_store_that_is_gone_does_not_spoil_the_next(killed):
    killed.database.unlink()
    assert killed.quasar("init", killed.directory).code == 0
    with sqlite3.connect(killed.database) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM submission").fetchone() == (0,)
    db.close()
    assert list(killed.database.parent.glob("state.db.damaged-*-journal"))
    assert killed("status", "--json").json["unknown_here"] == 2  # and the one before


# --- interrupted -------------------------------------------------------------------------------------

def test_killed_while_recovering(damaged, capsys):
    bad = f"{20:064x}"
    damaged.break_store(lambda data: spoil_page(data, page_of(data, bad)))
    done = damaged("recover", "--json")
    points, expected = list(kill_points(damaged.calls())), salts(damaged)
    chosen = sample(points[::len(points) // 100], 12)
    for point in chosen:
        for path in damaged.database.parent.glob("state.db*"):
            path.unlink()
        damaged.database.write_bytes(damaged.content)
        damaged("recover", fault=point)
        assert damaged.quasar("init", damaged.directory).code in (0, 3)  # what a person may do in between
        done = damaged("recover")
        assert done.code == 0, (point, done.err)
        assert salts(damaged) == expected, point
        assert damaged.content in [path.read_bytes() for path in aside(damaged)]
    report(capsys, f"recover: killed at {len(chosen)} points, nothing lost")


def test_a_store_that_is_gone_is_told_from_no_workspace(quasar, localnet, tmp_path):
    assert quasar("wallet", "new").code == 0
    assert quasar("init", "miner", "--api", localnet.url, "--seq", 64).code == 0
    workspace = tmp_path / "miner"
    (workspace / ".quasar" / "state.db").unlink()
    for command in ("status", "reveal", "run", "commit"):
        done = quasar(command, cwd=workspace)
        assert done.code == 3 and "state store is missing" in done.err and "quasar recover" in done.err
    assert "quasar recover" in quasar("doctor", cwd=workspace).out
    done = quasar("recover", "--json", cwd=workspace)
    assert done.code == 0 and done.json["missing"] is True and done.json["aside"] is None
    assert quasar("status", cwd=workspace).code == 0
    assert quasar("recover", "--json", cwd=workspace).json["missing"] is False
