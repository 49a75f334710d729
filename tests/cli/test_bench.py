"""quasar bench: what it measures, says and stores."""
import csv
import json
import random
import re
import sqlite3
import struct
import subprocess

import picture
import pytest


@pytest.fixture
def workspace(quasar, tmp_path):
    directory = tmp_path / "miner"
    assert quasar("init", directory).code == 0
    return directory


def test_a_length_is_measured(quasar):
    done = quasar("bench", "--native", "--seq", "100", "--runs", 10, "--json")
    assert done.code == 0, done.err
    document = done.json
    assert document["workload"] == "layer" and document["semantics"] == "upstream"
    assert document["stored"] is False and "nothing was stored" in done.err
    [result] = document["results"]
    assert result["seq"] == 100 and result["warmups"] == 3 and result["runs"] == 10
    assert result["tokens_per_sec"] == pytest.approx(100 / result["seconds"])
    assert result["spread"] >= 0 and result["noise"] >= 0 and result["memory_mb"] > 1
    assert len(result["times"]) == 10 and sorted(result["times"])[4] <= result["seconds"] <= sorted(result["times"])[5]
    assert result["weighted_score"] == pytest.approx(result["multiplier"] * result["tokens_per_sec"])


@pytest.mark.parametrize("gpu, factor", [("NVIDIA H100 80GB HBM3", 1.3), ("L4", 0.55), ("abacus", 1)])
def test_the_speed_normalised_by_a_validators_gpu(quasar, gpu, factor):
    measure = ["bench", "--native", "--device", "cpu", "--seq", "64", "--runs", 1]
    [result] = quasar(*measure, "--json", "--validator-gpu", gpu).json["results"]
    assert result["normalization_factor"] == factor
    assert result["normalized_tokens_per_sec"] == pytest.approx(result["tokens_per_sec"] / factor)
    text = quasar(*measure, "--validator-gpu", gpu).out
    assert f"divided by {factor:g} for {gpu}" in text and ("do not know" in text) == (gpu == "abacus")
    assert "normali" not in quasar(*measure).out + quasar("bench", "--op", *measure[2:], "--validator-gpu", gpu).out


@pytest.mark.parametrize("args", [["--op"], ["--native"], ["--op", "--semantics", "causal"]])
def test_a_table_for_several_lengths(quasar, args):
    done = quasar("bench", "--seq", "64,100,1k", "--runs", 2, *args)
    assert done.code == 0
    rows = [line.split() for line in done.out.splitlines()][-3:]
    assert [row[0] for row in rows] == ["64", "100", "1,000"]
    assert ("operation" if "--op" in args else "layer") in done.out


def test_one_time_has_no_spread(quasar):
    def spread(runs):
        row = quasar("bench", "--native", "--seq", 64, "--runs", runs).out.splitlines()[4]
        return row.split()[3]

    assert spread(1) == "-" and re.fullmatch(r"\d+(\.\d)?", spread(5))


def test_any_family_can_be_measured(quasar):
    document = quasar("bench", "--op", "--seq", 100, "--json").json
    assert document["workload"] == "op" and document["op"] == "quasar" and document["semantics"] == "upstream"
    assert document["input"] == "q, k, v normal, deviation 1; beta uniform in 0.7 … 2.8"
    assert document["results"][0]["bytes"] == 4 * 100 * 512 * 2 + 8 * 4
    assert quasar("bench", "--op=quasar", "--seq", 100, "--json").json["workload"] == "op"
    for semantics, full in (([], "bidirectional,elu+1,normalised"),
                            (["--semantics", "unnormalised,causal"], "causal,elu+1,unnormalised")):
        done = quasar("bench", "--op", "linear", "--seq", 100, *semantics, "--json", "--device", "cpu")
        assert done.code == 0, done.err
        assert done.json["workload"] == "op.linear" and done.json["op"] == "linear"
        assert done.json["semantics"] == full and done.json["results"][0]["operations"] > 0
    for op, work in (("flash", 2), ("flash-backward", 5)):
        done = quasar("bench", "--op", op, "--seq", 100, "--runs", 1, "--json", "--device", "cpu")
        assert done.json["semantics"] == "causal"
        assert done.json["results"][0]["operations"] == 2 * work * 64 * (100 * 101 / 2) * 8
    done = quasar("bench", "--op", "quasar-backward", "--seq", 100, "--runs", 1, "--json", "--device", "cpu")
    assert done.json["semantics"] == "upstream" and "k normal, deviation 0.2" in done.json["input"]
    assert done.json["results"][0]["bytes"] == 7 * 100 * 512 * 2 + 8 * 4
    packed = quasar("bench", "--op", "flash", "--seq", 100, "--runs", 1, "--json", "--device", "cpu", "--semantics", "packed")
    assert packed.json["semantics"] == "packed"
    assert 0 < packed.json["results"][0]["operations"] < 2 * 2 * 64 * (100 * 101 / 2) * 8  # they see less of each other
    text = quasar("bench", "--op", "linear", "--seq", 100)
    assert "linear attention, bidirectional,elu+1,normalised" in text.out and "q, k, v normal, deviation 1" in text.out


