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
        code = self.process.wait(timeout=30)
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
            with urllib.request.urlopen(request, timeout=30) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as answer:
            return Answer(answer.code, answer.headers, answer.read())

    def get(self, path, headers=None):
        return self.request("GET", path, headers=self.reader if headers is None else headers)

    def post(self, path, body=None, headers=None):
        return self.request("POST", path, body, headers)


class DeployedValidator(Localnet):
    """The deployed validator's own code, of the checkout that $VALIDATOR_API_SOURCE names."""

    failing_addresses = "SELECT ip_address FROM ip_bans WHERE failure_count"

    def __init__(self, environment, cwd, args):
        super().__init__(ROOT / "build" / "venv-deployed" / "bin" / "python", environment, cwd, args)

    @staticmethod
    def command_line(python, args):
        options = [*map(str, args)]
        while "--rate-limit" in options:  # it has none
            at = options.index("--rate-limit")
            del options[at:at + 2]
        return [python, ROOT / "tests" / "peer" / "deployed_server.py", os.environ["VALIDATOR_API_SOURCE"], *options]

    @staticmethod
    def why_not():
        """Why it cannot be run, or None."""
        source = os.environ.get("VALIDATOR_API_SOURCE")
        if not source:
            return "VALIDATOR_API_SOURCE names no checkout of the deployed validator (docs/deployed-validator.md)"
        if not (pathlib.Path(source) / "validator_api" / "app.py").exists():
            return f"VALIDATOR_API_SOURCE: there is no validator_api/app.py in {source}"
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
