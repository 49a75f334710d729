"""quasar roofline, on the CPU."""
import picture
import pytest



def test_every_operation_stands_under_measured_roofs(quasar, tmp_path):
    path = tmp_path / "roofline.svg"
    done = quasar("roofline", "--seq", 70, "--runs", 2, "--device", "cpu", "--json", "--svg", path)
    assert done.code == 0, done.err
    found, results = done.json, done.json["results"]
    assert found["device"].startswith("cpu") and found["seq"] == 70
    assert found["copy_bytes_per_second"] > 1e8 and found["product_operations_per_second"] > 1e8
    assert {row["op"] for row in results} == {
        "quasar", "quasar-backward", "linear", "linear-backward", "flash", "flash-backward"}
    for row in results:
        assert row["operations_per_byte"] == pytest.approx(row["operations"] / row["bytes"])
        assert row["operations_per_second"] == pytest.approx(row["operations"] / row["seconds"])
        assert row["bytes_per_second"] == pytest.approx(row["bytes"] / row["seconds"])
        roofs = {"memory": row["operations_per_byte"] * found["copy_bytes_per_second"], "arithmetic": found["product_operations_per_second"]}
        assert row["bound"] == min(roofs, key=roofs.get)
        assert row["roof_fraction"] == pytest.approx(row["operations_per_second"] / min(roofs.values()))
    causal, = (row for row in results if (row["op"], row["semantics"]) == ("flash", "causal"))
    assert causal["bytes"] == 4 * 70 * 512 * 2  # q, k, v and o
    assert causal["operations"] == 2 * 2 * 64 * 8 * 70 * 71 / 2  # two products of the pairs that see each other
    svg = picture.read(path)
    said = picture.words(svg)
    for row in results:
        name = f"{row['op']}, {row['semantics'].split(',')[0]}"
        assert said.count(name) == 2, said  # a mark, and a bar
        assert any(word.startswith(f"{row['roof_fraction'] * 100:.0f} %, ") for word in said)
    assert {"TFLOP/s", "operations per byte of memory", "what the device allows"} <= set(said)


def test_one_operation_as_text(quasar):
    done = quasar("roofline", "--op", "flash", "--seq", 40, "--runs", 1, "--device", "cpu")
    assert done.code == 0, done.err
    assert "memory copies" in done.out and "TFLOP/s" in done.out
    assert [line.split()[:2] for line in done.out.splitlines() if line.startswith("flash")] == [
        ["flash", "causal"], ["flash", "bidirectional"], ["flash", "packed"], ["flash", "packed-bidirectional"]]


@pytest.mark.parametrize("args, code", [(["--seq", 0], 2), (["--op", "unknown"], 2), (["--device", "cuda:99"], 3),
                                        (["--seq", 16, "--runs", 1, "--svg", "nowhere/at/all.svg"], 3)])
def test_what_cannot_be_measured(quasar, args, code):
    assert quasar("roofline", *args).code == code


@pytest.mark.parametrize("args", [["roofline", "--op", "flash", "--seq", 16, "--svg"],
                                  ["bench", "--op", "linear", "--sweep", "--seq", 16, "--svg"],
                                  ["tune", "--gpu", "a100", "--report"]])
def test_where_nothing_can_be_written_nothing_is_measured(quasar, args, tmp_path):
    for path in tmp_path / "nowhere" / "at-all", tmp_path:
        done = quasar(*args, path, "--json")
        assert done.code == 3 and f"cannot write {path}" in done.json["error"]["message"]
    assert not [name for name in tmp_path.iterdir() if ".unfinished" in name.name]
