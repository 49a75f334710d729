"""The deployed validator's own code, from a checkout of its repository; see docs/deployed-validator.md.

    build/venv-deployed/bin/python tests/peer/deployed_server.py CHECKOUT --port 0 --blocks-until-reveal 5 --block-time 0.2

It is run as it is but for the block clock of February, which a test cannot wait for. The first line on stdout is a JSON document that
says where it listens; what it prints itself goes to stderr."""
import argparse
import contextlib
import json
import os
import socket
import sys
import time

import uvicorn

GENESIS = 1609459200


def speed_up(app, seconds):
    app.BLOCK_TIME_SECONDS = seconds
    app.get_current_block = lambda: int((time.time() - GENESIS) // seconds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkout")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--blocks-until-reveal", type=int, default=100)
    parser.add_argument("--block-time", type=float, default=12.0)
    parser.add_argument("--db", default=os.path.abspath("validator.db"))
    parser.add_argument("--like", choices=["2026-02", "2026-04"], default="2026-02")
    # of 2026-04
    parser.add_argument("--cooldown", type=float, default=300.0)
    parser.add_argument("--validator-hotkeys", default="")
    parser.add_argument("--api-keys", default="")
    options = parser.parse_args()
    os.environ.update({"BLOCKS_UNTIL_REVEAL": str(options.blocks_until_reveal), "DATABASE_URL": f"sqlite:///{options.db}",
                       "SUBMISSION_COOLDOWN_SECONDS": f"{options.cooldown:.0f}",
                       "VALIDATOR_HOTKEYS": options.validator_hotkeys, "API_KEYS": options.api_keys})
    sys.path.insert(0, options.checkout)
    announcement = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        from validator_api import app
        if options.block_time != 12 and options.like == "2026-02":
            speed_up(app, options.block_time)
        listening = socket.create_server(("127.0.0.1", options.port))
        port = listening.getsockname()[1]
        print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port, "db": options.db, "pid": os.getpid()}),
              file=announcement, flush=True)
        uvicorn.Server(uvicorn.Config(app.app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
