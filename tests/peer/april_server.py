"""The validator's API in its version of April 2026, as the description of that version has it: what differs from
api_server.py, on an application of its own. Started by `api_server.py --like 2026-04`."""
import datetime
import hashlib
import ipaddress
import json
import math
import re
import time
from typing import Annotated, Optional

from bittensor_wallet import Keypair
from fastapi import Depends, FastAPI, Header, HTTPException, Query, Request
from fastapi.middleware.cors import CORSMiddleware
from pydantic import BaseModel, Field

import api_server
from api_server import LEAGUES, SHARES, check_same, check_storable, iso, now

GENESIS = 1687939200
SIGNATURE_SECONDS = 120
LEAST, MOST = 10, 50_000_000
OVERCLAIM = 1000


class Registration(api_server.Registration):
    model_name: str = Field(max_length=128)
    uid: int = 0
    network: Optional[str] = None


class Kernel(api_server.Kernel):
    docker_image: Optional[str] = None
    network: Optional[str] = None


class Commitment(api_server.Commitment):
    network: Optional[str] = None


class NewRound(BaseModel):
    duration_hours: Optional[int] = None
    baseline_submission_id: Optional[int] = None
    network: Optional[str] = None


class Judgement(BaseModel):
    submission_id: int
    score: float
    actual_tokens_per_sec: Optional[float] = None
    verified: Optional[bool] = None
    cosine_similarity: Optional[float] = None
    max_abs_diff: Optional[float] = None
    throughput: Optional[float] = None
    reason: Optional[str] = None


class Sync(BaseModel):
    uid_map: dict[str, int]
    coldkey_map: Optional[dict[str, str]] = None
    network: Optional[str] = None


class Flag(BaseModel):
    hotkey: str
    reason: Optional[str] = None
    flag: bool = True


class Miner:
    """A hotkey in a network."""

    def __init__(self, hotkey, network, uid, place=None):
        self.hotkey, self.network, self.uid, self.place = hotkey, network, uid, place
        self.github = self.address = self.coldkey = self.flag = None


def network_of(name):
    return "test" if name == "test" else "finney"


