"""quasar gpus, and devices by name. They pass with and without a GPU."""
import pytest


def test_json_tells_what_is_here_and_what_is_known(quasar):
    document = quasar("gpus", "--json").json
    known = {model["name"]: model for model in document["known"]}
    assert {"A100 PCIe 80 GB", "A100 SXM 80 GB", "H100 PCIe", "H100 SXM", "RTX 4090", "RTX 3090", "H200",
            "B200", "L40S", "RTX A6000", "RTX 5090"} <= set(known)
    assert known["H200"]["multiprocessors"] == 132 and known["RTX 4090"]["compute_capability"] == 8.9
    assert bool(document["present"]) != bool(document["problem"])


def test_text_names_the_reason_when_there_is_no_gpu(quasar):
    problem = quasar("gpus", "--json").json["problem"]
    done = quasar("gpus")
    assert done.code == 0 and "From data sheets" in done.out
    assert problem in done.out


def test_a_gpu_that_is_not_there(quasar):
    done = quasar("bench", "--op", "--device", "cuda:99", "--seq", 64)
    assert done.code == 3 and done.err


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cuda1", "cuda:0x", "gpu", "cuda:-1"])
def test_names_that_are_no_device(quasar, name):
    done = quasar("bench", "--op", "--device", name, "--seq", 64)
    assert done.code == 2 and name in done.err and "cuda:N" in done.err
