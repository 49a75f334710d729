"""A running `quasar localnet` or one of its peers, and miners that sign requests to it."""
import contextlib
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.request

from patience import LONG


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def detail(self):
        return self.json["detail"]


ROOT = pathlib.Path(__file__).resolve().parents[1]


class Localnet:
    """Listens when made. `url`, `port`, `db` and `pid` are what it announced. `reader` are the headers of who may read
    its lists."""

    def __init__(self, binary, environment, cwd, args):
        self.command = self.command_line(binary, args)
        self.environment, self.cwd, self.reader = environment, cwd, {}
        self.log = open(cwd / "localnet.log", "ab")
        self.start("--port", "0")

    @staticmethod
    def command_line(binary, args):
        return [binary, "localnet", "--json", *map(str, args)]

    def start(self, *args):
        self.process = subprocess.Popen([*self.command, *args], cwd=self.cwd, env=self.environment,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        assert line, f"localnet did not start: {(self.cwd / 'localnet.log').read_text()}"
        for name, value in json.loads(line).items():
            setattr(self, name, value)

    def stop(self, how=signal.SIGTERM):
        """Returns the exit code."""
        self.process.send_signal(how)
        code = self.process.wait(timeout=LONG)
        self.process.stdout.close()
        return code

    def restart(self, how=signal.SIGTERM):
        """Stops it and starts it on the same port and database."""
        port = self.port
        self.stop(how)
        self.start("--port", str(port))

    def reset(self):
        """Restarts it on the same port with an empty database."""
        port = self.port
        self.stop()
        for path in pathlib.Path(self.db).parent.glob(pathlib.Path(self.db).name + "*"):
            path.unlink()
        self.start("--port", str(port))

    failing_addresses = "SELECT address FROM address WHERE failures"

    def failures(self):
        """The addresses that failures are counted against, by its database."""
        with contextlib.closing(sqlite3.connect(self.db)) as database:
            return database.execute(self.failing_addresses).fetchall()

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self.log.close()

    def request(self, method, path, body=None, headers=None):
        """`body`: bytes as they are, or anything else as JSON."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers or {})
        if body is not None and "Content-type" not in request.headers:
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=LONG) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as answer:
            return Answer(answer.code, answer.headers, answer.read())

    def get(self, path, headers=None):
        return self.request("GET", path, headers=self.reader if headers is None else headers)

    def post(self, path, body=None, headers=None):
        return self.request("POST", path, body, headers)


def version_of(args):
    """The version that arguments ask for."""
    return args[args.index("--like") + 1] if "--like" in args else "2026-02"


def without(name, args):
    """The arguments without an option and its value."""
    args = [*map(str, args)]
    while name in args:
        at = args.index(name)
        del args[at:at + 2]
    return args


class PeerValidator(Localnet):
    """A running api_server.py: the same protocol, nothing else in common. It has no rate limit and no database."""

    def __init__(self, environment, cwd, args):
        super().__init__(ROOT / "build" / "venv" / "bin" / "python", environment, cwd, args)

    @staticmethod
    def command_line(python, args):
        return [python, ROOT / "tests" / "peer" / "api_server.py", *without("--rate-limit", args)]

    @staticmethod
    def why_not(version):
        """Why it cannot be run, or None."""
        if version == "strict":
            return "asks for `quasar localnet`"
        if subprocess.run([ROOT / "scripts" / "peer-venv"]).returncode:
            return "the packages of api_server.py cannot be installed (build/peer-venv.log)"
        return None


class DeployedValidator(Localnet):
    """A deployed validator's own code, of the checkout that a variable names."""

    sources = {"2026-02": "VALIDATOR_API_SOURCE", "2026-04": "VALIDATOR_API_SOURCE_2026_04"}
    failing_addresses = "SELECT ip_address FROM ip_bans WHERE failure_count"

    def __init__(self, environment, cwd, args):
        super().__init__(ROOT / "build" / "venv-deployed" / "bin" / "python", environment, cwd, args)

    @classmethod
    def command_line(cls, python, args):
        return [python, ROOT / "tests" / "peer" / "deployed_server.py", os.environ[cls.sources[version_of(args)]],
                *without("--round-time", without("--rate-limit", args))]

    @classmethod
    def why_not(cls, version="2026-02"):
        """Why it cannot be run, or None."""
        variable = cls.sources.get(version)
        if not variable:
            return "asks for `quasar localnet`"
        source = os.environ.get(variable)
        if not source:
            return f"{variable} names no checkout of the deployed validator (docs/deployed-validator.md)"
        if not (pathlib.Path(source) / "validator_api" / "app.py").exists():
            return f"{variable}: there is no validator_api/app.py in {source}"
        if subprocess.run([ROOT / "scripts" / "peer-venv", "deployed"]).returncode:
            return "the deployed validator's packages cannot be installed (build/peer-venv-deployed.log)"
        return None


class Miner:
    """A hotkey with the headers that authenticate it."""

    def __init__(self, address, signature):
        self.address = address
        self.headers = {"Hotkey": address, "Signature": signature}


@contextlib.contextmanager
def servers(tmp_path, kind, make):
    """Gives start(*args), which makes a server by make(place, args), each in a place of its own, KIND-0 and so on. They
    end with the block."""
    running = []

    def start(*args):
        place = tmp_path / f"{kind}-{len(running)}"
        place.mkdir()
        running.append(make(place, args))
        return running[-1]

    try:
        yield start
    finally:
        for server in running:
            server.close()
