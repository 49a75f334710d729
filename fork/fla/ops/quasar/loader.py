"""CUDA kernels, compiled by PyTorch's own NVRTC entry on first use: those beside this file, and in kernels/.

A compiled kernel is kept in a private folder under a hash of all that went into it, so that the next process only
loads it.
"""
import functools
import hashlib
import os
import pathlib
import re
import tempfile

import torch

FOLDER = pathlib.Path(__file__).parent
KERNELS = FOLDER / "kernels"
INPUT = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # as in kernels/common/dtype.h


def unavailable(device):
    """Why kernels cannot be compiled and run on this device, or None. Cheap."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "needs an NVIDIA GPU"
    if torch.cuda.get_device_capability(device) < (8, 0):
        return "needs compute capability 8.0 or newer"
    try:
        from torch.cuda._utils import _cuda_load_module
        from torch.cuda._utils import _nvrtc_compile
    except ImportError:
        return f"PyTorch {torch.__version__} has no NVRTC entry"
    if not KERNELS.is_dir():
        return f"{KERNELS} is missing"
    return None


@functools.cache
def sources():
    """All that can be compiled."""
    return b"".join(path.read_bytes() for path in (*sorted(FOLDER.glob("*.cu")), *sorted(KERNELS.glob("*/*"))))


@functools.cache
def constant(name):
    """A number that host and kernels share."""
    return int(re.search(rf"#define {name}[\s\\]+(\d+)".encode(), sources())[1])  # on this line, or the next


def cache_folder():
    """A folder that nobody else writes to, or None."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    for path in (pathlib.Path(home, "quasar-fork"), pathlib.Path(tempfile.gettempdir(), f"quasar-fork-{os.getuid()}")):
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.lstat()
        except OSError:
            continue
        if status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(path, os.W_OK | os.X_OK):
            return path
    return None


def machine_code(source, name, options, architecture):
    """A file compiled for an architecture; `name` is one of its kernels."""
    from torch.cuda._utils import _nvrtc_compile
    key = hashlib.sha256(sources() + repr((source.name, options, architecture, torch.version.cuda)).encode()).hexdigest()
    folder = cache_folder()
    kept = folder / f"{key}.cubin" if folder else None
    if kept and kept.exists():
        return kept.read_bytes()
    binary, _ = _nvrtc_compile(source.read_text(), name, architecture, [str(KERNELS)], options)
    if kept:
        try:
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(binary)
            os.replace(file.name, kept)  # whole or not at all, whoever else writes it now
        except OSError:  # the disk is full, say: the next process compiles again
            pathlib.Path(file.name).unlink(missing_ok=True)
    return binary


@functools.cache
def load(device, source, names, **parameters):
    """Kernels of a file, built with these parameters, by name; `device` is a GPU's number."""
    from torch.cuda._utils import _cuda_load_module
    major, minor = torch.cuda.get_device_capability(device)
    options = [f"-D{name}={value}" for name, value in parameters.items()]
    architecture = f"{major}{minor}{'a' if major == 9 else ''}"  # wgmma is Hopper's alone
    with torch.cuda.device(device):
        return _cuda_load_module(machine_code(source, names[0], options, architecture), list(names))
