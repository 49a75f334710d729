"""Whatever a validator refuses with, of either version: its own words, what to do about it, and the exit code."""
import pytest

from conftest import API_KEY
from lossy import LossyProxy, Say
from test_faults import make_scene  # noqa: F401: a fixture

pytestmark = pytest.mark.usefixtures("without_python")

KEY = {"DASHBOARD_API_KEY": API_KEY}
FEBRUARY, APRIL = ("2026-02",), ("2026-04",)
EITHER = FEBRUARY + APRIL
LONG_PAUSE = "Rate limit exceeded. Please wait 86400 seconds before submitting again."

# What is answered to a request: versions, status, words, exit code, what is told.
COMMITTING = [
    (EITHER, 401, "Invalid signature", 5, "is it an sr25519 key?"),
    (EITHER, 401, "Missing Hotkey or Signature headers", 5, "a proxy in between may be removing them"),
    (APRIL, 401, "Signature expired (130s old, max 120s)", 5, "clock and the validator's disagree"),
    (EITHER, 401, "Authentication error: no Keypair", 4, "Nothing is lost"),
    (EITHER, 403, "Hotkey mismatch", 5, "signed by a different hotkey than the one it is for"),
    (EITHER, 403, "IP address banned: IP banned for 23.5 more hours", 5, "The ban ends in 23 h 30 m"),
    (APRIL, 403, "Miner flagged: over-claim", 5, "until the validator's operator lifts it"),
    (APRIL, 403, "GitHub name alice is taken by another hotkey", 5, "one hotkey for each GitHub account"),
    (APRIL, 403, "IP address is used by another hotkey", 5, "one hotkey for each GitHub account"),
    (APRIL, 403, "The coldkey is taken by another hotkey", 5, "one hotkey for each GitHub account"),
    (EITHER, 403, "Forbidden by the firewall", 4, "Nothing is lost"),
    (FEBRUARY, 404, "Miner not registered", 5, "`quasar register`"),
    (EITHER, 425, "Too early in the day", 4, "Nothing is lost"),
    (EITHER, 429, "Rate limit exceeded", 4, "Nothing is lost"),
    (APRIL, 429, LONG_PAUSE, 4, "Nothing is lost"),
    (EITHER, 500, "", 4, "Nothing is lost"),
    (EITHER, 503, "", 4, "Nothing is lost"),
    (FEBRUARY, 409, "Commitment hash already exists. Use a different salt.", 5, "`quasar status` shows where it stands"),
    (APRIL, 409, "Commitment hash already exists. Use a different salt.", 5, "can never be revealed. Committing anew"),
    (EITHER, 409, "Conflict", 4, "Nothing is lost")]
DIRECTLY = [
    (APRIL, 400, "tokens_per_sec 11.0 outside plausible range (10 to 50000000).", 5, "outside plausible range"),
    (EITHER, 400, "tokens_per_sec must be a positive number.", 5, "must be a positive number"),
    (EITHER, 409, "Conflict", 4, "Nothing is lost")]
REVEALING = [
    (FEBRUARY, 400, "Commitment verification failed. Hash mismatch.", 5, "its salt is the one that was committed"),
    (APRIL, 400, "Commitment verification failed. Hash mismatch.", 5, "five failures ban the address"),
    (EITHER, 401, "Invalid signature", 5, "is it an sr25519 key?"),
    (APRIL, 401, "Signature expired (130s old, max 120s)", 5, "clock and the validator's disagree"),
    (EITHER, 403, "Hotkey mismatch", 5, "signed by a different hotkey than the one it is for"),
    (APRIL, 403, "GitHub name alice is taken by another hotkey", 5, "one hotkey for each GitHub account"),
    (FEBRUARY, 404, "Submission not found", 4, "does not confirm this"),
    (APRIL, 404, "Submission not found", 5, "commit again"),
    (FEBRUARY, 409, "Submission already revealed", 4, "still lists the commitment"),
    (APRIL, 409, "Submission already revealed", 0, ""),
    (EITHER, 409, "Conflict", 4, "No known validator answers like this"),
    (EITHER, 425, "Cannot reveal yet. Wait 7 blocks (~1 minutes)", 6, "`quasar reveal --wait`"),
    (EITHER, 429, "Rate limit exceeded", 4, "10 requests in 60 s"),
    (EITHER, 500, "", 4, "a problem on the server")]
