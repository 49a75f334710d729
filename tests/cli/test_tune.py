"""quasar tune without a GPU: what it says then, and the results that are stored, exchanged and brought into a fork."""
import contextlib
import hashlib
import json
import re
import runpy
import sqlite3
import subprocess

import pytest

from sample_tuning import add_trials, bring_tunings, result

TUNED = "fla/ops/quasar/tuned.py"


@pytest.fixture
def bring(quasar, tmp_path):
    """Imports results."""
    return lambda *results: bring_tunings(quasar, tmp_path, *results)


@pytest.fixture
def tried(bring, home):
    """A result with what was tried for it, as a search on this machine leaves it behind."""
    bring(result(bytes=410e6, operations=34e9))
    add_trials(home)


# --- without a GPU -------------------------------------------------------------------------------------

def test_without_a_gpu_it_says_what_to_do(quasar):
    if quasar("gpus", "--json").json["present"]:
        pytest.skip("this machine has a GPU")
    done = quasar("tune")
    assert done.code == 3 and "tuning needs a GPU" in done.err and "--gpu a100" in done.err


@pytest.mark.parametrize("args, words", [
    (["--op", "linear", "--kernel", "quasar_chunk"], "It has linear_attention"),
    (["--kernel", "other"], "It has quasar_chunk"),
    (["--strategy", "luck"], "exhaustive"),
    (["--dtype", "int8"], "bf16"),
    (["--devices", "0,x"], "not a whole number"),
    (["--devices", "1,0,1"], "--devices names GPU 1 twice"),
    (["--budget", "0"], "not between"),
    (["other"], 'unexpected argument "other"'),
    (["--op", "qasar"], '--op: "qasar" is not one of quasar|'),
    (["--list", "--forget", "all"], "use only one of"),
    (["--forget", "some"], "not a whole number"),
    (["--list", "--axes", "CHUNK"], "names of two parameters"),
    (["--list", "--axes", "A,B,C"], "names of two parameters"),
])
def test_wrong_usage(quasar, args, words):
    done = quasar("tune", *args)
    assert done.code == 2 and words in done.err