@pytest.mark.parametrize("args", [["--op", "none"], ["--op=none"], ["--op", "linear", "--semantics", "upstream"],
                                  ["--op", "quasar-backward", "--semantics", "gated"],
                                  ["--op", "--semantics", "relu"], ["--native", "--semantics", "relu"],
                                  ["--native", "--semantics", "gated"],
                                  ["--op", "linear", "--native"]])
def test_what_no_family_has(quasar, args):
    done = quasar("bench", "--seq", 100, *args)
    assert done.code == 2, done.out + done.err


def test_a_sweep_holds_linear_beside_softmax_attention(quasar):
    done = quasar("bench", "--op", "linear", "--sweep", "--seq", "400,50", "--runs", 1, "--device", "cpu", "--json")
    assert done.code == 0, done.err
    lengths = done.json["lengths"]
    assert [row["seq"] for row in lengths] == [50, 400]
    assert done.json["beside"] == "flash" and done.json["beside_semantics"] == "bidirectional"
    for row in lengths:
        assert row["bytes"] == 4 * row["seq"] * 512 * 2
        assert row["ratio"] == pytest.approx(row["beside_seconds"] / row["seconds"])
        assert row["bytes_per_second"] == pytest.approx(row["bytes"] / row["seconds"])
    faster = [row["ratio"] > 1 for row in lengths]
    assert (done.json["crossing"] is None) == (faster[0] == faster[1])
    text = quasar("bench", "--op", "flash-backward", "--sweep", "--seq", 64, "--runs", 1, "--device", "cpu")
    assert text.code == 0 and "linear-backward" in text.out and "Neither overtakes" in text.out
    for args in (["--native"], ["--op", "linear", "--csv"], ["--op", "flash", "--semantics", "packed"]):
        assert quasar("bench", "--sweep", "--seq", 64, *args).code == 2


def test_a_sweep_is_drawn(quasar, tmp_path):
    path = tmp_path / "sweep.svg"
    done = quasar("bench", "--op", "linear", "--sweep", "--seq", "50,400,800", "--runs", 1, "--device", "cpu", "--json",
                  "--svg", path)
    assert done.code == 0, done.err
    said = picture.words(picture.read(path))
    for row in done.json["lengths"]:
        for seconds in (row["seconds"], row["beside_seconds"]):
            assert f"{row['seq']} tokens: {seconds * 1e3:.3f} ms" in said
    crossing = done.json["crossing"]
    assert [word for word in said if word.startswith("equal at")] == ([f"equal at {crossing:.0f}"] if crossing else [])
    assert {"tokens", "ms", "linear attention", "FlashAttention-2"} <= set(said)
    refused = quasar("bench", "--op", "linear", "--seq", 64, "--svg", path)
    assert refused.code == 2 and "--sweep" in refused.err


def test_the_leaderboard_is_of_attention_on_a_gpu(quasar):
    for args in (["--op", "linear"], [], ["--op", "flash", "--semantics", "bidirectional"], ["--op", "flash", "--csv"]):
        done = quasar("bench", "--leaderboard", "--device", "cpu", *args)
        assert done.code == 2 and "--leaderboard" in done.err
    done = quasar("bench", "--op", "flash", "--leaderboard", "--device", "cpu")
    assert done.code == 3 and "GPU" in done.err


def test_without_seq_the_target_is_measured(quasar):
    done = quasar("bench", "--native", "--json", "--runs", 1, env={"TARGET_SEQUENCE_LENGTH": "90"})
    assert [result["seq"] for result in done.json["results"]] == [90]