REGISTERING = [
    (EITHER, 401, "Invalid signature", 5, "is it an sr25519 key?"),
    (EITHER, 403, "Hotkey mismatch", 5, "signed by a different hotkey than the one it is for"),
    (APRIL, 403, "Miner flagged: over-claim", 5, "until the validator's operator lifts it"),
    (EITHER, 429, "Rate limit exceeded", 4, "10 requests in 60 s"),
    (FEBRUARY, 500, "", 4, "already registered for another league"),
    (APRIL, 500, "", 0, "")]

READING = [
    (FEBRUARY, 401, "Missing Hotkey or Signature headers", 5, "to validators only"),
    (FEBRUARY, 403, "Hotkey is not an authorized validator. Ask for it.", 5, "to validators only"),
    (FEBRUARY, 404, "Not Found", 5, "Is VALIDATOR_API_URL the address of a validator API?"),
    (FEBRUARY, 429, "Slow down", 4, "10 requests in 60 s"),
    (FEBRUARY, 500, "", 4, "a problem on the server")]
DASHBOARD = [
    (APRIL, 401, "An API key or a validator's signature is needed", 5, "Set DASHBOARD_API_KEY"),
    (APRIL, 403, "Forbidden by the firewall", 4, "No known validator answers like this"),
    (APRIL, 429, "Slow down", 4, "10 requests in 60 s"),
    (APRIL, 500, "", 4, "a problem on the server")]


@pytest.fixture
def place(make_scene):  # noqa: F811
    return make_scene(LossyProxy)


def meet(place, like, route, answers, command):
    """Runs the command under each answer that this version may give, on a store without submissions."""
    for versions, status, words, code, told in answers:
        if like not in versions:
            continue
        answer = Say(status, {"detail": words} if words else b"Internal Server Error",
                     "application/json" if words else "text/plain", {"Retry-After": "9999"})  # no attempt is made again
        place.proxy.always = {}
        place.forget()
        done = command(lambda: place.proxy.always.update({route: answer}))
        error = done.json.get("error") if done.code else {"message": "", "hint": ""}
        case = f"{like}: {status} {words!r} to {route[1]}: {done.code} {done.err} {error}"
        assert done.code == code, case
        said = f"{done.err} {error['message']} {error['hint']}"
        assert told in said and (not code or words in said and f"HTTP {status}" in said or status in (404, 409)), case
        assert ("sr25519" in said) == (words == "Invalid signature"), case
    place.proxy.always = {}


@pytest.mark.parametrize("like", [pytest.param("2026-02", marks=pytest.mark.long), "2026-04"])
def test_every_refusal_has_its_words_and_its_exit_code(place, like):
    def send(command):
        def run(begin):
            begin()
            return place(command, "--no-verify", "--claim", place.claim, "--json")
        return run

    def reveal(begin):
        assert place.send("commit").code == 0
        while not place.pending()[0]["can_reveal"]:
            pass
        begin()
        return place("reveal", "--json")

    def register(begin):
        begin()
        return place("register", "--json")

    meet(place, like, ("POST", "/commit_submission"), COMMITTING, send("commit"))
    meet(place, like, ("POST", "/submit_kernel"), DIRECTLY, send("submit"))
    meet(place, like, ("POST", "/reveal_submission"), REVEALING, reveal)
    meet(place, like, ("POST", "/register_miner"), REGISTERING, register)

    def read(command):
        def run(begin):
            begin()
            return place.quasar(command, "--json", cwd=place.directory, env=KEY)
        return run

    meet(place, like, ("GET", "/get_current_round"), READING, read("round"))
    meet(place, like, ("GET", "/dashboard/leaderboard"), DASHBOARD, read("leaderboard"))
