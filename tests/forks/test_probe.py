"""lib/probe/probe.py, which times forks as validators do, called directly."""
import json
import shutil
import subprocess
import sys

from conftest import ROOT

PLACES = """
import json, runpy
room = runpy.run_path("probe.py")["time_calls"].__globals__  # there are no requests: it only defines what it can do
room["start_torch"]({"gpu": False})
import torch
places, values, between = [], [], []

def call(x):
    places.append(x.data_ptr())
    values.append(x[0, 0, 0].item())
    return x + 1

room.update(call=call, say=lambda answer: None)
for _ in range(3):
    room["time_calls"]({"inputs": [], "tokens": 64, "warmups": 1, "rounds": 1, "calls": 2, "seconds": 9, "rest": 0,
                        "outputs": None})
    between += [torch.empty(1, 64, 512) for _ in range(8)]  # would lie where x was
json.dump([len(set(places)), len(set(values)), len(values)], open("said.json", "w"))
"""


def test_x_stays_at_its_address_with_other_numbers(tmp_path):
    shutil.copy(ROOT / "lib/probe/probe.py", tmp_path)
    subprocess.run([sys.executable, "-c", PLACES], cwd=tmp_path, stdin=subprocess.DEVNULL, check=True)
    assert json.loads((tmp_path / "said.json").read_text()) == [1, 3, 9]


AWAKE = """
import json, runpy, time
room = runpy.run_path("probe.py")["time_calls"].__globals__
room["start_torch"]({"gpu": False})
reads, called = iter(range(10**9)), []
room["kept"].clock = lambda: next(reads) / 100
time.sleep = None  # may not be called
room.update(call=lambda x: called.append(next(reads)) or x + 1, say=lambda answer: None)
room["time_calls"]({"inputs": [], "tokens": 8, "warmups": 1, "rounds": 1, "calls": 1, "seconds": 9, "rest": 2, "outputs": None})
json.dump(called, open("said.json", "w"))
"""


def test_the_host_stays_awake_while_the_gpu_rests(tmp_path):
    shutil.copy(ROOT / "lib/probe/probe.py", tmp_path)
    subprocess.run([sys.executable, "-c", AWAKE], cwd=tmp_path, stdin=subprocess.DEVNULL, check=True)
    first, second = json.loads((tmp_path / "said.json").read_text())
    assert first > 200 and second == first + 1
