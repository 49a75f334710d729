"""What a report is made of, put where it is kept: many benchmarks in a workspace, long lists with hostile names in a
local validator."""
import contextlib
import math
import sqlite3
import time

HOSTILE = "<script>document.title = 'taken'</script><img src=http://192.0.2.1/x onerror=document.title='taken'>\"'&\u202e"
LENGTHS = [2048, 4096, 16384, 65536, 100000, 200000, 300000, 500000, 1000000]


def add_benchmarks(workspace, head, commits=12, lengths=LENGTHS, each=1):
    """Of some commits, the last of which is the fork's HEAD, getting faster; `each` times at each length."""
    rows = []
    for commit in range(commits):
        name = head if commit == commits - 1 else f"{commit * 7919 + 0x1234567:07x}" * 5 + "abcde"
        for length in lengths:
            for run in range(each):
                speed = 9e5 * (1 + 0.06 * commit + 0.01 * math.sin(7 * commit + run)) * length / (length + 3000)
                rows.append((time.time() - 86400 * (commits - commit) + len(rows), "fork", "", "cuda", 0,
                             "cuda:0 (NVIDIA H200, 139 GiB)", length, 40, speed, 0.02 + 0.01 * (commit % 3), 812.0,
                             name, "0.1.0", 0, 0.004))
    with contextlib.closing(sqlite3.connect(workspace / ".quasar" / "state.db")) as store, store:
        store.executemany(
            "INSERT INTO benchmark (at, code, semantics, device_kind, device_index, device_name, seq, runs,"
            " tokens_per_sec, spread, memory_mb, fork_commit, version, dirty, noise)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
    return len(rows)


def fill_validator(server, count=250):
    """Gives a local validator a completed round, and an active one; so many submissions in all."""
    port = server.port
    server.stop()
    insert_rounds(server.db, count)
    server.start("--port", str(port))


def insert_rounds(database, count):
    now = time.time()
    with contextlib.closing(sqlite3.connect(database)) as store, store:
        store.execute("INSERT INTO round (id, network, round_number, start_time, end_time, status, winner_hotkey)"
                      " VALUES (1, 'finney', 1, ?, ?, 'completed', ?)", (now - 200000, now - 30000, HOSTILE))
        store.execute("INSERT INTO round (id, network, round_number, start_time, end_time, status)"
                      " VALUES (2, 'finney', 2, ?, ?, 'active')", (now - 30000, now + 142800))
        for i in range(count):
            hotkey = HOSTILE if i in (3, 249) else "5" + f"{i:03d}" + "FWzDkVpzYpbJqcPxHDkLTiNEkJsP9YhB7CwWm9Rkq7u"
            store.execute(
                "INSERT INTO submission (miner_hotkey, round_id, address, created_at, target_sequence_length,"
                " signature, fork_url, commit_hash, tokens_per_sec, revealed, validated, score, logits_passed)"
                " VALUES (?, ?, '127.0.0.1', ?, ?, 's', ?, 'c0ffee', ?, ?, ?, ?, ?)",
                (hotkey, 1 if i < 6 else 2, now - 30000 + i, [300000, 1000000][i % 2], HOSTILE, 50000 + 137.0 * i,
                 i % 10 != 9, i % 3 > 0, 1.0, [None, 1, 1, 0][i % 4]))
        store.execute("UPDATE round SET winner_submission_id = 1 WHERE id = 1")
