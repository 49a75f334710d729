"""Says on one line of JSON what this Python is and has. Imports nothing that would take its time, torch least of all.

usage: python3 -c SOURCE
"""
import sys

if sys.path and not sys.path[0]:
    del sys.path[0]  # what lies in the current directory is not installed

import importlib.metadata
import importlib.util
import json
import os
import runpy


def torch():
    """Its version and the CUDA that it was built for."""
    try:
        found = importlib.util.find_spec("torch")
        version = importlib.metadata.version("torch")
    except Exception:  # half of it is there
        return None, None
    try:
        said = runpy.run_path(os.path.join(os.path.dirname(found.origin), "version.py"))
    except Exception:  # a build of one's own
        said = {}
    return str(said.get("__version__", version)), said.get("cuda")


version, cuda = torch()
print(json.dumps({
    "path": sys.executable,
    "version": sys.version.split()[0],
    "virtual": sys.prefix != sys.base_prefix,
    "pip": importlib.util.find_spec("pip") is not None,
    "torch": version,
    "cuda": cuda,
}))
