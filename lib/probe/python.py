"""Says on one line of JSON what this Python is and has. Imports nothing that would take its time, torch least of all.

usage: python3 -c SOURCE
"""
import sys

if sys.path and not sys.path[0]:
    del sys.path[0]  # what lies in the current directory is not installed

import importlib.util
import json
import os


def torch():
    """Its version and the CUDA that it was built for."""
    try:
        found = importlib.util.find_spec("torch")
        if not found:
            return None, None
        import runpy  # these two take longer than all the rest
        from importlib import metadata
        version = metadata.version("torch")
    except Exception:  # half of it is there
        return None, None
    try:
        said = runpy.run_path(os.path.join(os.path.dirname(found.origin), "version.py"))
    except Exception:  # a build of one's own
        said = {}
    return str(said.get("__version__", version)), said.get("cuda")


def places():
    """The folders that it needs to run, none of which lies in another one."""
    found = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    found |= {path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")}
    return [path for path in sorted(found) if os.path.isdir(path) and
            not any(path.startswith(other.rstrip("/") + "/") for other in found)]


version, cuda = torch()
print(json.dumps({
    "path": sys.executable,
    "version": sys.version.split()[0],
    "virtual": sys.prefix != sys.base_prefix,
    "pip": importlib.util.find_spec("pip") is not None,
    "torch": version,
    "cuda": cuda,
    "places": places(),
}))