class State(api_server.State):
    """Miners by hotkey and network; rounds know their network."""

    def __init__(self, options):
        super().__init__(options)
        self.validators = [hotkey for hotkey in options.validator_hotkeys.split(",") if hotkey]
        self.keys = [key.partition(":")[0] for key in options.api_keys.split(",") if key]

    def block(self):
        return int((time.time() - GENESIS) // self.options.block_time)

    def rounds_of(self, network):
        return [round for round in self.rounds if round.network == network]

    def begin(self, network, hours, baseline=None):
        round = api_server.Round(len(self.rounds_of(network)) + 1, hours, baseline)
        round.id, round.network = len(self.rounds) + 1, network
        self.rounds.append(round)
        return round

    def round(self, network):
        known = self.rounds_of(network)
        if known and known[-1].status == "active":
            if now() < known[-1].end:
                return known[-1]
            self.finish(known[-1])
        return self.begin(network, self.options.round_time / 3600)

    def flag_of(self, hotkey):
        return next((miner.flag for (name, _), miner in self.miners.items() if name == hotkey and miner.flag), None)

    def check_flag(self, hotkey):
        if reason := self.flag_of(hotkey):
            raise HTTPException(403, f"Miner flagged: {reason}")

    def check_cooldown(self, hotkey, network):
        for submission in reversed(self.submissions):
            if submission.miner_hotkey == hotkey and submission.round.network == network:
                left = self.options.cooldown - (now() - submission.created_at).total_seconds()
                if left > 0:
                    raise HTTPException(429, f"Rate limit exceeded. Please wait {math.ceil(left)} seconds before "
                                             "submitting again.")
                return

    def check_ban(self, address):
        left = self.banned_until.get(address, 0) - time.time()
        if left > 0:
            raise HTTPException(403, f"IP address banned: {left / 3600:.1f} hours left")

    def shared(self, name, miner):
        value = getattr(miner, name)
        return value and any(getattr(other, name) == value for other in self.miners.values()
                             if other.hotkey != miner.hotkey)

    def check_github(self, miner, fork_url):
        match = re.match(r"https?://github\.com/([^/]+)/", fork_url)
        if not match:
            return
        before, miner.github = miner.github, match[1]
        if self.shared("github", miner):
            taken, miner.github = miner.github, before
            raise HTTPException(403, f"GitHub name {taken} is taken by another hotkey")

    def check_person(self, miner, address=None):
        if address:
            try:
                if ipaddress.ip_address(address).is_global:
                    miner.address = address
            except ValueError:
                pass
        for name in ("address", "coldkey"):
            if (name != "address" or address) and self.shared(name, miner):
                raise HTTPException(403, f"The {name} is taken by another hotkey")

    def enter(self, request, hotkey, network, uid, fork_url=None):
        """The miner that submits or commits, which is made if there is none."""
        address = address_of(request)
        self.check_flag(hotkey)
        self.check_ban(address)
        self.check_cooldown(hotkey, network)
        miner = self.miners.setdefault((hotkey, network), Miner(hotkey, network, uid))
        try:
            if fork_url:
                self.check_github(miner, fork_url)
            self.check_person(miner, address if fork_url else None)
        except HTTPException as refusal:
            miner.flag = refusal.detail
            raise
        return miner

    def make(self, request, hotkey, network, length):
        submission = api_server.Submission(len(self.submissions) + 1, self.round(network), hotkey, length,
                                           address_of(request))
        submission.docker_image = submission.measured = None
        return submission

    def ranking(self, round):
        before = [other for other in self.rounds_of(round.network) if other.number == round.number - 1]
        baseline = weighted(before[0].best) if before and before[0].best else float("-inf")
        entries = [s for s in self.submissions if s.round is round and s.validated and s.passed is True
                   and s.measured is not None and not self.flag_of(s.miner_hotkey) and weighted(s) > baseline]
        return sorted(entries, key=lambda s: (-weighted(s), s.created_at, s.id))

    def finish(self, round):
        ranking = self.ranking(round)
        round.status = "completed"
        round.best = ranking[0] if ranking else None
        round.winner = round.best and round.best.miner_hotkey
        return {"status": round.status, "round_id": round.id, "winner": round.winner,
                "rankings": [{"rank": rank, "submission_id": s.id, "miner_hotkey": s.miner_hotkey,
                              "weighted_score": weighted(s)} for rank, s in enumerate(ranking[:4], 1)]}

    def find_round(self, round_id):
        check_storable(round_id)
        if not 1 <= round_id <= len(self.rounds):
            raise HTTPException(404, "Round not found")
        return self.rounds[round_id - 1]


def weighted(submission):
    return submission.measured * [m for _, least, m in LEAGUES if submission.target_sequence_length >= least][-1]


def address_of(request):
    forwarded = request.headers.get("X-Forwarded-For", "").split(",")[0].strip()
    return forwarded or request.headers.get("X-Real-IP") or request.client.host


def check_speed(speed, plausible):
    if not speed > 0:
        raise HTTPException(400, "tokens_per_sec must be a positive number.")
    if plausible and not LEAST <= speed <= MOST:
        raise HTTPException(400, f"tokens_per_sec {speed} outside plausible range ({LEAST} to {MOST}).")


app = FastAPI()
app.add_middleware(CORSMiddleware, allow_origins=["*"], allow_credentials=True, allow_methods=["*"], allow_headers=["*"])


async def signer(request: Request):
    hotkey, signature = request.headers.get("Hotkey"), request.headers.get("Signature")
    if not hotkey or not signature:
        raise HTTPException(401, "Missing Hotkey or Signature headers")
    message = hotkey
    if when := request.headers.get("Timestamp"):
        if not re.fullmatch("[+-]?[0-9]+", when):
            raise HTTPException(401, "Invalid Timestamp")
        age = abs(int(time.time()) - int(when))
        if age > SIGNATURE_SECONDS:
            raise HTTPException(401, f"Signature expired ({age}s old, max {SIGNATURE_SECONDS}s)")
        message += ":" + when
    try:
        valid = Keypair(ss58_address=hotkey).verify(message.encode(), bytes.fromhex(signature.removeprefix("0x")))
    except Exception as fault:
        raise HTTPException(401, f"Unusable credentials: {fault}")
    if not valid:
        raise HTTPException(401, "Invalid signature")
    return hotkey


async def validator(hotkey: str = Depends(signer)):
    if not app.state.it.validators:
        raise HTTPException(503, "No validator hotkeys are configured")
    if hotkey not in app.state.it.validators:
        raise HTTPException(403, "Hotkey is not an authorized validator. Ask the subnet's owner.")
    return hotkey


async def reader(request: Request, x_api_key: Annotated[Optional[str], Header()] = None):
    given = [x_api_key, re.sub("(?i)^bearer ", "", request.headers.get("Authorization", ""))]
    if any(key in app.state.it.keys for key in given if key):
        return
    try:
        await validator(await signer(request))
    except HTTPException:
        raise HTTPException(401, "An API key or a validator's signature is needed")


for_validators, for_readers = [Depends(validator)], [Depends(reader)]


@app.get("/health")
async def health():
    return {"status": "ok"}


@app.post("/register_miner")
async def register_miner(body: Registration, hotkey: str = Depends(signer)):
    state, network = app.state.it, network_of(body.network)
    state.check_flag(hotkey)
    if body.league not in [name for name, _, _ in LEAGUES]:
        raise HTTPException(400, "Invalid league. Must be one of: " + ", ".join(name for name, _, _ in LEAGUES))
    check_storable(body.model_name, body.uid)
    miner, place = state.miners.get((hotkey, network)), (body.model_name, body.league)
    if miner and miner.place != place:
        raise RuntimeError("a hotkey has one row in a network")
    answer = {"hotkey": hotkey, "model_name": body.model_name, "league": body.league, "network": network}
    if miner:
        return {"status": "already_registered", **answer, "uid": miner.uid, "current_score": 0.0}
    state.miners[hotkey, network] = Miner(hotkey, network, body.uid, place)
    return {"status": "registered", **answer, "uid": body.uid}


@app.post("/submit_kernel")
async def submit_kernel(body: Kernel, request: Request, hotkey: str = Depends(signer)):
    state, network = app.state.it, network_of(body.network)
    check_same(hotkey, body.miner_hotkey)
    check_storable(body.fork_url, body.commit_hash, body.docker_image, body.repo_hash, body.target_sequence_length)
    state.check_flag(hotkey)
    state.check_cooldown(hotkey, network)
    check_speed(body.tokens_per_sec, True)
    state.enter(request, hotkey, network, -1, body.fork_url)
    submission = state.make(request, hotkey, network, body.target_sequence_length)
    submission.fill(body)
    submission.repo_hash, submission.docker_image = body.repo_hash, body.docker_image
    state.submissions.append(submission)
    state.failures[submission.address] = 0
    return {"submission_id": submission.id, "repo_hash": None,
            **submission.tell("miner_hotkey", "fork_url", "commit_hash", "target_sequence_length", "tokens_per_sec",
                              "vram_mb", "benchmarks", "docker_image", "created_at")}


@app.post("/commit_submission")
async def commit_submission(body: Commitment, request: Request, hotkey: str = Depends(signer)):
    state, network = app.state.it, network_of(body.network)
    check_same(hotkey, body.miner_hotkey)
    check_storable(body.commitment_hash, body.target_sequence_length)
    state.enter(request, hotkey, network, 0)
    if any(s.commitment_hash == body.commitment_hash for s in state.submissions):
        raise HTTPException(409, "Commitment hash already exists. Use a different salt.")
    submission = state.make(request, hotkey, network, body.target_sequence_length)
    submission.commitment_hash, submission.is_revealed = body.commitment_hash, False
    submission.reveal_block = state.block() + state.options.blocks_until_reveal
    state.submissions.append(submission)
    wait = state.options.blocks_until_reveal * state.options.block_time
    return {"submission_id": submission.id, "commitment_hash": body.commitment_hash,
            "reveal_block": submission.reveal_block,
            "estimated_reveal_time": iso(now() + datetime.timedelta(seconds=wait)),
            "message": f"Commitment accepted. Reveal after block {submission.reveal_block}"}


@app.post("/reveal_submission")
async def reveal_submission(body: api_server.Revelation, request: Request, hotkey: str = Depends(signer)):
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
        state.fail(address_of(request))
        raise HTTPException(400, "Commitment verification failed. Hash mismatch.")
    network = submission.round.network
    state.check_github(state.miners.get((hotkey, network), Miner(hotkey, network, 0)), body.fork_url)
    check_speed(body.tokens_per_sec, False)
    submission.fill(body)
    submission.docker_image, submission.is_revealed = body.docker_image, True
    return {"submission_id": submission.id, **submission.tell("miner_hotkey", "fork_url", "commit_hash", "is_revealed"),
            "message": "Submission revealed. Awaiting validation."}


@app.get("/get_submission_stats", dependencies=for_validators)
async def get_submission_stats(limit: int = Query(50, ge=1, le=200)):
    state = app.state.it
    waiting = [s for s in reversed(state.submissions) if not s.validated][:limit]
    speeds = [s.tokens_per_sec for s in waiting] or [0.0]
    top = sorted(state.submissions, key=lambda s: -s.tokens_per_sec)[:10]
    return {"total_submissions": len(state.submissions),
            "recent_submissions": [
                {**s.tell("id", "miner_hotkey", "repo_hash", "target_sequence_length", "tokens_per_sec", "vram_mb",
                          "benchmarks", "validated", "created_at"), "fork_url": "[HIDDEN]", "commit_hash": "[HIDDEN]"}
                for s in waiting],
            "stats": {"avg_tokens_per_sec": round(sum(speeds) / len(speeds), 2), "max_tokens_per_sec": max(speeds),
                      "min_tokens_per_sec": min(speeds), "total_submissions": len(state.submissions)},
            "top_performers": [s.tell("id", "miner_hotkey", "tokens_per_sec", "target_sequence_length", "created_at")
                               for s in top]}


@app.get("/get_pending_validations", dependencies=for_validators)
async def get_pending_validations(limit: int = Query(10, ge=1, le=100), network: Optional[str] = None):
    state = app.state.it
    waiting = sorted((s for s in state.submissions if s.is_revealed and not s.validated
                      and s.round.network == network_of(network) and not state.flag_of(s.miner_hotkey)),
                     key=lambda s: (s.created_at, s.id))
    return {"pending_count": len(waiting[:limit]), "total_pending": len(waiting), "submissions": [
        {**s.tell("id", "miner_hotkey", "fork_url", "commit_hash", "repo_hash", "docker_image", "target_sequence_length",
                  "tokens_per_sec", "vram_mb", "created_at"), "round_id": s.round.id,
         "benchmarks": s.benchmarks and json.dumps(s.benchmarks)} for s in waiting[:limit]]}


@app.post("/mark_validated_with_verification", dependencies=for_validators)
async def mark_validated_with_verification(body: Judgement):
    state = app.state.it
    submission = state.find(body.submission_id)
    if not submission.is_revealed:
        raise HTTPException(409, "Submission has not been revealed")
    measured = body.actual_tokens_per_sec or None
    if measured is not None and not LEAST <= measured <= MOST:
        raise HTTPException(400, f"actual_tokens_per_sec {measured} outside plausible range")
    submission.validated, submission.score, submission.measured = True, min(1.0, max(0.0, body.score)), measured
    submission.passed, submission.cosine, submission.difference = body.verified, body.cosine_similarity, body.max_abs_diff
    state.failures[submission.address] = 0
    excess = submission.tokens_per_sec - measured if measured else 0
    flagged = excess > submission.tokens_per_sec / 2 and excess > OVERCLAIM
    if flagged:
        for (hotkey, _), miner in state.miners.items():
            if hotkey == submission.miner_hotkey:
                miner.flag = miner.flag or f"claimed {submission.tokens_per_sec}, measured {measured}"
    return {"status": "ok", "submission_id": submission.id, "score": submission.score, "verified": submission.passed,
            "validated_tokens_per_sec": measured, "flagged": flagged}


@app.post("/sync_uids", dependencies=for_validators)
async def sync_uids(body: Sync):
    state, network = app.state.it, network_of(body.network)
    gone = [key for key in state.miners if key[1] == network and key[0] not in body.uid_map]
    for key in gone:
        del state.miners[key]
    for hotkey, uid in body.uid_map.items():
        miner = state.miners.setdefault((hotkey, network), Miner(hotkey, network, uid))
        miner.uid, miner.coldkey = uid, (body.coldkey_map or {}).get(hotkey, miner.coldkey)
    return {"status": "ok", "network": network, "updated": len(body.uid_map), "deleted": len(gone)}


@app.get("/flagged_miners", dependencies=for_validators)
async def flagged_miners():
    flagged = [miner for _, miner in sorted(app.state.it.miners.items()) if miner.flag]
    return {"count": len(flagged), "flagged_miners": [
        {"hotkey": miner.hotkey, "network": miner.network, "uid": miner.uid, "github_username": miner.github,
         "reason": miner.flag} for miner in flagged]}


@app.post("/flag_miner", dependencies=for_validators)
async def flag_miner(body: Flag):
    rows = [miner for (hotkey, _), miner in app.state.it.miners.items() if hotkey == body.hotkey]
    if not rows:
        raise HTTPException(404, "Miner not found")
    for miner in rows:
        miner.flag = (body.reason or "flagged by a validator") if body.flag else None
    return {"status": "ok", "hotkey": body.hotkey, "flagged": body.flag}


@app.get("/get_current_round", dependencies=for_validators)
async def get_current_round(network: Optional[str] = None):
    return api_server.describe(app.state.it, app.state.it.round(network_of(network)))


@app.get("/get_completed_rounds", dependencies=for_validators)
async def get_completed_rounds(limit: int = Query(10, ge=1, le=200), network: Optional[str] = None):
    state = app.state.it
    done = [r for r in reversed(state.rounds_of(network_of(network))) if r.status == "completed"]
    return {"rounds": [api_server.describe(state, round) for round in done[:limit]]}


@app.post("/create_round", dependencies=for_validators)
async def create_round(body: NewRound):
    state, network = app.state.it, network_of(body.network)
    for round in state.rounds_of(network):
        round.status = "completed"
    hours = state.options.round_time / 3600 if body.duration_hours is None else body.duration_hours
    return api_server.describe(state, state.begin(network, hours, body.baseline_submission_id))


@app.post("/finalize_round/{round_id}", dependencies=for_validators)
async def finalize_round(round_id: int):
    round = app.state.it.find_round(round_id)
    if round.status != "active":
        raise HTTPException(400, "Round already finalized")
    if now() < round.end:
        raise HTTPException(400, "Round has not ended")
    return app.state.it.finish(round)


@app.post("/refinalize_round/{round_id}", dependencies=for_validators)
async def refinalize_round(round_id: int):
    round = app.state.it.find_round(round_id)
    if round.status == "active":
        raise HTTPException(400, "Round is not completed")
    return app.state.it.finish(round)


@app.get("/get_weights", dependencies=for_validators)
async def get_weights(round_id: Optional[int] = None, network: Optional[str] = None, completed_only: bool = False):
    state = app.state.it
    check_storable(round_id)
    if round_id is None:
        known = state.rounds_of(network_of(network))
        chosen = [r for r in known if r.status == "completed"] or ([] if completed_only else known)
    else:
        chosen = [r for r in state.rounds if r.id == round_id]
    round = chosen[-1] if chosen else None
    ranking = state.ranking(round) if round else []

    def entry(s, share):
        miner = state.miners.get((s.miner_hotkey, round.network), Miner(s.miner_hotkey, round.network, 0))
        return {"uid": miner.uid, "hotkey": s.miner_hotkey, "weight": share, "tokens_per_sec": s.measured,
                "github_username": miner.github}

    return {"epoch": int(time.time()), "round_id": round and round.id, "round_number": round and round.number,
            "round_status": round and round.status, "winner_hotkey": round and round.winner,
            "weights": [entry(s, share) for s, share in zip(ranking, SHARES)]}


@app.get("/dashboard/overview", dependencies=for_readers)
async def overview(network: Optional[str] = None):
    state, network = app.state.it, network_of(network)
    own = [s for s in state.submissions if s.round.network == network]
    miners = [miner for (_, name), miner in state.miners.items() if name == network]
    return {"network": network, "total_miners": len(miners), "flagged_miners": sum(bool(m.flag) for m in miners),
            "total_submissions": len(own), "unrevealed_submissions": sum(not s.is_revealed for s in own),
            "validated_submissions": sum(s.validated for s in own),
            "completed_rounds": sum(r.status == "completed" for r in state.rounds_of(network))}


@app.get("/dashboard/miner/{hotkey}", dependencies=for_readers)
async def dashboard_miner(hotkey: str, network: Optional[str] = None):
    state, network = app.state.it, network_of(network)
    miner = state.miners.get((hotkey, network))
    if not miner:
        raise HTTPException(404, "Miner not found")
    own = [s for s in reversed(state.submissions) if s.miner_hotkey == hotkey and s.round.network == network]
    return {"hotkey": hotkey, "network": network, "uid": miner.uid, "github_username": miner.github,
            "is_flagged": bool(miner.flag), "flag_reason": miner.flag, "submissions": [
                {**s.tell("id", "target_sequence_length", "tokens_per_sec", "score", "is_revealed", "validated",
                          "created_at"), "round_id": s.round.id, "validated_tokens_per_sec": s.measured}
                for s in own[:20]]}


@app.get("/dashboard/leaderboard", dependencies=for_readers)
async def leaderboard(limit: int = Query(50, ge=1, le=200), network: Optional[str] = None):
    state, network = app.state.it, network_of(network)
    round = state.round(network)
    return {"network": network, "round_id": round.id, "leaderboard": [
        {"rank": rank, "submission_id": s.id, "miner_hotkey": s.miner_hotkey, "tokens_per_sec": s.measured,
         "target_sequence_length": s.target_sequence_length, "weighted_score": weighted(s), "created_at": iso(s.created_at)}
        for rank, s in enumerate(state.ranking(round)[:limit], 1)]}


@app.get("/dashboard/top_miners", dependencies=for_readers)
async def top_miners(limit: int = Query(10, ge=1, le=200), network: Optional[str] = None):
    network, best = network_of(network), {}
    for s in app.state.it.submissions:
        if s.round.network == network and s.passed and s.measured is not None:
            best.setdefault(s.miner_hotkey, []).append(s.measured)
    ranked = sorted(best.items(), key=lambda entry: (-max(entry[1]), entry[0]))[:limit]
    return {"network": network, "top_miners": [
        {"hotkey": hotkey, "validated_tokens_per_sec": max(speeds), "submissions": len(speeds)} for hotkey, speeds in ranked]}


for path in ("/pending_reveals", "/get_submission_rate", "/verification_stats", "/record_verification", "/mark_validated",
             "/record_failure"):
    route, = (route for route in api_server.app.routes if route.path == path)
    app.add_api_route(path, route.endpoint, methods=route.methods, dependencies=for_validators)


def make(options):
    """The application, with nothing in it yet."""
    app.state.it = api_server.app.state.it = State(options)
    return app
