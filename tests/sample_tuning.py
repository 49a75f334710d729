"""Results of tuning, as `quasar tune` stores and exchanges them."""
import contextlib
import hashlib
import json
import re
import sqlite3

from conftest import ROOT


def source_hash():
    """Of the kernel and its headers, as the program makes it: in the order of lib/gpu/compile.c."""
    headers = re.search(r"#define HEADERS\(_\)(.*?)\n\n", (ROOT / "lib/gpu/compile.c").read_text(), re.S)[1]
    paths = ["quasar/chunk.cu", *re.findall(r'"(.*?)"', headers)]
    return hashlib.blake2b(b"".join((ROOT / "kernels" / path).read_bytes() + b"\0" for path in paths),
                           digest_size=32).hexdigest()


def parameters(stages=1, blocks=2):
    return f"CHUNK=64 NUM_STAGES={stages} MIN_BLOCKS={blocks} PRODUCT_WARPS=4 NUM_LAUNCHES=3 GROUPS=33"


def result(**changes):
    return {"when": "2026-11-22T08:00:00.000000", "device": "NVIDIA H200", "driver": "580.159", "capability": 90,
            "kernel": "quasar_chunk", "source": source_hash(), "function": "upstream", "dtype": "bf16", "sequences": 8,
            "key_dim": 64, "value_dim": 64, "length": 16, "ms": 0.25, "noise": 0.01, "usual_ms": 0.3,
            "parameters": parameters(), "registers": 128, "shared_bytes": 65536, "spills": 0, "occupancy": 0.5,
            "limited_by": "registers", "tried": 12, "failed": 1, "complete": True, "version": "0.1.0", **changes}


def bring_tunings(quasar, folder, *results):
    """Has them imported."""
    path = folder / "results.json"
    path.write_text(json.dumps({"format": "quasar tuning results", "version": 1, "results": results}))
    done = quasar("tune", "--import", path)
    assert done.code == 0, done.err
    return done


def add_trials(home):
    """For the one result that the store has, what was tried until it was found."""
    with contextlib.closing(sqlite3.connect(home / ".cache/quasar/tuning.db")) as database, database:
        database.executemany("INSERT INTO trial SELECT id, ?, ?, ?, 0.02, '' FROM tuning",
                             [(parameters(stages, blocks), "failed" if stages == 9 else "timed",
                               0.25 + 0.03 * abs(stages - 2) + 0.01 * blocks)
                              for stages in (1, 2, 3, 9) for blocks in (1, 2, 3)])
