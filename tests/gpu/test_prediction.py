"""`quasar tune --gpu` against what tuning measures on this GPU: prediction made without timing, then every candidate timed."""
import json
import os
import statistics
import subprocess

import pytest

from test_gpu import QUASAR, gpu, real_gpu  # noqa: F401 (fixtures)

SHAPES = [["--seq", "65536", "--semantics", "causal"], ["--seq", "2048", "--semantics", "causal"],
          ["--seq", "32768", "--semantics", "causal", "--head-dim", "128"]]


def tune(home, *args):
    done = subprocess.run([QUASAR, "tune", "--json", *args], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"),
                               "XDG_DATA_HOME": str(home / "data")})
    return done.returncode, done.stdout and json.loads(done.stdout), done.stderr


def ranks(values):
    """From 1; equal values share the mean of theirs."""
    places = sorted(values)
    return [places.index(value) + (places.count(value) + 1) / 2 for value in values]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(shape[1::2]))
def test_the_measured_best_is_predicted_to_be_among_the_first(real_gpu, tmp_path, shape):  # noqa: F811
    code, predicted, err = tune(tmp_path, "--gpu", real_gpu["name"], *shape)
    if code == 2:
        pytest.skip(err)
    assert code == 0 and predicted["source"] == "model", err
    code, measured, err = tune(tmp_path, "--strategy", "exhaustive", "--budget", "500", *shape)
    assert code == 0, err
    expected = {json.dumps(row["parameters"], sort_keys=True): row["ms"] for row in predicted["kernels"]}
    times = {json.dumps(row["parameters"], sort_keys=True): row["ms"] for row in measured["kernels"]}
    common = [key for key in times if key in expected]
    assert len(common) >= 20
    best = min(common, key=times.get)
    # configurations that come out as the same machine code share a place; timing cannot tell those within 2 % from the best
    places = sorted(set(round(ms, 6) for ms in expected.values()))
    place = min(places.index(round(expected[key], 6)) for key in common if times[key] <= 1.02 * times[best]) + 1
    agreement = statistics.correlation(ranks([expected[key] for key in common]), ranks([times[key] for key in common]))
    print(f"{gpu['name']} {shape}: one within 2 % of the best is predicted at place {place}, the best in {expected[best]:.4f} ms, measured "
          f"{times[best]:.4f} ms; Spearman {agreement:.2f} over {len(common)}")
    assert agreement >= 0.7
    if "H200" in real_gpu["name"]:
        assert place <= 3
    if "H100" in real_gpu["name"]:
        assert place <= 5 and abs(expected[best] / times[best] - 1) <= 0.25
