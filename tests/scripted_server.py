"""An HTTP server that does to each request what the test tells it to, and remembers what arrived."""
import http.server
import json
import ssl
import threading


class Step:
    """What happens to one request: called with the handler, after the request was read."""

    def __init__(self, act):
        self.act = act


def reply(status=200, body=b"", headers=None, content_type="application/json"):
    """A whole answer; anything but bytes is sent as JSON."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def act(handler):
        handler.send_response(status)
        handler.send_header("Content-Type", content_type)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return Step(act)


def refuse(status, detail, headers=None):
    return reply(status, {"detail": detail}, headers)


def redirect(to, status=307):
    return reply(status, {}, {"Location": to})


def raw(data):
    """These bytes, then the end of the connection."""

    def act(handler):
        handler.wfile.write(data)
        handler.close_connection = True

    return Step(act)


def flood(head, chunk, count):
    """`chunk` again and again; counts in server.flooded how many the client took."""

    def act(handler):
        handler.close_connection = True
        handler.wfile.write(head)
        for _ in range(count):
            handler.wfile.write(chunk)
            handler.server.owner.flooded += 1

    return Step(act)


def stall():
    """No answer until the test is over."""

    def act(handler):
        handler.close_connection = True
        handler.server.owner.over.wait()

    return Step(act)


class Request:
    def __init__(self, handler, body):
        self.method, self.path, self.headers, self.body = handler.command, handler.path, handler.headers, body

    @property
    def json(self):
        return json.loads(self.body)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/openapi.json":
            owner.routes.act(self)
            return
        with owner.lock:
            step = owner.steps[min(len(owner.requests), len(owner.steps) - 1)]
            owner.requests.append(Request(self, body))
        owner.arrived.set()
        step.act(self)

    do_GET = do_POST = answer

    def date_time_string(self, timestamp=None):
        return self.server.owner.date or super().date_time_string(timestamp)

    def log_message(self, *args):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # clients that hang up are what these tests are about


class ScriptedServer:
    """The first request meets the first step, and so on; the last step stays in force. `route` is in /openapi.json,
    which is not part of the script: it tells the version."""

    def __init__(self, *steps, certificate=None, date=None, route="/commit_submission"):
        self.steps, self.date, self.routes = steps, date, reply(200, {"paths": {route: {}}})
        self.requests, self.flooded = [], 0
        self.lock, self.arrived, self.over = threading.Lock(), threading.Event(), threading.Event()
        self.httpd = QuietServer(("127.0.0.1", 0), Handler)
        self.httpd.owner = self
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.httpd.socket = context.wrap_socket(self.httpd.socket, server_side=True)
        self.port = self.httpd.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.httpd.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.over.set()
        self.httpd.shutdown()
        self.httpd.server_close()
