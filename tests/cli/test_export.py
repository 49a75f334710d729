"""quasar export: our files in a fork, and nobody else's touched."""
import os
import shutil
import subprocess

import pytest

from conftest import ROOT

LAYER = "fla/layers/quasar.py"
OPERATION = "fla/ops/quasar"
THEIRS = {
    "README.md": "theirs\n",
    "setup.py": "theirs = 1\n",
    "fla/__init__.py": "theirs = 1\n",
    "fla/utils.py": "from machine import (IS_AMD, autocast_custom_bwd, autocast_custom_fwd, autotune_cache_kwargs,\n"
                    "                     check_shared_mem, input_guard)\n",
    "fla/ops/__init__.py": "theirs = 1\n",
    "fla/ops/utils/index.py": "def prepare_chunk_indices(cu_seqlens, chunk_size):\n    pass\n",
    "fla/ops/gated/chunk.py": "theirs = 1\n",
    f"{OPERATION}/chunk.py": "theirs = 1\ntheirs = 2\n",
    f"{OPERATION}/old.py": "theirs = 1\n",
    LAYER: "theirs = 1\n",
}


def git(*args, cwd):
    identity = ["-c", "user.name=you", "-c", "user.email=you@localhost"]
    done = subprocess.run(["git", *identity, *map(str, args)], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def write(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def clone(tmp_path):
    """A clone of somebody's fork, in a folder whose name a shell has to be told of."""
    path = tmp_path / "their fork's"
    write(path, THEIRS)
    git("init", "-q", cwd=path)
    git("add", "-A", cwd=path)
    git("commit", "-qm", "theirs", cwd=path)
    return path


@pytest.fixture(scope="module")
def assembled():
    """The fork as `make build/fork` assembles it."""
    subprocess.run(["make", "-s", "build/fork"], cwd=ROOT, check=True)
    return contents(ROOT / "build" / "fork")


def contents(root):
    """But for the configurations that tuning found: those are of test_tune.py."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*")
            if path.is_file() and not {".git", "__pycache__", "tuned.py"} & set(path.relative_to(root).parts)}


def changes(done):
    return {file["path"]: file["change"] for file in done.json["files"]}


# --- what it writes ------------------------------------------------------------------------------------

def test_the_fork_of_init_is_the_assembled_one(workspace, assembled):
    assert contents(workspace / "fork") == assembled


def test_what_is_missing_or_changed_in_the_workspace_is_written_again(quasar, workspace, assembled):
    fork = workspace / "fork"
    shutil.rmtree(fork / "fla" / "ops")
    (fork / LAYER).write_text("mine\n")
    git("commit", "-qam", "mine", cwd=fork)
    done = quasar("export", cwd=workspace)
    assert done.code == 0, done.err
    assert contents(fork) == assembled
    assert "\nNext: quasar verify" in done.out


def test_again_it_writes_nothing(quasar, workspace):
    files = sorted((workspace / "fork").rglob("*"))
    before = [path.lstat().st_mtime_ns for path in files]
    done = quasar("export", "--json", cwd=workspace)
    assert done.code == 0 and done.json["written"] is False and set(changes(done).values()) == {"same"}
    assert "up to date" in quasar("export", cwd=workspace).out
    assert files == sorted((workspace / "fork").rglob("*"))
    assert before == [path.lstat().st_mtime_ns for path in files]


def test_a_clone_keeps_what_is_its_own(quasar, clone, assembled):
    (clone / "fla/ops/gated/chunk.py").write_text("not committed, but none of ours\n")
    done = quasar("export", clone, "--json")
    assert done.code == 0, done.err
    found, after = changes(done), contents(clone)
    assert {path for path in found if found[path] == "kept"} == {
        "fla/__init__.py", "fla/utils.py", "fla/ops/__init__.py", "fla/ops/utils/index.py"}
    assert {path for path in found if found[path] == "changed"} == {f"{OPERATION}/chunk.py", LAYER}
    assert after.keys() == THEIRS.keys() | found.keys() - {f"{OPERATION}/tuned.py"}
    for path, text in THEIRS.items():
        if path != "fla/ops/gated/chunk.py" and found.get(path, "kept") == "kept":
            assert after[path] == text.encode()
    for path, change in found.items():
        assert change == "kept" or path.endswith("tuned.py") or after[path] == assembled[path]
    assert {path for path in assembled if path not in found} == {"README.md", ".gitignore"}


def test_lines_are_counted_as_git_counts_them(quasar, clone):
    done = quasar("export", clone, "--json")
    git("add", "-A", cwd=clone)
    counted = {path: (int(added), int(removed)) for added, removed, path in (
        line.split("\t") for line in git("diff", "--cached", "--numstat", cwd=clone).splitlines())}
    assert {file["path"]: (file["lines_added"], file["lines_removed"]) for file in done.json["files"]
            if file["change"] in ("added", "changed")} == counted


def test_git_undoes_it(quasar, clone):
    before = contents(clone)
    (clone / "notes.txt").write_text("not committed\n")
    (clone / OPERATION / "notes.py").write_text("not committed\n")
    done = quasar("export", clone)
    command = done.out.partition("To undo this")[2].splitlines()[1]
    subprocess.run(["sh", "-ec", command], check=True, cwd="/")
    assert contents(clone) == {**before, "notes.txt": b"not committed\n", f"{OPERATION}/notes.py": b"not committed\n"}
    assert not (clone / OPERATION / "kernels").exists()


def test_the_layer_can_stay(quasar, clone):
    done = quasar("export", "--op-only", clone, "--json")
    assert done.code == 0 and LAYER not in changes(done)
    assert (clone / LAYER).read_text() == THEIRS[LAYER] and (clone / OPERATION / "gate.py").is_file()


def test_a_dry_run_only_shows(quasar, clone):
    before = contents(clone)
    (clone / LAYER).write_text("not committed\n")
    done = quasar("export", "--dry-run", clone)
    assert done.code == 0 and "Nothing was written" in done.out
    lines = {line.split()[1]: line.split() for line in done.out.splitlines() if len(line.split()) > 3}
    assert lines[f"{OPERATION}/chunk.py"][0] == "changed" and lines[f"{OPERATION}/chunk.py"][3] == "-2"
    assert lines[LAYER][-2:] == ["uncommitted", "changes"]
    assert quasar("export", "--dry-run", clone, "--json").json["written"] is False
    assert contents(clone) == {**before, LAYER: b"not committed\n"}


@pytest.mark.parametrize("rule", [[], ["--strict"]])
@pytest.mark.parametrize("options", [[], ["--op-only"]])
def test_validators_take_it(quasar, clone, rule, options):
    assert quasar("export", clone, *options).code == 0
    git("add", "-A", cwd=clone)
    git("commit", "-qm", "ours", cwd=clone)
    done = quasar("verify", "--static", "--fork", clone, "--json", *rule)
    checks = {check["name"]: check for check in done.json["checks"]}
    assert done.code == 0
    for name in ("files", "imports.deployed", "imports.strict", "imports.forbidden", "imports.ast",
                 "cuda_source"):
        assert checks[name]["status"] == "ok", checks[name]
    assert checks["cuda_source"]["detail"].startswith(OPERATION) and checks["cuda_source"]["detail"].endswith(".cu")


def test_a_part_of_a_larger_repository_will_do(quasar, tmp_path):
    write(tmp_path / "all", {f"attention/{path}": text for path, text in THEIRS.items()})
    git("init", "-q", cwd=tmp_path / "all")
    git("add", "-A", cwd=tmp_path / "all")
    git("commit", "-qm", "theirs", cwd=tmp_path / "all")
    fork = tmp_path / "all" / "attention"
    (fork / LAYER).write_text("not committed\n")
    assert quasar("export", fork).code == 1
    assert quasar("export", "--op-only", fork).code == 0
    assert quasar("export", "--force", fork).code == 0


# --- what stops it -------------------------------------------------------------------------------------

@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("path", [LAYER, f"{OPERATION}/gate.py"])  # changed; and new, which git has never seen
def test_what_is_not_committed_is_not_overwritten(quasar, clone, path, staged):
    (clone / path).write_text("work of a night\n")
    if staged:
        git("add", "-A", cwd=clone)
    before = contents(clone)
    done = quasar("export", clone)
    assert done.code == 1 and path in done.err and "--force" in done.err
    assert contents(clone) == before
    done = quasar("export", "--force", clone, "--json")
    assert done.code == 0 and done.json["written"] and "undo" not in done.json
    assert [file["path"] for file in done.json["files"] if file["uncommitted"]] == [path]
    assert "work of a night" not in (clone / path).read_text()


def test_where_there_is_no_git_there_is_no_way_back(quasar, tmp_path):
    write(tmp_path / "copy", THEIRS)
    done = quasar("export", tmp_path / "copy")
    assert done.code == 1 and "git" in done.err and "--force" in done.err
    assert contents(tmp_path / "copy") == {path: text.encode() for path, text in THEIRS.items()}
    done = quasar("export", "--force", tmp_path / "copy")
    assert done.code == 0 and "To undo" not in done.out


@pytest.mark.parametrize("place", [".", "nowhere", "file"])
def test_what_is_no_fork(quasar, tmp_path, place):
    (tmp_path / "file").write_text("")
    done = quasar("export", tmp_path / place, "--force")
    assert done.code == 3 and place.strip(".") in done.err and "flash-linear-attention" in done.err


def test_outside_of_a_workspace_a_fork_has_to_be_named(quasar):
    assert quasar("export").code == 3


@pytest.mark.parametrize("part", [LAYER, OPERATION, f"{OPERATION}/kernels/common", "fla/ops/utils/index.py"])
def test_no_link_is_followed(quasar, clone, tmp_path, part):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("precious\n")
    target = outside / "file" if part.endswith(".py") else outside
    place = clone / part
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    done = quasar("export", "--force", clone)
    assert done.code == 3 and part in done.err and "link" in done.err
    assert contents(outside) == {"file": b"precious\n"}


def test_a_failure_half_way_says_how_far_it_came(quasar, clone):
    (clone / OPERATION).chmod(0o500)  # what comes before is written
    done = quasar("export", clone, bound=True)
    (clone / OPERATION).chmod(0o700)
    assert done.code == 3 and "Permission denied" in done.err
    assert f" files had been written, the last one {LAYER}" in done.err
    command = done.err.partition("To undo what was written: ")[2].splitlines()[0]
    subprocess.run(["sh", "-ec", command], check=True)
    assert contents(clone) == {path: text.encode() for path, text in THEIRS.items()}


@pytest.mark.parametrize("text, lacks", [("IS_AMD = is_amd = False\n", 5), ("", 6), ("IS_AMDX = input_guard_ = 0\n", 6)])
def test_names_that_the_clone_lacks_are_said(quasar, clone, text, lacks):
    write(clone, {"fla/utils.py": text, "fla/ops/utils/index.py": "def prepare_lens(x):\n    pass\n"})
    done = quasar("export", clone, "--json")
    assert done.code == 0 and len(done.json["unmet_imports"]) == lacks + 1
    assert "from fla.ops.utils.index import prepare_chunk_indices" in done.json["unmet_imports"]
    assert "from fla.utils import input_guard" in done.err


def test_a_module_may_be_a_package(quasar, clone):
    (clone / "fla/utils").mkdir()
    os.rename(clone / "fla/utils.py", clone / "fla/utils/__init__.py")
    done = quasar("export", clone, "--json")
    assert done.code == 0 and done.json["unmet_imports"] == []
    assert changes(done)["fla/utils.py"] == "kept" and not (clone / "fla/utils.py").exists()


def test_files_that_git_would_leave_out_are_named(quasar, clone):
    (clone / ".gitignore").write_text("kernels/\n")
    done = quasar("export", clone)
    assert done.code == 0 and f"{OPERATION}/kernels/quasar/chunk.cu" in done.err and "git add -f" in done.err


# --- quasar_ops ---------------------------------------------------------------------------------------

def test_ops_are_a_package_of_their_own(quasar, tmp_path):
    """Anywhere, without git; again it writes nothing; what somebody changed there is not lost."""
    subprocess.run(["make", "-s", "build/ops"], cwd=ROOT, check=True)
    (tmp_path / "mine.py").write_text("import quasar_ops\n")
    done = quasar("export", "--ops", tmp_path)
    assert done.code == 0 and "import quasar_ops" in done.out, done.err
    assert contents(tmp_path) == {**contents(ROOT / "build" / "ops"), "mine.py": b"import quasar_ops\n"}
    assert set(changes(quasar("export", "--ops", "--json", cwd=tmp_path)).values()) == {"same"}
    (tmp_path / "quasar_ops" / "flash.py").write_text("mine\n")
    done = quasar("export", "--ops", tmp_path)
    assert done.code == 1 and "not under git" in done.err
    assert (tmp_path / "quasar_ops" / "flash.py").read_text() == "mine\n"
    assert quasar("export", "--ops", "--force", tmp_path).code == 0
    assert contents(tmp_path / "quasar_ops") == contents(ROOT / "build" / "ops" / "quasar_ops")


def test_ops_do_not_come_into_a_fork_by_themselves(quasar, clone):
    assert quasar("export", clone).code == 0
    assert not (clone / "quasar_ops").exists()


@pytest.mark.parametrize("args, code, words", [(["--ops", "nowhere"], 3, "nowhere"), (["--ops", "--op-only"], 2, "only one of")])
def test_ops_have_to_have_a_place(quasar, args, code, words):
    done = quasar("export", *args)
    assert done.code == code and words in done.err
