"""Prints what Python files import and call, from their syntax trees. Nothing of the files is run or imported.

On stdin, for each file: its length in bytes and a line end, then its text. On stdout, a line of JSON: Python's version;
then a line for each file with "imports" [line, level or null, module, name, alias], "calls" [line, of expression, name]
and perhaps "fault" [line, what]; or {} where Python itself gives up.
"""
import ast
import json
import resource
import sys

MEMORY = 2 << 30  # bytes; the tree takes some hundred for each byte of the text
GRAMMAR = min(sys.version_info[:2], (3, 11))  # newer syntax does not run where validators run the fork


def called(function):
    """The dotted name, and whether it follows an expression without a name, as in f().eval()."""
    parts = []
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        return False, ".".join([function.id, *reversed(parts)])
    return True, ".".join(reversed(parts))


def facts(tree):
    imports, calls = [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += ([node.lineno, None, alias.name, None, alias.asname] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            imports += ([node.lineno, node.level, node.module or "", alias.name, alias.asname] for alias in node.names)
        elif isinstance(node, ast.Call):
            calls.append([node.func.end_lineno, *called(node.func)])
    return {"imports": sorted(imports, key=lambda fact: fact[0]),
            "calls": sorted((call for call in calls if call[2]), key=lambda fact: fact[0])}


def report(text):
    try:
        return facts(ast.parse(text, feature_version=GRAMMAR))
    except SyntaxError as error:
        return {"imports": [], "calls": [], "fault": [error.lineno or 1, str(error.msg)]}
    except (MemoryError, RecursionError, ValueError):  # too large, or nested too deeply
        return {}


resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
print(json.dumps(sys.version.split()[0]))
while length := sys.stdin.buffer.readline():
    print(json.dumps(report(sys.stdin.buffer.read(int(length)).decode())), flush=True)
