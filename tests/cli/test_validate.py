"""quasar validate: judging submissions at a local validator, in rehearsals: what needs no PyTorch. tests/forks/ has the
rest."""
import contextlib
import hashlib
import os
import pathlib
import signal
import sqlite3
import struct
import subprocess
import zlib

import pytest

from conftest import QUASAR
from lossy import Say
from patience import LONG
from sample_fork import NAMES, Fork
from scripted_server import reply


@pytest.fixture
def fork(tmp_path):
    return Fork(tmp_path / "fork")


@pytest.fixture
def submit(localnet, alice, fork):
    def submit(**fields):
        body = {"miner_hotkey": alice.address, "fork_url": fork.url, "commit_hash": fork.commit_hash,
                "target_sequence_length": 100, "tokens_per_sec": 1.0, "signature": "s",
                "benchmarks": {"64": {"tokens_per_sec": 1.0}}, **fields}
        return localnet.post("/submit_kernel", body, alice.headers).json["submission_id"]

    return submit


@pytest.fixture
def clones(tmp_path):
    """Where clones are made; must be empty afterwards."""
    place = tmp_path / "clones"
    place.mkdir()
    yield place
    assert list(place.iterdir()) == []


@pytest.fixture
def validate(quasar, localnet, clones):
    def validate(*args, **more):
        return quasar("validate", "--api", localnet.url, "--once", "--native", "--device", "cpu", *args,
                      env={"TMPDIR": str(clones)}, **more)

    return validate


def unvalidated(localnet):
    return [entry["id"] for entry in localnet.get("/get_submission_stats").json["recent_submissions"]]


def test_a_good_fork_gets_its_score(localnet, submit, validate):
    modest, bold = submit(), submit(tokens_per_sec=1e12)
    done = validate("--json")
    assert done.code == 0, done.err
    assert "native" in done.json["benchmark"] and "cpu" in done.json["devices"][0] and not done.json["sandbox"]
    first, second = done.json["judged"]
    assert (first["submission_id"], second["submission_id"]) == (modest, bold)
    assert first["valid"] and first["reason"] is None and first["score"] > 1
    assert [entry["seq"] for entry in first["benchmarks"]] == [64, 100]
    measured = first["benchmarks"][1]["tokens_per_sec"]
    assert first["score"] == pytest.approx(1 + (measured - 1) / 1)
    assert [entry["normalized_score"] for entry in (first, second)] == [1, 0]
    assert {check["name"]: check["status"] for check in first["checks"]}.items() >= {
        "clone": "ok", "files": "ok", "imports.deployed": "ok", "imports.forbidden": "ok", "benchmark": "ok",
        "claim": "ok"}.items()
    assert second["valid"] and second["score"] == 0 and "90 %" in second["reason"]
    assert unvalidated(localnet) == []
    assert localnet.get("/verification_stats").json["verified_failed"] == 0
    assert validate("--json").json["judged"] == []


def test_the_validator_is_told_half_the_score(localnet, submit, validate):
    """As the reference validator tells it: 1 at most."""
    measured = next(entry["tokens_per_sec"] for entry in validate_once(submit, validate, 1.0)["benchmarks"]
                    if entry["seq"] == 100)
    fair = validate_once(submit, validate, measured)
    localnet.stop()
    with contextlib.closing(sqlite3.connect(localnet.db)) as database:
        scores = [row[0] for row in database.execute("SELECT score FROM submission ORDER BY id")]
    assert scores == [1, pytest.approx(min(fair["score"] / 2, 1))]
    assert scores[1] == pytest.approx(fair["normalized_score"])


def validate_once(submit, validate, claim):
    submit(tokens_per_sec=claim)
    judged, = validate("--json").json["judged"]
    return judged


def test_without_numbers_the_usual_lengths_are_measured(submit, validate):
    submit(benchmarks=None, target_sequence_length=700)
    assert [entry["seq"] for entry in validate("--json").json["judged"][0]["benchmarks"]] == [512, 700, 1024, 2048]


