"""The validator's API as its protocol describes it, faults of the version deployed in February 2026 included, on FastAPI
and in memory: a second opinion that shares nothing with `quasar localnet`. Signatures are checked by bittensor-wallet.
With --like 2026-04 it is april_server.py, the version of April 2026.

    python tests/peer/api_server.py --port 0 --blocks-until-reveal 5 --block-time 0.2

The first line on stdout is a JSON document that says where it listens."""
import argparse
import datetime
import hashlib
import importlib
import json
import socket
import time
from typing import Optional

import uvicorn
from bittensor_wallet import Keypair
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.middleware.cors import CORSMiddleware
from pydantic import BaseModel

GENESIS = 1609459200
LEAGUES = [("100k", 0, 0.5), ("200k", 200_000, 0.75), ("300k", 300_000, 1.0), ("400k", 400_000, 1.25),
           ("500k", 500_000, 1.5), ("600k", 600_000, 1.75), ("700k", 700_000, 2.0), ("800k", 800_000, 2.25),
           ("900k", 900_000, 2.5), ("1M", 1_000_000, 3.0)]
SHARES = [0.60, 0.25, 0.10, 0.05]
FAILURES_TO_BAN, BAN_SECONDS = 5, 24 * 3600

Benchmarks = dict[str, dict[str, float]]


class Registration(BaseModel):
    hotkey: str
    model_name: str
    league: str


class Claim(BaseModel):
    miner_hotkey: str
    fork_url: str
    commit_hash: str
    tokens_per_sec: float
    vram_mb: Optional[float] = None
    benchmarks: Optional[Benchmarks] = None
    signature: str


class Kernel(Claim):
    target_sequence_length: int
    repo_hash: Optional[str] = None


class Commitment(BaseModel):
    miner_hotkey: str
    commitment_hash: str
    target_sequence_length: int
    signature: str


class Revelation(Claim):
    submission_id: int
    commitment_salt: str
    docker_image: Optional[str] = None


class NewRound(BaseModel):
    duration_hours: int = 48
    baseline_submission_id: Optional[int] = None


def check_storable(*values):
    """What SQLite and UTF-8 do not take makes the server fail."""
    for value in values:
        if isinstance(value, int) and not -2**63 <= value < 2**63:
            raise HTTPException(500, "Python int too large to convert to SQLite INTEGER")
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as fault:
                raise HTTPException(500, str(fault))


class Submission:
    """A row; what a commitment does not tell yet is None."""

    def __init__(self, id, round, hotkey, length, address):
        self.id, self.round, self.miner_hotkey = id, round, hotkey
        self.target_sequence_length, self.address = length, address
        self.created_at = now()
        self.tokens_per_sec, self.is_revealed, self.validated = 0.0, True, False
        self.score = self.passed = self.cosine = self.difference = None
        self.fork_url = self.commit_hash = self.repo_hash = self.vram_mb = self.benchmarks = None
        self.commitment_hash = self.reveal_block = None

    def fill(self, claim):
        for name in ("fork_url", "commit_hash", "tokens_per_sec", "vram_mb", "benchmarks"):
            setattr(self, name, getattr(claim, name))
        self.benchmarks = self.benchmarks or None

    @property
    def weighted(self):
        multiplier = [m for _, least, m in LEAGUES if self.target_sequence_length >= least][-1]
        return self.tokens_per_sec * multiplier

    def tell(self, *names):
        return {name: iso(self.created_at) if name == "created_at" else getattr(self, name) for name in names}


class Round:
    def __init__(self, number, hours=48, baseline=None):
        self.id = self.number = number
        self.begin, self.end = now(), now() + datetime.timedelta(hours=hours)
        self.status, self.baseline, self.winner = "active", baseline, None
        self.best = None  # the winner's submission


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)


def iso(when):
    return when.isoformat()


