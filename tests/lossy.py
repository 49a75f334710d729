"""A proxy that does what networks, and servers, do to requests. Between miners and a validator service."""
import http.client
import http.server
import json
import socket
import threading
import urllib.parse

from patience import LONG


class Change:
    """A fault that rewrites a good answer: the service does its work, and something else comes back."""

    def __init__(self, body=None, headers=None, **fields):
        """A field's new value, or a function of the old one; or a whole new body."""
        self.body, self.headers, self.fields = body, headers or {}, fields

    def content(self, content):
        if self.body is not None:
            return self.body
        if not self.fields:
            return content
        document = json.loads(content)
        for name, value in self.fields.items():
            document[name] = value(document.get(name)) if callable(value) else value
        return json.dumps(document).encode()


class Cut:
    """A fault: the answer ends after so many bytes, the head included."""

    def __init__(self, length):
        self.length = length


class Say:
    """A fault: this is answered, and nothing is forwarded."""

    def __init__(self, status, body=b"", content_type="application/json", headers=None):
        """`body`: bytes as they are, or anything else as JSON."""
        self.status, self.headers = status, {"Content-Type": content_type, **(headers or {})}
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(self, handler):
        handler.send_response(self.status)
        if self.status != 204:
            handler.send_header("Content-Length", str(len(self.body)))
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if self.status not in (204, 304):
            handler.wfile.write(self.body)


class LossyProxy:
    """Forwards to `target`. `faults[(method, path)]` is a list of what happens to the next such requests:
    "drop"    the connection is closed before anything is forwarded
    "lose"    it is forwarded, but the answer never gets back
    "hold"    it waits until `release` is set, and is not forwarded
    "take"    it is forwarded, then waits until `release` is set, and the answer never gets back
    "late"    it is kept, the connection closed; `deliver` forwards it when others have long overtaken it
    "double"  it is forwarded twice, and the first answer comes back
    "again"   it is forwarded twice, and the second answer comes back
    "silence" is forwarded, and never answered until the client leaves
    a number  is answered with that status and no words, not forwarded
    a Say     is answered with that, not forwarded
    a Change  is answered with something else than the service said
    a Cut     is answered, but not to the end
    A fault in the list `always` meets every such request. `requests` lists what arrived, `answered` what came
    back from the service, `length` is that of the last answer."""

    def __init__(self, target):
        self.target = urllib.parse.urlsplit(target)
        self.faults, self.always, self.requests, self.answered, self.kept = {}, {}, [], [], []
        self.arrived, self.release = threading.Event(), threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                proxy.handle(self)

            do_POST = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request, client_address):
                pass  # clients that hang up are what this is about

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def count(self, path):
        return sum(1 for _, seen in self.requests if seen == path)

    def forward(self, method, path, headers, body):
        link = http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=LONG)
        headers = {k: v for k, v in headers.items() if k.lower() not in ("host", "connection")}
        link.request(method, path, body, headers)
        answer = link.getresponse()
        content = answer.read()
        link.close()
        self.answered.append((path.split("?")[0], answer.status, content))
        return answer, content

    def deliver(self):
        """What was kept arrives after all."""
        while self.kept:
            self.forward(*self.kept.pop(0))

    def handle(self, handler):
        path = handler.path.split("?")[0]
        request = (handler.command, handler.path, handler.headers,
                   handler.rfile.read(int(handler.headers.get("Content-Length") or 0)))
        self.requests.append((handler.command, path))
        waiting = self.faults.get((handler.command, path), [])
        fault = waiting.pop(0) if waiting else self.always.get((handler.command, path))
        if isinstance(fault, int):
            fault = Say(fault)
        if isinstance(fault, Say):
            fault.answer(handler)
            return
        if fault == "late":
            self.kept.append(request)
        elif fault not in ("drop", "hold"):
            try:
                answer, content = self.forward(*request)
            except (OSError, http.client.HTTPException):  # the service is down
                fault = fault or "drop"
        if fault in ("double", "again"):
            second = self.forward(*request)
            answer, content = second if fault == "again" else (answer, content)
        if fault in ("hold", "take"):
            self.arrived.set()
            self.release.wait(LONG)
        if fault == "silence":
            handler.connection.recv(1)
        if fault in ("drop", "lose", "hold", "take", "late", "silence"):
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        self.answer(handler, answer, content, fault)

    def answer(self, handler, answer, content, fault):
        change = fault if isinstance(fault, Change) else Change()
        content = change.content(content)
        dropped = ("connection", "transfer-encoding", "content-length", "server")
        headers = {name: value for name, value in answer.getheaders() if name.lower() not in dropped}
        headers.update({"Content-Length": str(len(content)), **change.headers})
        head = f"HTTP/1.1 {answer.status} Answer\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        whole = head.encode() + content
        self.length = len(whole)
        if isinstance(fault, Cut):
            handler.close_connection = True
            whole = whole[:fault.length]
        handler.wfile.write(whole)