def test_what_cannot_be_measured_here_is_said(submit, validate):
    submit(target_sequence_length=2**50)
    submit(target_sequence_length=2**31, benchmarks={str(2**40 + i): {"tokens_per_sec": 1} for i in range(100)})
    for judged, lengths in zip(validate("--json").json["judged"], ([64], [2048])):
        assert [entry["seq"] for entry in judged["benchmarks"]] == lengths
        checks = {check["name"]: check for check in judged["checks"]}
        assert checks["benchmark"]["status"] == "warn" and "skipped" in checks["benchmark"]["detail"]
        assert judged["score"] > 0 and f" at {lengths[0]:,}" in checks["claim"]["detail"]


def missing_file(fork):
    (fork.operators / "gate.py").unlink()


def missing_import(fork):
    (fork.operators / "chunk.py").write_text("".join(f"from fla.utils import {name}\n" for name in NAMES[1:]))


def forbidden_import(fork):
    (fork.operators / "gate.py").write_text("# from fla.ops.gla\n")


def link_out_of_the_fork(fork):
    """To a file that would pass."""
    outside = fork.path.parent / "outside.py"
    outside.write_text((fork.operators / "chunk.py").read_text())
    (fork.operators / "chunk.py").unlink()
    (fork.operators / "chunk.py").symlink_to(outside)


def directory_link_out_of_the_fork(fork):
    fork.operators.rename(fork.path.parent / "outside")
    fork.operators.symlink_to(fork.path.parent / "outside")


@pytest.mark.parametrize("spoil", [missing_file, missing_import, forbidden_import, link_out_of_the_fork,
                                   directory_link_out_of_the_fork])
def test_a_fork_that_fails_the_import_check(localnet, alice, fork, submit, validate, spoil):
    spoil(fork)
    submission = submit(commit_hash=fork.commit(), tokens_per_sec=1e15)
    judged, = validate("--json").json["judged"]
    assert not judged["valid"] and judged["score"] == 0 and judged["benchmarks"] == [] and judged["reason"]
    assert unvalidated(localnet) == []
    submit()  # a modest one, which wins although the other claimed more
    final = validate("--finalize", "--json").json["round"]
    assert submission not in [entry["submission_id"] for entry in final["rankings"]]
    assert final["winner"] == alice.address


@pytest.mark.parametrize("fields", [
    {"fork_url": "file:///nonexistent/fork"}, {"fork_url": "http://127.0.0.1:1/fork"}, {"fork_url": ""},
    {"fork_url": "fork"}, {"fork_url": "ssh://git@127.0.0.1/fork"}, {"fork_url": "git@127.0.0.1:fork"},
    {"fork_url": "--upload-pack=touch /tmp/x"}, {"fork_url": "ext::sh -c true"}, {"fork_url": "/etc"},
    {"commit_hash": "c0ffee" * 6 + "c0ff"}, {"commit_hash": "main"}, {"commit_hash": ""},
    {"commit_hash": "--help"}, {"target_sequence_length": 0}, {"target_sequence_length": -5},
    {"tokens_per_sec": 0}, {"tokens_per_sec": -1}])
def test_what_cannot_be_cloned_or_makes_no_sense_gets_nothing(localnet, submit, validate, fields):
    submit(**fields)
    done = validate("--json")
    judged, = done.json["judged"]
    assert done.code == 0 and not judged["valid"] and judged["score"] == 0 and judged["reason"]
    assert unvalidated(localnet) == []
    assert localnet.get("/verification_stats").json["verified_failed"] == 1


