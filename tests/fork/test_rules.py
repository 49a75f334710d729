"""What validators forbid and demand of the Python files: all three import rules, over everything under fla/."""
import ast
import re
import sys

import pytest
from conftest import FORK

FILES = sorted((FORK / "fla").rglob("*.py"))
QUASAR = FORK / "fla" / "ops" / "quasar"
TARGETS = ["chunk.py", "chunk_intra_token_parallel.py", "forward_substitution.py", "fused_recurrent.py", "gate.py"]
STRICT = """import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from fla.ops.utils.index import prepare_chunk_indices
from fla.ops.quasar.forward_substitution import forward_substitution_kernel
from fla.utils import IS_AMD
from fla.utils import autocast_custom_bwd
from fla.utils import autocast_custom_fwd
from fla.utils import autotune_cache_kwargs
from fla.utils import check_shared_mem
from fla.utils import input_guard""".splitlines()
DEPLOYED = ["autocast_custom_bwd", "autocast_custom_fwd", "autotune_cache_kwargs", "check_shared_mem", "input_guard"]
MODULES = {"importlib", "ctypes", "socket", "http", "urllib", "requests", "paramiko", "fabric"}
NAMES = {"__import__", "exec", "eval", "compile"}
CALLS = re.compile(r"os\.(system|popen|exec\w*|spawn\w*)|subprocess\.(run|call|Popen|check_\w+)")


def dotted(node):
    """A called expression as text. What it is a name of is not looked at where that is no name, as in f().eval()."""
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else node.attr
    return node.id if isinstance(node, ast.Name) else ""


def offences(text):
    """What the validator of April 2026 rejects in a file, as it reads its syntax tree."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            names = []
        for name in names:
            if name.split(".")[0] in MODULES or re.match(r"fla\.ops\.(gla|kda)\b", name):
                yield f"imports {name}"
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in NAMES or CALLS.fullmatch(name):
                yield f"calls {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FORK)))
def test_syntax_tree(path):
    text = path.read_text(encoding="utf-8")
    assert not list(offences(text))
    assert not re.search(r"(from|import) fla\.ops\.(gla|kda)", text)
    # further than any rule goes: a reader need not ask what is compiled, or which names are made of strings
    assert not re.search(r"\b(re\.compile|getattr\(os|getattr\(subprocess|globals\(\)|__builtins__)", text)


@pytest.mark.parametrize("text", [
    "import ctypes", "from importlib import util", "import http.client", "import torch, socket", "exec('')",
    "f().eval()", "x = compile('', '', 'exec')", "os.system('')", "import os\nos.execvp('a', [])",
    "subprocess.check_output([])", "from fla.ops.gla import chunk", "def f():\n    import urllib.request",
    "from fla.ops import kda"])
def test_offences_are_found(text):
    assert list(offences(text))


@pytest.mark.parametrize("text", ["model.eval()", "torch.compile(f)", "os.path.join('a')", "import fla.ops.glad"])
def test_what_is_allowed(text):
    assert not list(offences(text))


def test_strict_rule():
    for name in TARGETS:
        assert (QUASAR / name).is_file()
    lines = (QUASAR / "chunk.py").read_text().splitlines()
    assert [line for line in STRICT if line not in lines] == []


def test_deployed_rule():
    text = (QUASAR / "chunk.py").read_text()
    code = "\n".join(line.split("#")[0] for line in text.splitlines())
    assert [name for name in DEPLOYED if f"from fla.utils import {name}" not in code] == []


def test_names_of_the_reference_fork():
    from fla.layers.quasar import QuasarAttention
    from fla.ops.quasar import chunk_quasar, fused_recurrent_quasar
    from fla.ops.quasar.forward_substitution import forward_substitution_kernel
    from fla.ops.quasar.gate import fused_quasar_gate
    for name in (QuasarAttention, chunk_quasar, fused_recurrent_quasar, forward_substitution_kernel, fused_quasar_gate):
        assert callable(name)


def test_imports_only_what_is_there():
    """The package needs torch, triton and nothing else that is not Python's own or its own."""
    roots = set()
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                roots.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                roots.add(node.module.split(".")[0])
    assert roots - set(sys.stdlib_module_names) == {"torch", "triton", "fla"}
