"""The validator's API as its protocol describes it, on FastAPI and in memory: a second opinion that shares
nothing with `quasar localnet`. Signatures are checked by bittensor-wallet.

    python tests/peer/api_server.py --port 0 --blocks-until-reveal 5 --block-time 0.2

The first line on stdout is a JSON document that says where it listens."""
import argparse
import datetime
import hashlib
import json
import socket
import time
from typing import Optional

import uvicorn
from bittensor_wallet import Keypair
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

GENESIS = 1609459200
LEAGUES = [("100k", 0, 0.5), ("200k", 200_000, 0.75), ("300k", 300_000, 1.0), ("400k", 400_000, 1.25),
           ("500k", 500_000, 1.5), ("600k", 600_000, 1.75), ("700k", 700_000, 2.0), ("800k", 800_000, 2.25),
           ("900k", 900_000, 2.5), ("1M", 1_000_000, 3.0)]
SHARES = [0.60, 0.25, 0.10, 0.05]
FAILURES_TO_BAN, BAN_SECONDS = 5, 24 * 3600
RATE_WINDOW = 60.0

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
    duration_hours: float = 48
    baseline_submission_id: Optional[int] = None


class Verdict(BaseModel):
    submission_id: int
    score: float


class Failure(BaseModel):
    ip_address: str


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

    @property
    def weighted(self):
        multiplier = [m for _, least, m in LEAGUES if self.target_sequence_length >= least][-1]
        return self.tokens_per_sec * multiplier

    def tell(self, *names):
        return {name: iso(self.created_at) if name == "created_at" else getattr(self, name) for name in names}


class Round:
    def __init__(self, number, hours, baseline):
        self.id = self.number = number
        self.begin, self.end = now(), now() + datetime.timedelta(hours=hours)
        self.status, self.baseline, self.winner = "active", baseline, None


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)


def iso(when):
    return when.isoformat()