class State:
    def __init__(self, options):
        self.options = options
        self.miners, self.submissions, self.rounds = {}, [], []
        self.failures, self.banned_until = {}, {}

    def block(self):
        return int((time.time() - GENESIS) // self.options.block_time)

    def round(self):
        if not self.rounds or self.rounds[-1].status != "active":
            self.rounds.append(Round(len(self.rounds) + 1))
        return self.rounds[-1]

    def round_of_submission(self):
        """A submission begins the first round, and no other."""
        if self.rounds and self.rounds[-1].status != "active":
            raise HTTPException(500, "UNIQUE constraint failed: competition_rounds.round_number")
        return self.round()

    def fail(self, address):
        self.failures[address] = self.failures.get(address, 0) + 1
        if self.failures[address] >= FAILURES_TO_BAN:
            self.banned_until[address] = time.time() + BAN_SECONDS

    def add(self, request, hotkey, length):
        address = request.client.host
        if hotkey not in self.miners:
            raise HTTPException(404, "Miner not registered")
        left = self.banned_until.get(address, 0) - time.time()
        if left > 0:
            raise HTTPException(403, f"IP address banned: {left / 3600:.1f} hours left")
        return Submission(len(self.submissions) + 1, None, hotkey, length, address)

    def keep(self, submission):
        submission.round = self.round_of_submission()
        self.submissions.append(submission)

    def find(self, submission_id):
        check_storable(submission_id)
        if not 1 <= submission_id <= len(self.submissions):
            raise HTTPException(404, "Submission not found")
        return self.submissions[submission_id - 1]

    def baseline_before(self, round):
        """What counts for the weights: the previous round's winner, else what had to be beaten there."""
        previous = self.rounds[round.number - 2] if round.number > 1 else None
        return previous and (previous.best or previous.baseline)

    def ranking(self, round, baseline_id):
        known = baseline_id and 1 <= baseline_id <= len(self.submissions)
        baseline = self.submissions[baseline_id - 1].weighted if known else float("-inf")
        entries = [s for s in self.submissions if s.round is round and s.validated and s.is_revealed
                   and s.passed is not False and s.weighted > baseline]
        return sorted(entries, key=lambda s: (-s.weighted, s.created_at, s.id))


app = FastAPI()
app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_credentials=True, allow_methods=["*"], allow_headers=["*"])


async def signer(request: Request):
    """The hotkey that the two headers prove."""
    hotkey, signature = request.headers.get("Hotkey"), request.headers.get("Signature")
    if not hotkey or not signature:
        raise HTTPException(401, "Missing Hotkey or Signature header")
    try:
        valid = Keypair(ss58_address=hotkey).verify(hotkey.encode(), bytes.fromhex(signature))
    except Exception as fault:
        raise HTTPException(401, f"Unusable credentials: {fault}")
    if not valid:
        raise HTTPException(401, "Invalid signature")
    return hotkey


def check_same(hotkey, claimed):
    if hotkey != claimed:
        raise HTTPException(403, "Hotkey mismatch")


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/register_miner")
async def register_miner(body: Registration, hotkey: str = Depends(signer)):
    state = app.state.it
    if body.league not in [name for name, _, _ in LEAGUES]:
        raise HTTPException(400, "Invalid league. Must be one of: " + ", ".join(name for name, _, _ in LEAGUES))
    place = (body.model_name, body.league)
    answer = {"hotkey": hotkey, "model_name": body.model_name, "league": body.league}
    if state.miners.get(hotkey) == place:
        return {"status": "already_registered", **answer, "current_score": 0.0}
    if hotkey in state.miners:
        raise RuntimeError("a hotkey has one row")
    check_storable(*place)
    state.miners[hotkey] = place
    return {"status": "registered", **answer}


@app.post("/submit_kernel")
async def submit_kernel(body: Kernel, request: Request, hotkey: str = Depends(signer)):
    state = app.state.it
    check_same(hotkey, body.miner_hotkey)
    submission = state.add(request, hotkey, body.target_sequence_length)
    submission.fill(body)
    submission.repo_hash = body.repo_hash
    check_storable(*vars(submission).values())
    state.keep(submission)
    return {"submission_id": submission.id, "repo_hash": None,
            **submission.tell("miner_hotkey", "fork_url", "commit_hash", "target_sequence_length", "tokens_per_sec",
                              "vram_mb", "benchmarks", "created_at")}


@app.post("/commit_submission")
async def commit_submission(body: Commitment, request: Request, hotkey: str = Depends(signer)):
    state = app.state.it
    check_same(hotkey, body.miner_hotkey)
    submission = state.add(request, hotkey, body.target_sequence_length)
    if any(s.commitment_hash == body.commitment_hash for s in state.submissions):
        raise HTTPException(409, "Commitment hash already exists. Use a different salt.")
    submission.commitment_hash, submission.is_revealed = body.commitment_hash, False
    submission.reveal_block = state.block() + state.options.blocks_until_reveal
    check_storable(*vars(submission).values())
    state.keep(submission)
    wait = state.options.blocks_until_reveal * state.options.block_time
    return {"submission_id": submission.id, "commitment_hash": body.commitment_hash,
            "reveal_block": submission.reveal_block,
            "estimated_reveal_time": iso(now() + datetime.timedelta(seconds=wait)),
            "message": f"Commitment accepted. Reveal after block {submission.reveal_block}"}


