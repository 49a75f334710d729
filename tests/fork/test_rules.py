"""What else is asked of the fork's Python. The validators' own rules are checked by `quasar verify`, in tests/cli."""
import ast
import re
import sys

import pytest
from conftest import FORK

FILES = sorted((FORK / "fla").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FORK)))
def test_a_reader_need_not_ask_what_is_called(path):
    """Further than any rule goes: nothing is compiled, and no name is made of a string."""
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(re\.compile|getattr\(os|getattr\(subprocess|globals\(\)|__builtins__)", text)


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