def test_a_small_budget_cuts_the_runs_and_says_so(quasar):
    done = quasar("bench", "--native", "--seq", 2000, "--budget", "0.001", "--json")
    assert done.code == 0 and "--budget" in done.err
    [result] = done.json["results"]
    assert result["runs"] == 1 and result["noise"] is None and not result["settled"] and "not settled" in done.err


def test_it_goes_on_until_the_median_is_settled(quasar):
    """Or until the budget is used up, and then says so."""
    done = quasar("bench", "--op", "--seq", 64, "--budget", 20, "--json")
    [result] = done.json["results"]
    assert result["runs"] >= 10 and result["runs"] % 10 == 0
    assert result["settled"] == (result["noise"] <= 0.01) == ("not settled" not in done.err)
    if not result["settled"]:
        assert result["runs"] >= 1000 or sum(result["times"]) > 10


def test_no_end_is_promised_that_nobody_knows(terminal):
    """Once what was planned is done, it depends on the noise."""
    person = terminal("bench", "--op", "--seq", "4000", "--budget", "3", env={"TERM": "xterm"})
    assert person.finish() == 0
    assert re.search(r"measuring.* runs", person.out) and not re.search(r"\b(\d+)/\1 runs", person.out)


def test_results_are_stored_and_compared(quasar, workspace):
    def bench(*args):
        done = quasar("bench", "--seq", 128, "--runs", 6, "--compare", *args, "--json", cwd=workspace)
        assert done.code == 0, done.err
        return done.json

    first = bench("--native")
    assert first["stored"] is True and len(first["fork_commit"]) == 40
    [first_result] = first["results"]
    assert first_result["last"] is None and first_result["best"] is None
    with sqlite3.connect(workspace / ".quasar/state.db") as database:
        database.execute("UPDATE benchmark SET noise = 0.02, tokens_per_sec = 1e12")
    [second] = bench("--native")["results"]
    assert second["last"] == second["best"] and second["last"]["fork_commit"] == first["fork_commit"]
    assert second["last"]["change"] == pytest.approx(second["tokens_per_sec"] / 1e12 - 1)
    assert second["last"]["noise"] == pytest.approx(0.02 + second["noise"])
    assert second["last"]["more_than_noise"] == (abs(second["last"]["change"]) > second["last"]["noise"])
    [third] = bench("--native")["results"]
    assert third["best"]["tokens_per_sec"] == 1e12 and third["last"]["tokens_per_sec"] == second["tokens_per_sec"]
    # another length, workload or function is not compared with
    for other in (["--seq", 129, "--native"], ["--op"], ["--op", "linear"], ["--native", "--semantics", "causal"]):
        assert bench(*other)["results"][0]["last"] is None
    text = quasar("bench", "--native", "--seq", 128, "--runs", 6, "--compare", cwd=workspace)
    assert text.code == 0 and first["fork_commit"][:8] in text.out and "the noise of" in text.out
    assert "best, " in text.out and "1,000,000,000,000 tokens/s" in text.out


def test_tables_to_work_with_and_to_paste(quasar):
    done = quasar("bench", "--native", "--seq", "64,100", "--runs", 3, "--csv")
    rows = list(csv.DictReader(done.out.splitlines()))
    assert [(row["seq"], row["run"]) for row in rows] == [(seq, run) for seq in ("64", "100") for run in "123"]
    for row in rows:
        assert float(row["tokens_per_sec"]) == pytest.approx(int(row["seq"]) / float(row["seconds"]))
        assert row["workload"] == "layer" and row["semantics"] == "upstream" and row["device"].startswith("cpu (")
    lines = quasar("bench", "--native", "--seq", "64,1k", "--runs", 3, "--markdown").out.splitlines()
    assert lines[0].startswith("Quasar's own layer") and lines[1] == ""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert table[0][:2] == ["tokens", "tokens/s"] and {len(row) for row in table} == {9}
    assert [row[0] for row in table[2:]] == ["64", "1,000"]