@app.post("/reveal_submission")
async def reveal_submission(body: Revelation, request: Request, hotkey: str = Depends(signer)):
    state = app.state.it
    check_same(hotkey, body.miner_hotkey)
    submission = state.find(body.submission_id)
    if submission.miner_hotkey != hotkey:
        raise HTTPException(404, "Submission not found")
    if submission.is_revealed:
        raise HTTPException(409, "Submission already revealed")
    left = submission.reveal_block - state.block()
    if left > 0:
        minutes = int(left * state.options.block_time // 60)
        raise HTTPException(425, f"Cannot reveal yet. Wait {left} blocks (~{minutes} minutes)")
    check_storable(body.commitment_salt, body.fork_url, body.commit_hash, body.docker_image)
    committed = body.commitment_salt + (body.docker_image or body.fork_url)
    if hashlib.sha256(committed.encode()).hexdigest() != submission.commitment_hash:
        state.fail(request.client.host)
        raise HTTPException(400, "Commitment verification failed. Hash mismatch.")
    submission.fill(body)
    submission.is_revealed = True
    return {"submission_id": submission.id, **submission.tell("miner_hotkey", "fork_url", "commit_hash", "is_revealed"),
            "message": "Submission revealed. Awaiting validation."}


@app.get("/pending_reveals")
async def pending_reveals():
    state = app.state.it
    block = state.block()
    return {"current_block": block, "pending_reveals": [
        {"submission_id": s.id, "miner_hotkey": s.miner_hotkey, "commitment_hash": s.commitment_hash[:16] + "...",
         "reveal_block": s.reveal_block, "blocks_remaining": max(0, s.reveal_block - block),
         "can_reveal": s.reveal_block <= block, "created_at": iso(s.created_at)}
        for s in state.submissions if not s.is_revealed]}


@app.get("/get_submission_stats")
async def get_submission_stats(limit: int = 50):
    state = app.state.it
    check_storable(limit)
    waiting = [s for s in reversed(state.submissions) if not s.validated]
    waiting = waiting[:limit] if limit >= 0 else waiting
    speeds = [s.tokens_per_sec for s in waiting] or [0.0]
    top = sorted(state.submissions, key=lambda s: -s.tokens_per_sec)[:10]
    return {"total_submissions": len(state.submissions),
            "recent_submissions": [
                s.tell("id", "miner_hotkey", "fork_url", "commit_hash", "repo_hash", "target_sequence_length",
                       "tokens_per_sec", "vram_mb", "benchmarks", "validated", "created_at") for s in waiting],
            "stats": {"avg_tokens_per_sec": round(sum(speeds) / len(speeds), 2), "max_tokens_per_sec": max(speeds),
                      "min_tokens_per_sec": min(speeds), "total_submissions": len(state.submissions)},
            "top_performers": [s.tell("id", "miner_hotkey", "tokens_per_sec", "target_sequence_length", "created_at")
                               for s in top]}


def describe(state, round):
    return {"id": round.id, "round_number": round.number, "start_time": iso(round.begin), "end_time": iso(round.end),
            "status": round.status, "time_remaining_seconds": max(0, int((round.end - now()).total_seconds())),
            "baseline_submission_id": round.baseline, "winner_hotkey": round.winner,
            "total_submissions": sum(s.round is round for s in state.submissions)}


@app.get("/get_current_round")
async def get_current_round():
    return describe(app.state.it, app.state.it.round())


@app.post("/create_round")
async def create_round(body: NewRound):
    state = app.state.it
    if state.rounds:
        state.rounds[-1].status = "completed"
    state.rounds.append(Round(len(state.rounds) + 1, body.duration_hours, body.baseline_submission_id))
    raise RuntimeError("a time is no text")


@app.post("/finalize_round/{round_id}")
async def finalize_round(round_id: int):
    state = app.state.it
    check_storable(round_id)
    if not 1 <= round_id <= len(state.rounds):
        raise HTTPException(404, "Round not found")
    round = state.rounds[round_id - 1]
    if round.status != "active":
        raise HTTPException(400, "Round already finalized")
    round.status = "completed"
    if not any(s.round is round and s.validated for s in state.submissions):
        return {"status": round.status, "winners": []}
    ranking = state.ranking(round, round.baseline)
    if ranking:
        round.winner, round.best = ranking[0].miner_hotkey, ranking[0].id
    return {"status": round.status, "round_id": round.id, "winner": round.winner,
            "rankings": [{"rank": rank, "submission_id": s.id, "miner_hotkey": s.miner_hotkey,
                          "weighted_score": s.weighted} for rank, s in enumerate(ranking[:4], 1)]}


@app.get("/get_weights")
async def get_weights(round_id: Optional[int] = None):
    state = app.state.it
    check_storable(round_id)
    done = [r for r in state.rounds if (r.status == "completed" if round_id is None else r.id == round_id)]
    ranking = state.ranking(done[-1], state.baseline_before(done[-1])) if done else []
    return {"epoch": int(time.time()),
            "weights": [{"uid": 0, "hotkey": s.miner_hotkey, "weight": share} for s, share in zip(ranking, SHARES)]}


@app.get("/get_submission_rate")
async def get_submission_rate(window_minutes: int = 10):
    begin = now() - datetime.timedelta(minutes=window_minutes)
    recent = sum(s.created_at >= begin for s in app.state.it.submissions)
    rate = round(recent / window_minutes, 2) if window_minutes > 0 else 0
    return {"submissions_per_minute": rate, "recent_submissions": recent,
            "window_minutes": window_minutes}


@app.post("/record_verification")
async def record_verification(submission_id: int, verified: bool, cosine_similarity: Optional[float] = None,
                              max_abs_diff: Optional[float] = None, throughput: Optional[float] = None,
                              reason: Optional[str] = None):
    submission = app.state.it.find(submission_id)
    submission.passed, submission.cosine, submission.difference = verified, cosine_similarity, max_abs_diff
    return {"status": "recorded", "verified": verified}


@app.get("/verification_stats")
async def verification_stats(round_id: Optional[int] = None):
    entries = [s for s in app.state.it.submissions if s.is_revealed and round_id in (None, s.round.id)]
    passed, failed = (sum(s.passed is verdict for s in entries) for verdict in (True, False))

    def average(values):
        told = [value for value in values if value is not None]
        return sum(told) / len(told) if told else None

    return {"total_submissions": len(entries), "verified_passed": passed, "verified_failed": failed,
            "pending_verification": len(entries) - passed - failed,
            "pass_rate": passed / (passed + failed) if passed + failed else None,
            "avg_cosine_similarity": average(s.cosine for s in entries),
            "avg_max_abs_diff": average(s.difference for s in entries)}


@app.post("/mark_validated")
async def mark_validated(body: dict):
    state = app.state.it
    submission_id, score = body.get("submission_id"), body.get("score")
    if not submission_id:
        raise HTTPException(400, "submission_id required")
    if isinstance(submission_id, (list, dict)):
        raise RuntimeError("no value of a column")
    try:
        number = float(submission_id)
    except ValueError:
        raise HTTPException(404, "Submission not found")
    submission = state.find(int(number) if number == int(number) else 0)
    if score is not None:
        f"{score:.4f}"  # fails for what is no number
        submission.score = float(score)
    submission.validated = True
    state.failures[submission.address] = 0  # whatever the score
    return {"status": "ok", "submission_id": submission_id, "score": submission.score}


@app.post("/record_failure")
async def record_failure(body: dict):
    address = body.get("ip_address")
    if not address:
        return {"status": "ok", "message": "No IP address provided"}
    if isinstance(address, (list, dict)):
        raise RuntimeError("no value of a column")
    check_storable(address)
    app.state.it.fail(address)
    return {"status": "ok", "ip_address": address, "message": "Failure recorded"}


def make(options):
    """The application, with nothing in it yet."""
    app.state.it = State(options)
    return app


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--like", choices=["2026-02", "2026-04"], default="2026-02")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--blocks-until-reveal", type=int, default=100)
    parser.add_argument("--block-time", type=float, default=12.0)
    # of 2026-04
    parser.add_argument("--cooldown", type=float, default=300.0)
    parser.add_argument("--round-time", type=float, default=48 * 3600.0)
    parser.add_argument("--validator-hotkeys", default="")
    parser.add_argument("--api-keys", default="")
    options = parser.parse_args()
    served = make(options) if options.like == "2026-02" else importlib.import_module("april_server").make(options)
    listening = socket.create_server(("127.0.0.1", options.port))
    port = listening.getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port, "like": options.like}), flush=True)
    uvicorn.Server(uvicorn.Config(served, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
