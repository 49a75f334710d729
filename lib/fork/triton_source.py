"""Puts one configuration in the place of those that a Triton kernel is tuned over, in the text of a Python file.

On stdin a document of JSON: {"text": the file, "kernel": a function's name, "config": {"kwargs": {…}, "num_warps": …,
"num_stages": …, "num_ctas": …, "maxnreg": …}}, of which the last may be missing or null. On stdout {"text": the new file},
or {"fault": why it cannot be done}. Nothing of the file is run or imported. Only the list of configurations changes; comments
that stand in it on lines of their own stay.

The list is what a decorator has as `configs`, or the first argument of autotune. Where a decorator of another name stands
there, its positional arguments have to be calls, one for each configuration.
"""
import ast
import io
import json
import resource
import sys
import tokenize

MEMORY = 2 << 30  # bytes
resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Fault(Exception):
    pass


def last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def find_kernel(tree, name):
    found = [node for node in ast.walk(tree)
             if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name]
    if len(found) != 1:
        raise Fault(f"there are {len(found)} functions of the name {name}" if found else f"there is no function {name}")
    return found[0]


def find_list(kernel):
    """The nodes, side by side, that the configuration takes the place of, and whether they are one list."""
    calls = [node for node in kernel.decorator_list if isinstance(node, ast.Call)]
    for call in calls:
        given = [word.value for word in call.keywords if word.arg == "configs"]
        if given or last_name(call.func) == "autotune":
            given = given or call.args[:1]
            if not given or isinstance(given[0], ast.Starred):
                raise Fault(f"the autotune of {kernel.name} has no list of configurations")
            return given, True
    for call in calls:
        if last_name(call.func) != "heuristics" and call.args and all(isinstance(node, ast.Call) for node in call.args):
            return call.args, False
    raise Fault(f"{kernel.name} has no decorator with configurations")


def name_of_triton(tree):
    """What the file calls triton.Config."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "triton":
                    return f"{alias.asname or 'triton'}.Config"
        elif isinstance(node, ast.ImportFrom) and node.module == "triton" and not node.level:
            for alias in node.names:
                if alias.name == "Config":
                    return alias.asname or "Config"
    raise Fault("the file does not import triton")


def config_text(name, config):
    kwargs = config.get("kwargs") or {}
    if not all(isinstance(key, str) and isinstance(value, (int, float, str, bool)) for key, value in kwargs.items()):
        raise Fault("a value of the configuration is no number")
    words = [repr(kwargs)]
    for key in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
        if config.get(key) is not None:
            words.append(f"{key}={int(config[key])}")
    return f"{name}({', '.join(words)})"


class Text:
    """A file by lines and columns, as syntax trees count them: lines from 1, columns in bytes of UTF-8."""

    def __init__(self, text):
        self.data = text.encode()
        self.starts = [0]
        for line in self.data.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def at(self, line, column):
        return self.starts[line - 1] + column


def own_comments(text, first, last):
    """The comments between two lines that have a line to themselves."""
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and first < token.start[0] < last and not token.line[:token.start[1]].strip():
            comments.append(token.string)
    return comments


def rewrite(text, kernel, config):
    tree = ast.parse(text)
    function = find_kernel(tree, kernel)
    nodes, is_list = find_list(function)
    where = Text(text)
    begin, end = nodes[0], nodes[-1]
    start, stop = where.at(begin.lineno, begin.col_offset), where.at(end.end_lineno, end.end_col_offset)
    new = config_text(name_of_triton(tree), config)
    comments = own_comments(text, begin.lineno, end.end_lineno)
    line = where.data[where.at(begin.lineno, 0):where.at(begin.lineno, begin.col_offset)].decode()
    indent = line[:len(line) - len(line.lstrip())] + (" " * 4 if is_list else "")
    if is_list:
        if begin.lineno == end.end_lineno and not comments:
            new = f"[{new}]"
        else:
            inside = "".join(f"{indent}{words}\n" for words in [*comments, f"{new},"])
            new = f"[\n{inside}{indent[:-4]}]"
    elif comments:
        new = "".join(f"{words}\n{indent}" for words in comments) + new
    if "\r\n" in text:
        new = new.replace("\n", "\r\n")
    result = (where.data[:start] + new.encode() + where.data[stop:]).decode()
    require_only_that(text, result, kernel)
    return result


def require_only_that(before, after, kernel):
    """The new file is the old one but for the list; anything else is a fault of this program."""
    trees = [ast.parse(before), ast.parse(after)]
    for tree in trees:
        nodes, is_list = find_list(find_kernel(tree, kernel))
        if is_list:
            replace(tree, nodes[0])
        else:
            for call in find_kernel(tree, kernel).decorator_list:
                if isinstance(call, ast.Call) and call.args is nodes:
                    call.args = []
    if ast.dump(trees[0]) != ast.dump(trees[1]):
        raise Fault("the file cannot be changed without changing something else")


def replace(tree, node):
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            call.args = [ast.Constant(0) if argument is node else argument for argument in call.args]
            for word in call.keywords:
                if word.value is node:
                    word.value = ast.Constant(0)


def answer(line):
    try:
        request = json.loads(line)
        return {"text": rewrite(request["text"], request["kernel"], request["config"])}
    except SyntaxError as error:
        return {"fault": f"line {error.lineno}: {error.msg}"}
    except Fault as fault:
        return {"fault": str(fault)}
    except (MemoryError, RecursionError, ValueError, tokenize.TokenError) as error:
        return {"fault": f"Python cannot read the file: {type(error).__name__}"}


print(json.dumps(answer(sys.stdin.buffer.read())))
