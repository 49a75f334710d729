"""Occupancy, against the calculator that comes with the CUDA toolkit and with Triton."""
import glob
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def calculators_folder():
    patterns = [f"{path}/{below}" for path in sys.path
                for below in ("triton/backends/nvidia/include", "nvidia/*/include")]
    patterns += [f"{os.environ[name]}/include" for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    for pattern in patterns + ["/usr/local/cuda/include"]:
        for folder in glob.glob(pattern):
            if os.path.exists(f"{folder}/cuda_occupancy.h"):
                return folder
    return None


def test_every_known_gpu_holds_as_many_blocks_as_the_calculator_says(tmp_path):
    folder = calculators_folder()
    if not folder:
        pytest.skip("no cuda_occupancy.h: neither Triton nor a CUDA toolkit is installed")
    program = tmp_path / "occupancy"
    subprocess.run(["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", f"-I{ROOT}/lib", f"-I{ROOT}", "-isystem", folder, "-o",
                    program, ROOT / "tests/peer/occupancy.c", ROOT / "build/libquasar.a"], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
