"""quasar tune --gpu: predictions for GPUs that are not here. Where NVRTC is missing, those that compile are skipped."""
import glob
import shutil

import pytest

from conftest import ROOT

LIBRARIES = glob.glob("/lib/*/libdl.so.2") + glob.glob("/lib*/libdl.so.2")  # any that is no compiler
FIELDS = {"kernel", "parameters", "ms", "error", "occupancy", "limited_by", "registers", "shared_bytes", "spills", "bound"}
BOUNDS = {"memory", "tensor cores", "shared memory", "instructions", "latency"}


@pytest.fixture(scope="session")
def compilers(tmp_path_factory):
    """Where NVRTC may be beside the places that the binary looks into, and one cache for all tests of a process."""
    places = {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}
    if (ROOT / "build" / "venv" / "requirements.txt").exists():  # written once all is installed
        places["VIRTUAL_ENV"] = str(ROOT / "build" / "venv")
    return places


@pytest.fixture
def predict(quasar, compilers):
    def run(*args, **options):
        done = quasar("tune", *args, env=compilers, **options)
        if "libnvrtc" in done.err:
            pytest.skip("NVRTC is not installed here: neither a CUDA toolkit nor build/venv has it")
        return done

    return run


def test_a_prediction_is_marked_complete_sorted_and_remembered(predict, quasar, workspace, hotkey, tmp_path):
    cold = predict("--gpu", "4090", "--head-dim", "128", "--seq", "1M", "--json")  # there is room for two builds only
    assert cold.code == 0, cold.err
    document = cold.json
    assert document["device"] == "RTX 4090" and document["predicted"] is True and document["source"] == "model"
    rows = document["kernels"]
    assert len(rows) > 5 and all(set(row) == FIELDS for row in rows)
    assert [row["ms"] for row in rows] == sorted(row["ms"] for row in rows)
    for row in rows:
        assert row["kernel"] == "quasar_chunk" and row["bound"] in BOUNDS
        assert 0 < row["occupancy"] <= 1 and 0 < row["registers"] <= 255 and row["spills"] >= 0
        assert 0 < row["shared_bytes"] <= 99 * 1024
        assert row["parameters"]["CHUNK"] == 64 and row["parameters"]["PRODUCT_WARPS"] == 1
        assert row["error"] is None  # nothing was ever measured on this architecture
    # q, k, v and o once at the data sheet's rate is the least; twenty times that would be a blunder
    floor = 4 * 1e6 * 8 * 128 * 2 / 1008e9 * 1e3
    assert floor < rows[0]["ms"] <= document["untuned_ms"] < 20 * floor
    assert document["memory"]["league"] == "1M" and 6e6 <= document["memory"]["longest_sequence"] < 8e6

    warm = predict("--gpu", "NVIDIA GeForce RTX 4090", "--head-dim", "128", "--seq", "1M")
    assert warm.cpu < max(2, cold.cpu / 3)
    assert warm.code == 0 and "quasar_chunk, predicted" in warm.out
    assert "nothing was measured" in warm.out and "calibrated on an H200 only" in warm.out

    explained = predict("--gpu", "4090", "--head-dim", "128", "--seq", "1M", "--explain", "--json").json["explanation"]
    assert explained["floor_bound"] == "memory" and abs(explained["floor_ms"] / floor - 1) < 0.01
    assert abs(explained["floor_fraction"] - explained["floor_ms"] / rows[0]["ms"]) < 1e-9
    words = predict("--gpu", "4090", "--head-dim", "128", "--seq", "1M", "--explain").out
    assert f"takes {rows[0]['registers']} registers a thread" in words and "memory would be the bound" in words
    assert "league 1M, x3" in warm.out

    # the same as a page, and in the report of a workspace
    page = predict("--gpu", "4090", "--head-dim", "128", "--seq", "1M", "--report", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert page.code == 0 and "Roofline of RTX 4090" in text and "predicted, not measured" in text
    assert "the fastest configurations, by " in text and "the best time in ms by " in text
    (tmp_path / "predicted.json").write_text(cold.out)
    rows = quasar("report", "--offline", "--tuning", tmp_path / "predicted.json", "--json", cwd=workspace).json["tuning"]["rows"]
    assert [row["ms"] for row in rows] == [row["ms"] for row in document["kernels"][:10]]
    assert rows[0]["predicted"] and rows[0]["class"].startswith("upstream, bf16, 8 heads of 128, ")
    assert "RTX 4090: " in warm.err  # the first answer comes before the others are compiled


@pytest.mark.parametrize("name, near", [("3070", "RTX 3080"), ("h300", "H200"), ("6000", "RTX 6000 Ada"), ("", "gpus")])
def test_an_unknown_gpu_lists_near_ones(quasar, name, near):
    done = quasar("tune", "--gpu", name)
    assert done.code == 2 and near in done.err and not done.out


def test_what_no_gpu_can_do_is_refused_before_anything_is_compiled(quasar):
    done = quasar("tune", "--gpu", "a100", "--head-dim", "48")
    assert done.code == 2 and "32, 64 and 128" in done.err
    done = quasar("tune", "--gpu", "a100", "--op", "linear", "--head-dim", "48")
    assert done.code == 2 and "32, 64 and 128" in done.err
    done = quasar("tune", "--gpu", "a100", "--op", "flash", "--dtype", "fp32")
    assert done.code == 2 and "fp32" in done.err


def test_without_a_compiler_the_guides_configurations_are_shown_as_such(quasar, tmp_path):
    broken = tmp_path / "lib64"  # the first place that is looked into
    broken.mkdir()
    for version in (12, 13):
        shutil.copy(LIBRARIES[0], broken / f"libnvrtc.so.{version}")
    env = {"CUDA_HOME": str(tmp_path)}
    done = quasar("tune", "--gpu", "4090", "--json", env=env)
    assert done.code == 0, done.err
    assert done.json["source"] == "guide" and "not a usable NVRTC" in done.err
    row = done.json["kernels"][0]
    assert row["kernel"] == "triton" and row["parameters"] == {
        "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "num_stages": 2, "num_warps": 4}
    assert row["ms"] is None and row["registers"] is None
    text = quasar("tune", "--gpu", "4090", "--report", tmp_path / "page.html", env=env).out
    assert "Nothing has been tuned" in (tmp_path / "page.html").read_text()
    assert "nothing is predicted" in text and "The miners' guide recommends" in text
    assert "league" in text
