"""quasar score and quasar leagues"""
import json

import pytest

from conftest import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "scoring.json").read_text())


@pytest.mark.parametrize("case", VECTORS["leagues"][::5], ids=lambda case: str(case["target_sequence_length"]))
def test_league_and_weighted_score(quasar, case):
    done = quasar("score", "--json", "--seq", case["target_sequence_length"], "--tokens-per-sec", "1000")
    assert done.code == 0
    assert done.json["league"] == case["league"] and done.json["multiplier"] == case["multiplier"]
    assert done.json["weighted_score"] == 1000 * case["multiplier"] and done.json["score"] is None


@pytest.mark.parametrize("case", VECTORS["claims"], ids=lambda case: f"{case['actual']} of {case['claimed']}")
def test_score_of_a_claim(quasar, case):
    done = quasar("score", "--json", "--seq", "1M", "--tokens-per-sec", repr(case["actual"]),
                  "--claimed", repr(case["claimed"]))
    assert done.code == 0 and done.json["score"] == case["score"]


def test_score_for_people(quasar):
    done = quasar("score", "-s", "1M", "-t", "60M", "-c", "70M")
    assert done.code == 0
    assert "1M (x3)" in done.out and "180,000,000" in done.out and "0.0000" in done.out and "failure" in done.out


@pytest.mark.parametrize("gpu, factor", [(None, 1.0), ("NVIDIA H100 80GB HBM3", 1.3), ("L4", 0.55), ("abacus", 1.0)])
def test_the_speed_normalised_by_the_validators_gpu(quasar, gpu, factor):
    option = ["--validator-gpu", gpu] if gpu else []
    done = quasar("score", "--json", "-s", "1M", "-t", "1300", *option)
    assert done.json["normalization_factor"] == factor and done.json["normalized_tokens_per_sec"] == 1300 / factor
    assert done.json["normalized_weighted_score"] == pytest.approx(3900 / factor)
    text = quasar("score", "-s", "1M", "-t", "1300", *option).out
    assert "normalised" in text and (gpu != "abacus" or "not known" in text)


def test_the_target_length_comes_from_the_settings(quasar):
    done = quasar("score", "--json", "-t", "1", env={"TARGET_SEQUENCE_LENGTH": "300k"})
    assert done.json["league"] == "300k"


@pytest.mark.parametrize("args", [[], ["-t", "fast"], ["-t", "-1"], ["-t", "1", "-s", "0"], ["-t", "1", "-c", "0"],
                                  ["-t", "nan"], ["-t", "1", "-s", "1.5"], ["-t", "1", "extra"]])
def test_wrong_numbers_are_refused(quasar, args):
    done = quasar("score", *args)
    assert done.code == 2 and done.out == "" and done.err


def test_leagues(quasar):
    done = quasar("leagues", "--json")
    assert [league["league"] for league in done.json["leagues"]] == [
        "100k", "200k", "300k", "400k", "500k", "600k", "700k", "800k", "900k", "1M"]
    assert done.json["rewards"] == [0.6, 0.25, 0.1, 0.05]
    marked = [line for line in quasar("leagues", "--seq", "1M").out.splitlines() if "yours" in line]
    assert len(marked) == 1 and marked[0].startswith("1M")