def write_weights(path, hidden=64, heads=2, dim=32, **changed):
    """A layer as safetensors, random numbers in fp32."""
    width = heads * dim
    shapes = {**{f"{name}_proj.weight": [width, hidden] for name in "qkv"},
              **{f"{name}_conv1d.weight": [width, 1, 4] for name in "qkv"},
              "beta_log": [heads], "g_proj.0.weight": [dim, hidden], "g_proj.1.weight": [width, dim],
              "g_proj.1.bias": [width], "o_norm.weight": [dim], "o_proj.weight": [hidden, width], **changed}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        numbers = struct.pack(f"<{count}f", *(random.uniform(-0.1, 0.1) for _ in range(count)))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_weights_come_from_a_file(quasar, tmp_path, workspace):
    weights = write_weights(tmp_path / "layer.safetensors")
    done = quasar("bench", "--native", "--weights", weights, "--seq", 100)
    assert done.code == 0 and str(weights) in done.out
    done = quasar("verify", "--native", "--weights", weights, "--seq", 100, "--json", cwd=workspace)
    assert done.code == 0 and done.json["passed"], done.out
    write_weights(weights, beta_log=[3])
    done = quasar("bench", "--native", "--weights", weights, "--seq", 100)
    assert done.code == 3 and "beta_log" in done.err
    weights.write_bytes(weights.read_bytes()[:1000])
    assert quasar("bench", "--native", "--weights", weights, "--seq", 100).code == 3
    assert quasar("bench", "--native", "--weights", tmp_path / "none", "--seq", 100).code == 3
    assert quasar("bench", "--op", "--weights", weights, "--seq", 100).code == 2


def test_threads_are_a_setting(quasar):
    done = quasar("bench", "--op", "--seq", 64, "--json", env={"QUASAR_THREADS": "1"})
    assert "1 thread," in done.json["device"]
    done = quasar("bench", "--op", "--seq", 64, env={"QUASAR_THREADS": "none"})
    assert done.code == 2 and "QUASAR_THREADS" in done.err


@pytest.mark.parametrize("args, code", [(["--device", "cuda"], 3), (["--op", "--native"], 2), (["--seq", "1,x"], 2),
                                        (["--seq", "4Q"], 2), (["--runs", "0"], 2), (["--compare"], 3),
                                        (["--native", "--seq", "4000M"], 3), (["--csv", "--json"], 2),
                                        (["--csv", "--markdown"], 2), (["--weights", "x"], 2), (["--semantics", "causal"], 2),
                                        (["--native", "--fork", "x"], 2), (["--compare", "--fork", "x"], 2), ([], 3)])
def test_what_cannot_be_measured(quasar, args, code):
    done = quasar("bench", *args)
    assert done.code == code and done.err.startswith("quasar bench: ")


def test_a_fork_that_is_not_there_is_named_before_python_is_asked(quasar):
    done = quasar("bench", "--fork", "/nonexistent")
    assert done.code == 3 and "there is no fork at /nonexistent" in done.err


def test_an_error_is_one_json_document(quasar):
    done = quasar("bench", "--device", "cuda", "--json")
    assert done.code == 3 and json.loads(done.out)["error"]["kind"] == "environment"


def test_the_fork_needs_pytorch(quasar, workspace):
    done = quasar("bench", "--seq", 100, cwd=workspace)
    assert done.code == 3 and "no PyTorch" in done.err and "--native" in done.err
    assert "Install PyTorch: quasar init --venv" in done.err
    done = quasar("bench", "--seq", 100)
    assert done.code == 3 and "--fork DIR" in done.err and "--native" in done.err


def test_what_keeps_a_claim_from_being_made_is_stored(quasar, workspace):
    """Uncommitted files, whichever layer is measured."""
    def bench():
        document = quasar("bench", "--native", "--seq", 64, "--runs", 1, "--json", cwd=workspace).json
        return document["results"][0]["dirty"], document["unpushed_commits"]

    assert bench() == (False, 0)
    (workspace / "fork/new.py").write_text("x = 1\n")
    assert bench() == (True, 0)
    git = ("git", "-C", workspace / "fork", "-c", "user.name=a", "-c", "user.email=a@b.c")
    subprocess.run([*git, "add", "new.py"], check=True)
    subprocess.run([*git, "commit", "-qm", "more"], check=True)
    assert bench() == (False, 1)
    with sqlite3.connect(workspace / ".quasar/state.db") as database:
        assert database.execute("SELECT dirty FROM benchmark ORDER BY id").fetchall() == [(0,), (1,), (0,)]
