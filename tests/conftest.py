"""Fixtures of the command-line tests: they run the built binary, named by $QUASAR, as a user would."""
import json
import os
import pathlib
import resource
import shutil
import subprocess

import pytest

from localnet import DeployedValidator, Localnet, Miner, PeerValidator, servers, version_of
from lossy import LossyProxy
from patience import LONG
from scripted_server import ScriptedServer
from terminal import Terminal

ROOT = pathlib.Path(__file__).resolve().parents[1]
KEYFILES = ROOT / "tests" / "vectors" / "keyfiles"
FULL = os.environ.get("SWEEP") == "full"  # every point of a sweep, rather than a sample of them
QUASAR = os.path.abspath(os.environ.get("QUASAR", ROOT / "build" / "quasar"))


class Result:
    """`cpu` is the time that it computed for, in s: how much work it was, however busy the machine is."""

    def __init__(self, done, cpu=None):
        self.code, self.out, self.err, self.cpu = done.returncode, done.stdout, done.stderr, cpu

    @property
    def json(self):
        return json.loads(self.out)


def cpu_of_children():
    """Of those that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@pytest.fixture
def home(tmp_path):
    """A private home directory, so that no test sees the user's wallets or settings."""
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def environment(home):
    """What a command sees of the environment: nothing of the user's settings, and no PyTorch."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8",
            "OPENBLAS_NUM_THREADS": "1",  # more would wait for one another, beside other tests
            "QUASAR_PYTHON": str(ROOT / "tests" / "bare-python"),
            **{k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "UBSAN_", "LSAN_", "LD_LIBRARY_"))}}


@pytest.fixture
def without_python(environment):
    """For tests of something else than a fork's checks: those by Python are most of what a commit takes. A sweep at every
    point is for whole commits."""
    if not FULL:
        environment["QUASAR_PYTHON"] = "/nonexistent/python"


@pytest.fixture
def quasar(environment, tmp_path):
    """Runs the binary: quasar("score", "--seq", "1M", cwd=…, env={…}, stdin="…"). With bound=True, file
    permissions hold for it even when root runs the tests."""

    def run(*args, cwd=None, env=None, stdin="", timeout=LONG, bound=False):
        prefix = []
        if bound and os.geteuid() == 0:
            prefix = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
        before = cpu_of_children()
        done = subprocess.run([*prefix, QUASAR, *map(str, args)], cwd=cwd or tmp_path, env={**environment, **(env or {})},
                              input=stdin, capture_output=True, text=True, timeout=timeout)
        return Result(done, cpu_of_children() - before)

    return run


def pytest_addoption(parser):
    parser.addoption("--server", choices=["localnet", "peer", "deployed"], default="localnet",
                     help="what is run in place of `quasar localnet`: api_server.py, or the deployed validator's own code")


@pytest.fixture
def start_localnet(request, environment, tmp_path):
    """Starts local validators: start_localnet("--block-time", "0.2", …). They end with the test."""
    kind = {"peer": PeerValidator, "deployed": DeployedValidator}.get(request.config.getoption("--server"))

    def make(place, args):
        if not kind:
            return Localnet(QUASAR, environment, place, args)
        if reason := kind.why_not(version_of(args)):
            pytest.skip(reason)
        return kind(environment, place, args)

    with servers(tmp_path, "localnet", make) as start:
        yield start


@pytest.fixture
def like():
    """The version of the local validator; a test that holds for both has the mark BOTH."""
    return "2026-02"


BOTH = pytest.mark.parametrize("like", ["2026-02", "2026-04"])
API_KEY = "key-of-the-dashboard"


@pytest.fixture
def start_version(start_localnet, make_miner):
    """Starts a local validator without limits of a version, whose lists tests may read: start_version(like, …)."""

    def start(like, *args):
        if like == "2026-02":
            return start_localnet("--rate-limit", "0", *args)
        judge = make_miner("judge")
        server = start_localnet("--like", like, "--validator-hotkeys", judge.address, "--api-keys", f"{API_KEY}:read",
                                "--cooldown", "0", *args)
        server.reader = judge.headers
        return server

    return start


@pytest.fixture
def localnet(start_version, like):
    """A local validator with blocks of 0.2 s, reveals after 5 of them, and no rate limit."""
    return start_version(like, "--block-time", "0.2", "--blocks-until-reveal", "5")


@pytest.fixture
def proxy(localnet):
    """Stands before the local validator, and drops or delays what a test wants."""
    proxy = LossyProxy(localnet.url)
    proxy.reader = localnet.reader
    yield proxy
    proxy.close()


@pytest.fixture
def make_miner(quasar):
    """Makes a wallet of that name with a hotkey, and a Miner for it."""

    def make(name):
        address = quasar("wallet", "new", "--wallet", name, "--json").json["address"]
        signed = quasar("wallet", "sign", "--wallet", name, "--message-hex", address.encode().hex())
        return Miner(address, signed.out.strip())

    return make


@pytest.fixture
def alice(localnet, make_miner):
    """A miner whom the local validator knows."""
    miner = make_miner("alice")
    localnet.post("/register_miner", {"hotkey": miner.address, "model_name": "m", "league": "100k"}, miner.headers)
    return miner


@pytest.fixture
def terminal(environment, tmp_path):
    """Runs the binary on a terminal: terminal("wallet", "import", env={…})."""
    runs = []

    def run(*args, env=None, **options):
        runs.append(Terminal(QUASAR, args, tmp_path, {**environment, **(env or {})}, **options))
        return runs[-1]

    yield run
    for done in runs:
        done.close()


@pytest.fixture
def hotkey(quasar):
    """Makes the default hotkey from a phrase of the test vectors; its address."""
    key = json.loads((ROOT / "tests" / "vectors" / "sr25519.json").read_text())[0]
    done = quasar("wallet", "import", stdin=key["mnemonic"] + "\n")
    assert done.code == 0, done.err
    return key["ss58"]


@pytest.fixture
def encrypted(home):
    """An encrypted default hotkey, as Bittensor made it, and its password. Each attempt to open it takes seconds, by design."""
    place = home / ".bittensor" / "wallets" / "quasar_miner" / "hotkeys"
    place.mkdir(parents=True)
    shutil.copy(KEYFILES / "encrypted.nacl", place / "default")
    (place / "default").chmod(0o600)
    return "correct horse"


@pytest.fixture
def commit_something(quasar, tmp_path):
    """Makes a workspace that has committed something at a validator; its directory."""

    def make(url):
        directory = tmp_path / "miner"
        assert quasar("wallet", "new").code == 0
        assert quasar("init", directory, "--api", url, "--seq", 512).code == 0
        assert quasar("register", cwd=directory).code == 0
        done = quasar("commit", "--claim", 1000, "--no-verify", cwd=directory)
        assert done.code == 0, done.err
        return directory

    return make


@pytest.fixture
def serve():
    """Starts servers that follow a script: serve(reply(…), reply(…)).url; see scripted_server.py."""
    servers = []

    def start(*steps, **options):
        servers.append(ScriptedServer(*steps, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def workspace(quasar, tmp_path):
    """An initialised workspace with quasar's own fork."""
    done = quasar("init", tmp_path / "miner")
    assert done.code == 0, done.err
    return tmp_path / "miner"