def test_nothing_of_a_fork_is_run(fork, submit, validate, tmp_path):
    """Neither hooks nor submodules nor filters."""
    witness = tmp_path / "witness"
    for hook in ("post-checkout", "post-merge", "reference-transaction"):
        (fork.path / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch {witness}\n")
        (fork.path / ".git" / "hooks" / hook).chmod(0o755)
    (fork.path / ".gitattributes").write_text("* filter=evil\n")
    fork.git("config", "filter.evil.smudge", f"touch {witness}; cat")
    (fork.path / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = file:///etc\n')
    (fork.path / "conftest.py").write_text(f"open({str(witness)!r}, 'w')\n")
    submit(commit_hash=fork.commit())
    witness.unlink(missing_ok=True)
    assert validate("--json").json["judged"][0]["valid"]
    assert not witness.exists()


def test_the_commit_is_judged_and_not_the_branch(fork, submit, validate):
    good = fork.commit_hash
    forbidden_import(fork)
    bad = fork.commit()
    submit(commit_hash=good)
    submit(commit_hash=bad)
    assert [judged["valid"] for judged in validate("--json").json["judged"]] == [True, False]


def test_unrevealed_commitments_wait(localnet, alice, fork, validate):
    localnet.post("/commit_submission", {"miner_hotkey": alice.address, "signature": "s",
                                         "commitment_hash": hashlib.sha256(b"x").hexdigest(),
                                         "target_sequence_length": 100}, alice.headers)
    done = validate("--json")
    assert done.json["judged"] == [] and done.json["unrevealed"] == 1
    assert len(unvalidated(localnet)) == 1


def test_what_cannot_judge_refuses(quasar, submit, localnet, clones):
    """Before it fetches anything."""
    submit()
    without = quasar("validate", "--api", localnet.url, "--once", "--python", "/usr/bin/python3", "--device", "cpu")
    assert without.code == 3 and "has no PyTorch" in without.err and "install torch" in without.err
    afar = quasar("validate", "--api", localnet.url.replace("127.0.0.1", "0.0.0.0"), "--once", "--native")
    assert afar.code == 2 and "judges no fork" in afar.err
    assert len(unvalidated(localnet)) == 1


def test_for_people(localnet, alice, submit, validate):
    submit()
    submit(fork_url="file:///nonexistent/\x1b[31mfork")
    done = validate("--finalize")
    assert done.code == 0
    assert alice.address in done.out
    assert "none of which is run" in done.out
    assert all("rehearsal: quasar's own layer stands in for the fork" in line for line in done.out.splitlines()
               if "tokens/s" in line)
    assert "score" in done.out and "1 judged" not in done.out and "2 judged" in done.out
    assert "\x1b" not in done.out + done.err
    assert "weighted score" in done.out


def test_words_that_are_cut_are_still_words(localnet, submit, validate):
    """A reason is cut at any byte: what is left of it can be told."""
    odd, even = (submit(fork_url="x" * more + "\u00e9" * 1500) for more in (0, 1))
    good = submit()
    done = validate("--json")
    assert done.code == 0, done.err
    assert [judged["submission_id"] for judged in done.json["judged"]] == [odd, even, good]
    assert unvalidated(localnet) == []


def test_names_of_files_that_are_no_words(fork, submit, validate):
    (pathlib.Path(os.fsdecode(b"%b/\xff\x1b[31m.cu" % bytes(fork.path)))).touch()
    submit(commit_hash=fork.commit())
    submit()
    first, second = validate("--json").json["judged"]
    assert first["valid"] and second["valid"]
    assert {"name": "cuda_source", "status": "ok", "detail": "?.cu"} in first["checks"]


NOT_TAKEN = [Say(400, {"detail": "There was an error parsing the body"}), Say(404, {"detail": "Submission not found"}),
             Say(422, {"detail": []}), Say(500, b"Internal Server Error", "text/plain")]


@pytest.mark.parametrize("refusal", NOT_TAKEN, ids=lambda refusal: str(refusal.status))
def test_a_verdict_that_is_not_taken_holds_back_no_other(localnet, proxy, submit, validate, refusal):
    first, second = submit(), submit()
    proxy.faults[("POST", "/mark_validated")] = [refusal]
    done = validate("--json", "--timeout", "0.5", "--api", proxy.url)
    assert done.code == 3, done.err
    assert [entry["submission_id"] for entry in done.json["pending"]] == [first]
    assert [judged["submission_id"] for judged in done.json["judged"]] == [second]
    assert unvalidated(localnet) == [first]
    assert validate("--json").code == 0 and unvalidated(localnet) == []


def test_the_loop_judges_what_comes_and_ends_when_asked(localnet, environment, submit, clones):
    process = subprocess.Popen([QUASAR, "validate", "--api", localnet.url, "--native", "--interval", "1", "--budget", "2"],
                               env={**environment, "TMPDIR": str(clones)}, stdout=subprocess.PIPE, text=True)
    first = submit()
    assert any(f"Submission {first} " in line for line in process.stdout)
    second = submit()
    assert any(f"Submission {second} " in line for line in process.stdout)
    assert any(line.lstrip().startswith("ok") and "claim" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    process.stdout.read()
    assert process.wait(timeout=LONG) == 0


def test_the_loop_outlives_its_validator(localnet, environment, submit, clones):
    process = subprocess.Popen([QUASAR, "validate", "--api", localnet.url, "--native", "--interval", "1", "--budget", "2",
                                "--timeout", "1"], env={**environment, "TMPDIR": str(clones)},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    localnet.stop()
    assert any("warning" in line for line in process.stderr)
    localnet.start("--port", str(localnet.port))
    submission = submit()
    assert any(f"Submission {submission} " in line for line in process.stdout)
    process.terminate()
    process.communicate()
    assert process.returncode == 0


def test_usage_and_a_validator_that_is_not_there(quasar, clones):
    assert quasar("validate", "--json").code == 2
    assert quasar("validate", "--once", "--interval", "0").code == 2
    done = quasar("validate", "--once", "--native", "--api", "http://127.0.0.1:1", "--timeout", "1")
    assert done.code == 4 and "127.0.0.1" in done.err


# --- strangers' packs ----------------------------------------------------------------------------------

def number(value):
    """Seven bits a byte, the lowest first, as in a delta."""
    return bytes([value & 127 | 128]) + number(value >> 7) if value > 127 else bytes([value])


def packed(kind, data, base=b""):
    """An object of a pack: its kind and size, the base of a delta, and the data."""
    first = kind << 4 | len(data) & 15
    head = bytes([first | 128]) + number(len(data) >> 4) if len(data) > 15 else bytes([first])
    return head + base + zlib.compress(data)


def git_id(kind, data):
    return hashlib.sha1(b"%s %d\0%s" % (kind, len(data), data))


def bomb():
    """A commit, and a pack of 17 KB with it, in which a delta of 300 bytes unfolds to a gibibyte."""
    tree = b""
    commit = b"tree %s\nauthor a <a@b> 0 +0000\ncommitter a <a@b> 0 +0000\n\nx\n" % git_id(b"tree", tree).hexdigest().encode()
    blob = bytes(0xffffff)
    delta = number(len(blob)) + number(64 * len(blob)) + 64 * b"\xf0\xff\xff\xff"
    objects = [packed(1, commit), packed(2, tree), packed(3, blob), packed(7, delta, git_id(b"blob", blob).digest())]
    pack = b"PACK" + struct.pack(">II", 2, len(objects)) + b"".join(objects)
    return git_id(b"commit", commit).hexdigest(), pack + hashlib.sha1(pack).digest()


def line(text):
    return b"%04x%s" % (len(text) + 4, text)


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="its allocator takes a refusal for a fault")
def test_a_small_pack_does_not_take_all_memory(submit, validate, serve):
    commit, pack = bomb()
    head = line(b"# service=git-upload-pack\n") + b"0000" + line(commit.encode() + b" HEAD\0agent=x\n") + line(
        commit.encode() + b" refs/heads/main\n") + b"0000"
    server = serve(reply(200, head, content_type="application/x-git-upload-pack-advertisement"),
                   reply(200, line(b"NAK\n") + pack, content_type="application/x-git-upload-pack-result"))
    submit(fork_url=f"{server.url}/x", commit_hash=commit)
    judged, = validate("--json").json["judged"]
    assert judged["reason"].endswith("takes more than 512 MiB of memory to read") and judged["score"] == 0
