"""Imports a fork's layer. If that fails, the last line says where in the fork, and why.

usage: python3 -c SOURCE FORK
"""
import os
import sys
import traceback

fork = os.path.realpath(sys.argv[1])
os.chdir(fork)
sys.path[0] = fork
try:
    import fla.layers.quasar
except Exception as error:
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename, error.lineno))
    ours = [f"{os.path.relpath(path, fork)}:{line}: " for path, line in places if path and path.startswith(fork + os.sep)]
    sys.exit(f"{ours[-1] if ours else ''}{traceback.format_exception_only(type(error), error)[-1].strip()}")
if not os.path.realpath(fla.layers.quasar.__file__).startswith(fork + os.sep):
    sys.exit(f"fla comes from {fla.layers.quasar.__file__}, not from the fork")