def test_the_worker_answers_what_it_is_asked(quasar):
    """It runs where there is no GPU, too, and says so."""
    wanted = {"do": "open", "op": "quasar", "semantics": "upstream", "device": 99, "tokens": 64, "heads": 1,
              "head_dim": 64, "dtype": 1, "seed": 1}
    lines = [json.dumps(wanted), json.dumps({**wanted, "op": "none"}), '{"do": "time"', '{"do": "dance"}', "[]"]
    done = quasar("tune", "worker", stdin="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0 and [answer["status"] for answer in answers] == [3, 2, 4, 2, 4]
    assert "none cannot be tuned" in answers[1]["error"]


# --- what is stored ------------------------------------------------------------------------------------

def test_results_are_listed_shown_and_forgotten(quasar, bring):
    assert "No tuning results" in quasar("tune", "--list").out
    bring(result(), result(length=10, device="NVIDIA H100 80GB HBM3"))
    listed = quasar("tune", "--list", "--json").json["results"]
    assert {row["device"] for row in listed} == {"NVIDIA H200", "NVIDIA H100 80GB HBM3"}
    row = next(row for row in listed if row["device"] == "NVIDIA H200")
    assert row["parameters"]["GROUPS"] == 33 and row["ms"] == 0.25 and row["imported"]
    assert row["class"] == "upstream, bf16, 8 heads of 64, 65,536 tokens and more"
    assert "+20.0 %" in quasar("tune", "--list").out
    shown = quasar("tune", "--show", row["id"])
    assert shown.code == 0 and "driver 580.159" in shown.out and "NUM_LAUNCHES=3" in shown.out
    assert quasar("tune", "--show", row["id"], "--json").json == row
    assert quasar("tune", "--forget", row["id"]).code == 0
    gone = quasar("tune", "--show", row["id"])
    assert gone.code == 3 and "no tuning result" in gone.err
    assert quasar("tune", "--forget", "all").code == 0
    assert quasar("tune", "--list", "--json").json["results"] == []


def test_what_was_tried_is_shown(quasar, tried):
    shown = quasar("tune", "--show", 1).out
    assert "NUM_STAGES \\ MIN_BLOCKS" in shown and re.search(r"^ +1 .*100\* #", shown, re.M)
    assert "The fastest, by NUM_STAGES · MIN_BLOCKS:" in shown and re.search(r"^ *1 · 2  #{30,} +0.2500 ms", shown, re.M)
    assert re.search(r"^ *untuned  #{40,} +0.3000 ms$", shown, re.M) and "NUM_STAGES=9" not in shown
    other = quasar("tune", "--show", 1, "--axes", "MIN_BLOCKS,NUM_STAGES").out
    assert "MIN_BLOCKS \\ NUM_STAGES" in other


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_was_tried_fits_the_terminal(terminal, tried, width):
    shown = terminal("tune", "--show", "1", size=(50, width), env={"TERM": "xterm"})
    shown.finish()
    assert shown.screen.widest <= width, shown.screen.normal
    assert "untuned  █" in shown.screen.normal and "100*" in shown.screen.normal and "CHUNK=64" in shown.screen.normal
    assert "\x1b[48;5;" in shown.out  # blocks in colours
    shown = terminal("tune", "--list", size=(50, width), env={"TERM": "xterm"})
    shown.finish()
    assert shown.screen.widest <= width and "CHUNK=64" in shown.screen.normal


def test_a_page_of_what_is_stored(quasar, bring, tried, tmp_path):
    bring(result(device="NVIDIA H100 80GB HBM3", bytes=287e6, operations=24e9), result(kernel="fla/layers/quasar.py:<b>", function="layer"))
    page = tmp_path / "tuning.html"
    done = quasar("tune", "--list", "--report", page, "--axes", "MIN_BLOCKS,NUM_STAGES")
    assert done.code == 0 and "NVIDIA H200" in done.out, done.err
    text = page.read_text()
    for words in ("the best time in ms by MIN_BLOCKS and NUM_STAGES", "the fastest configurations, by NUM_STAGES · MIN_BLOCKS",
                  "Roofline of NVIDIA H200", "Roofline of NVIDIA H100 80GB HBM3", "What each tuning gained",
                  "Tuning of NVIDIA H200", ">0.300 ms</text>", "on NVIDIA H200, upstream, bf16, 8 heads of 64, 65,536 tokens and more: "):
        assert words in text, words
    assert "<b>" not in text and len(text) < 500_000
    assert quasar("tune", "--show", 1, "--report", page, "--json").json["id"] == 1 and "Roofline" in page.read_text()
    failed = quasar("tune", "--list", "--report", tmp_path / "none" / "page.html")
    assert failed.code == 3 and "page.html" in failed.err


def test_results_travel(quasar, bring, tmp_path, environment):
    bring(result(), result(length=10))
    assert quasar("tune", "--export", tmp_path / "mine.json").code == 0

    def listed(env=None):
        return [{**row, "id": 0} for row in quasar("tune", "--list", "--json", env=env).json["results"]]

    done = quasar("tune", "--import", tmp_path / "mine.json")
    assert done.code == 0 and "0 results added, 2 already there" in done.err
    elsewhere = {"HOME": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere").mkdir()
    done = quasar("tune", "--import", tmp_path / "mine.json", env=elsewhere)
    assert "2 results added" in done.err
    assert len(listed()) == 2
    key = lambda row: row["class"]
    assert sorted(listed(elsewhere), key=key) == sorted(listed(), key=key)


def test_a_bad_item_does_not_hide_the_good_ones(quasar, bring):
    done = bring(result(ms="fast"), result(), result(device="\x1b[31mred"))
    assert "1 result added" in done.err and "2 items are left out" in done.err and "\x1b" not in done.err
    assert len(quasar("tune", "--list", "--json").json["results"]) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "\0", '{"format": "another", "version": 1, "results": []}'])
def test_a_foreign_file_is_refused(quasar, tmp_path, text):
    (tmp_path / "file").write_text(text)
    done = quasar("tune", "--import", tmp_path / "file")
    assert done.code == 2 and "not a file that `quasar tune --export` wrote" in done.err
    assert quasar("tune", "--import", tmp_path / "missing").code == 3


