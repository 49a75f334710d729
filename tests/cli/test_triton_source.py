"""lib/fork/triton_source.py: one configuration takes the place of a list, and nothing else of the file changes."""
import difflib
import json
import subprocess
import sys

import pytest

from conftest import ROOT

CONFIG = {"kwargs": {"BT": 64}, "num_warps": 4, "num_stages": 2, "num_ctas": 1, "maxnreg": 128}
LINE = "triton.Config({'BT': 64}, num_warps=4, num_stages=2, num_ctas=1, maxnreg=128)"
BODY = "@triton.jit\ndef kernel(x, BT: tl.constexpr):\n    pass  # ü\n"


def ask(text, kernel="kernel", config=CONFIG):
    script = ROOT / "lib/fork/triton_source.py"
    done = subprocess.run([sys.executable, "-I", "-S", script], input=json.dumps({"text": text, "kernel": kernel, "config": config}),
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def changed(before, after):
    """The lines taken out and put in."""
    lines = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    return [line[2:] for line in lines if line[0] == "-"], [line[2:] for line in lines if line[0] == "+"]


def test_a_comprehension():
    text = f"""# a kernel, ünlike others
import triton
import triton.language as tl


@triton.heuristics({{'A': lambda args: args['a'] is not None}})
@triton.autotune(
    configs=[
        triton.Config({{'BT': BT}}, num_warps=num_warps, num_stages=num_stages)
        for BT in [32, 64]
        for num_warps in [2, 4]
        for num_stages in [2, 3]
    ],
    key=['H', 'S'],  # of the problem
)
{BODY}"""
    after = ask(text)["text"]
    out, into = changed(text, after)
    assert [line.strip() for line in into] == [LINE + ","]
    assert len(out) == 4 and "    configs=[\n        triton.Config({'BT': 64}" in after
    assert ask(after)["text"] == after


def test_a_list_keeps_its_comments():
    text = f"""import triton

@triton.autotune([
    # for short sequences
    triton.Config({{'BT': 32}}, num_warps=2),  # goes with its line
    # for long ones
    triton.Config({{'BT': 64}}, num_warps=8)], key=["T"])
{BODY}"""
    after = ask(text)["text"]
    assert "# for short sequences\n" in after and "# for long ones\n" in after and "goes with its line" not in after
    assert LINE in after and after.count("triton.Config") == 1


@pytest.mark.parametrize("configs", ["CONFIGS", "configs()", "[triton.Config({'BT': 32})]", "CONFIGS + [None]"])
def test_a_list_from_elsewhere(configs):
    text = f"import triton\nCONFIGS = [triton.Config({{}})]  # stays\n@triton.autotune(configs={configs}, key=['T'])\n{BODY}"
    assert ask(text)["text"] == text.replace(f"configs={configs},", f"configs=[{LINE}],")


@pytest.mark.parametrize("imports, name", [
    ("import triton as t", "t.Config"), ("from triton import autotune, Config", "Config"),
    ("from triton import Config as Way", "Way"), ("def f():\n    import triton", "triton.Config")])
def test_triton_by_another_name(imports, name):
    text = f"{imports}\n@autotune(configs=[1], key=[])\n{BODY}"
    assert ask(text)["text"] == text.replace("[1]", f"[{LINE.replace('triton.Config', name)}]")


def test_a_decorator_of_ones_own():
    text = f"import triton\n@tuned(config(4, 2), config(8, 2),\n       config(8, 3), fp32=config(4, 1))\n{BODY}"
    assert ask(text)["text"] == f"import triton\n@tuned({LINE}, fp32=config(4, 1))\n{BODY}"


def test_heuristics_are_not_configurations():
    text = f"import triton\n@triton.heuristics(values(1))\n@tuned(config(4, 2))\n{BODY}"
    assert ask(text)["text"] == text.replace("config(4, 2)", LINE)


def test_an_autotune_by_another_name():
    text = f"import triton\n@cache_autotune(\n    configs=[\n        triton.Config({{'BT': BT}}) for BT in [1, 2]\n    ],\n    key=['T'])\n{BODY}"
    assert ask(text)["text"] == text.replace("triton.Config({'BT': BT}) for BT in [1, 2]", LINE + ",")


def test_only_what_is_set_is_written():
    text = f"import triton\n@triton.autotune(configs=X, key=[])\n{BODY}"
    config = {"kwargs": {}, "num_warps": 8, "num_stages": 3, "maxnreg": None}
    assert "configs=[triton.Config({}, num_warps=8, num_stages=3)]" in ask(text, config=config)["text"]


def test_line_ends_and_tabs_stay():
    text = f"import triton\r\n@triton.autotune(\r\n\tconfigs=[1,\r\n\t\t2], key=['ü'])\r\n{BODY}"
    after = ask(text)["text"]
    assert after.startswith("import triton\r\n@triton.autotune(\r\n\tconfigs=[") and after.endswith(", key=['ü'])\r\n" + BODY)
    assert LINE + ",\r\n" in after


@pytest.mark.parametrize("text, kernel, fault", [
    ("import triton\n" + BODY, "kernel", "no decorator with configurations"),
    ("import triton\n" + BODY, "other", "no function other"),
    (f"import triton\n@triton.autotune(key=[])\n{BODY}", "kernel", "no list of configurations"),
    (f"@autotune(configs=[])\n{BODY}", "kernel", "does not import triton"),
    (f"import triton\n@autotune(configs=[])\n{BODY}@autotune(configs=[])\n{BODY}", "kernel", "there are 2 functions"),
    ("def (", "kernel", "line 1"),
    ("(" * 10000, "kernel", ""),
    ("x = '\0'", "kernel", ""),
])
def test_what_cannot_be_done_is_said(text, kernel, fault):
    assert fault in ask(text, kernel)["fault"]


def test_what_is_not_in_utf_8_is_said():
    done = subprocess.run([sys.executable, "-I", "-S", ROOT / "lib/fork/triton_source.py"], capture_output=True, check=True,
                          input=json.dumps({"text": "# ?", "kernel": "kernel", "config": CONFIG}).encode().replace(b"?", b"\xfc"))
    assert json.loads(done.stdout)["fault"] == "Python cannot read the file: UnicodeDecodeError"