class State:
    def __init__(self, options):
        self.options = options
        self.miners, self.submissions, self.rounds = {}, [], []
        self.failures, self.banned_until, self.seen = {}, {}, {}

    def block(self):
        return int((time.time() - GENESIS) // self.options.block_time)

    def round(self):
        if not self.rounds or self.rounds[-1].status != "active":
            self.rounds.append(Round(len(self.rounds) + 1, 48, self.rounds[-1].baseline if self.rounds else None))
        return self.rounds[-1]

    def fail(self, address):
        self.failures[address] = self.failures.get(address, 0) + 1
        if self.failures[address] >= FAILURES_TO_BAN:
            self.banned_until[address] = time.time() + BAN_SECONDS

    def add(self, request, hotkey, length):
        address = request.client.host
        if hotkey not in {miner for miner, _, _ in self.miners}:
            raise HTTPException(404, "Miner not registered")
        left = self.banned_until.get(address, 0) - time.time()
        if left > 0:
            raise HTTPException(403, f"IP address banned: {left / 3600:.1f} hours left")
        return Submission(len(self.submissions) + 1, self.round(), hotkey, length, address)

    def find(self, submission_id):
        if not 1 <= submission_id <= len(self.submissions):
            raise HTTPException(404, "Submission not found")
        return self.submissions[submission_id - 1]

    def ranking(self, round):
        baseline = self.submissions[round.baseline - 1].weighted if round.baseline else float("-inf")
        entries = [s for s in self.submissions if s.round is round and s.validated and s.is_revealed
                   and s.passed is not False and s.weighted > baseline]
        return sorted(entries, key=lambda s: (-s.weighted, s.created_at, s.id))


app = FastAPI()


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
    state = app.state.it
    recent = [when for when in state.seen.get(hotkey, []) if when > time.monotonic() - RATE_WINDOW]
    if len(recent) >= state.options.rate_limit:
        raise HTTPException(429, "Rate limit exceeded. Max 10 requests per 60 seconds.")
    state.seen[hotkey] = recent + [time.monotonic()]
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
    check_same(hotkey, body.hotkey)
    if body.league not in [name for name, _, _ in LEAGUES]:
        raise HTTPException(400, "Invalid league. Must be one of: " + ", ".join(name for name, _, _ in LEAGUES))
    key = (hotkey, body.model_name, body.league)
    answer = {"hotkey": hotkey, "model_name": body.model_name, "league": body.league}
    if key in state.miners:
        return {"status": "already_registered", **answer, "current_score": state.miners[key]}
    state.miners[key] = 0.0
    return {"status": "registered", **answer}


@app.post("/submit_kernel")
async def submit_kernel(body: Kernel, request: Request, hotkey: str = Depends(signer)):
    state = app.state.it
    check_same(hotkey, body.miner_hotkey)
    submission = state.add(request, hotkey, body.target_sequence_length)
    submission.fill(body)
    submission.repo_hash = body.repo_hash
    state.submissions.append(submission)
    return {"submission_id": submission.id,
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
    state.submissions.append(submission)
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
    waiting = [s for s in reversed(state.submissions) if not s.validated][:limit]
    speeds = [s.tokens_per_sec for s in waiting] or [0.0]
    top = sorted(state.submissions, key=lambda s: -s.tokens_per_sec)[:10]
    return {"total_submissions": len(state.submissions),
            "recent_submissions": [
                s.tell("id", "miner_hotkey", "fork_url", "commit_hash", "repo_hash", "target_sequence_length",
                       "tokens_per_sec", "vram_mb", "benchmarks", "validated", "created_at") for s in waiting],
            "stats": {"avg_tokens_per_sec": sum(speeds) / len(speeds), "max_tokens_per_sec": max(speeds),
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
    return describe(state, state.rounds[-1])


@app.post("/finalize_round/{round_id}")
async def finalize_round(round_id: int):
    state = app.state.it
    if not 1 <= round_id <= len(state.rounds):
        raise HTTPException(404, "Round not found")
    round = state.rounds[round_id - 1]
    if round.status != "active":
        raise HTTPException(400, "Round already finalized")
    ranking = state.ranking(round)
    round.status = "completed"
    following = Round(len(state.rounds) + 1, 48, ranking[0].id if ranking else round.baseline)
    round.winner = ranking[0].miner_hotkey if ranking else None
    state.rounds.append(following)
    return {"status": round.status, "round_id": round.id, "winner": round.winner,
            "rankings": [{"rank": rank, "submission_id": s.id, "miner_hotkey": s.miner_hotkey,
                          "weighted_score": s.weighted} for rank, s in enumerate(ranking[:4], 1)]}


@app.get("/get_weights")
async def get_weights(round_id: Optional[int] = None):
    state = app.state.it
    done = [r for r in state.rounds if r.status == "completed" and round_id in (None, r.id)]
    ranking = state.ranking(done[-1]) if done else []
    return {"epoch": int(time.time()),
            "weights": [{"uid": 0, "hotkey": s.miner_hotkey, "weight": share} for s, share in zip(ranking, SHARES)]}


@app.get("/get_submission_rate")
async def get_submission_rate(window_minutes: int = 10):
    begin = now() - datetime.timedelta(minutes=window_minutes)
    recent = sum(s.created_at >= begin for s in app.state.it.submissions)
    return {"submissions_per_minute": recent / window_minutes, "recent_submissions": recent,
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
    cosines = [s.cosine for s in entries if s.cosine is not None]
    return {"total_submissions": len(entries), "verified_passed": passed, "verified_failed": failed,
            "pass_rate": passed / (passed + failed) if passed + failed else None,
            "avg_cosine_similarity": sum(cosines) / len(cosines) if cosines else None}


@app.post("/mark_validated")
async def mark_validated(body: Verdict):
    submission = app.state.it.find(body.submission_id)
    submission.validated, submission.score = True, body.score
    return {"status": "ok", "submission_id": submission.id, "score": body.score}


@app.post("/record_failure")
async def record_failure(body: Failure):
    app.state.it.fail(body.ip_address)
    return {"status": "ok"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--blocks-until-reveal", type=int, default=100)
    parser.add_argument("--block-time", type=float, default=12.0)
    parser.add_argument("--rate-limit", type=int, default=10)
    app.state.it = State(parser.parse_args())
    listening = socket.create_server(("127.0.0.1", app.state.it.options.port))
    port = listening.getsockname()[1]
    print(json.dumps({"url": f"http://127.0.0.1:{port}", "port": port}), flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


if __name__ == "__main__":
    main()