def test_results_that_have_no_place_name_another(quasar, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    done = quasar("tune", "--list", env={"XDG_CACHE_HOME": str(tmp_path / "locked/cache")}, bound=True)
    assert done.code == 3 and "Permission denied" in done.err and "XDG_CACHE_HOME" in done.err


def test_a_damaged_store_is_set_aside(quasar, bring, home):
    bring(result())
    store = home / ".cache/quasar/tuning.db"
    store.write_bytes(b"not a database" * 1000)
    done = quasar("tune", "--list")
    assert done.code == 0 and "was not a store of tuning results" in done.err and "No tuning results" in done.out
    assert [path.read_bytes()[:14] for path in store.parent.glob("tuning.db.aside-*")] == [b"not a database"]
    bring(result())
    assert len(quasar("tune", "--list", "--json").json["results"]) == 1


def test_a_store_of_an_older_version_goes_on(quasar, bring, home):
    bring(result(bytes=410e6, operations=34e9))
    with contextlib.closing(sqlite3.connect(home / ".cache/quasar/tuning.db")) as database:
        for column in ("bytes", "operations"):
            database.execute(f"ALTER TABLE tuning DROP COLUMN {column}")
        database.execute("PRAGMA user_version = 1")
    bring(result(length=10))
    assert len(quasar("tune", "--list", "--json").json["results"]) == 2


def test_a_store_of_a_newer_version_stays(quasar, bring, home):
    bring(result())
    store = home / ".cache/quasar/tuning.db"
    with contextlib.closing(sqlite3.connect(store)) as database:
        database.execute("PRAGMA user_version = 99")
    done = quasar("tune", "--list")
    assert done.code == 3 and "newer version" in done.err
    assert not list(store.parent.glob("*aside*"))


# --- in a fork -----------------------------------------------------------------------------------------

def git(fork, *args):
    return subprocess.run(["git", "-c", "user.name=me", "-c", "user.email=me@localhost", *args], cwd=fork, check=True,
                          capture_output=True, text=True).stdout


def shipped(quasar):
    """What the fork's file has without results of one's own."""
    found = {}
    for row in quasar("tune", "--list", "--json").json["shipped"]:
        function, dtype, heads, tokens = re.fullmatch(r"(\S+), (\w+), (.*), (.*) tokens and more", row["class"]).groups()
        count, dim = re.fullmatch(r"(\d+) heads? of (\d+)", heads).groups()
        if row["kernel"] == "quasar_chunk":
            found[row["device"], function, {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}[dtype], int(dim),
                  int(count), int(tokens.replace(",", "")).bit_length() - 1] = tuple(row["parameters"].values())
    return found


def test_a_new_fork_has_what_is_shipped(quasar, workspace):
    rows = quasar("tune", "--list", "--json").json["shipped"]
    assert all(row["ms"] <= row["untuned_ms"] for row in rows)
    assert ("Shipped with quasar" in quasar("tune", "--list").out) == bool(rows)
    assert runpy.run_path(workspace / "fork" / TUNED)["CONFIGURATIONS"] == shipped(quasar)


def test_export_and_apply_bring_results_into_the_fork(quasar, bring, workspace):
    fork = workspace / "fork"
    path = fork / TUNED
    bring(result(), result(length=10, function="causal", dtype="fp16", device='a "GPU" \\'),
          result(length=11, source="0" * 64), result(length=12, kernel="other"), result(length=13, parameters="CHUNK=64"),
          result(driver="600.1", when="2026-11-23T08:00:00", parameters=result()["parameters"].replace("33", "40")))
    done = quasar("tune", "--apply", "--json", cwd=workspace)
    assert done.code == 0 and done.json["written"], done.err
    found = runpy.run_path(path)
    assert done.json["configurations"] == len(found["CONFIGURATIONS"])
    assert found["CONFIGURATIONS"] == shipped(quasar) | {
        ("NVIDIA H200", "upstream", "bfloat16", 64, 8, 16): (64, 1, 2, 4, 3, 40),
        ('a "GPU" \\', "causal", "float16", 64, 8, 10): (64, 1, 2, 4, 3, 33)}
    # as cuda_backend.py makes it
    folder = path.parent
    kernels = [folder / "entry.cu", *sorted((folder / "kernels").glob("*/*"))]
    assert found["KERNELS"] == hashlib.sha256(b"".join(file.read_bytes() for file in kernels)).hexdigest()
    assert git(fork, "diff", "--name-only").split() == [TUNED]
    assert quasar("tune", "--apply", "--json", cwd=workspace).json["written"] is False
    git(fork, "commit", "-qam", "tuned")
    assert quasar("tune", "--forget", "all").code == 0
    done = quasar("export", cwd=workspace)
    if shipped(quasar):
        assert done.code == 0 and runpy.run_path(path)["CONFIGURATIONS"] == shipped(quasar)
    else:
        assert "kept     " + TUNED in done.out  # nothing is known better than what is there
    bring(result(device="GPU of tests"))
    done = quasar("export", cwd=workspace)
    assert done.code == 0 and "1 file written" in done.out
    assert len(runpy.run_path(path)["CONFIGURATIONS"]) == len(shipped(quasar)) + 1
    done = quasar("verify", "--static", cwd=workspace)
    assert done.code == 0 and " 0 failed" in done.out
