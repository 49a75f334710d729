"""A proxy that misbehaves on request, to stand between the client and a validator service."""
import http.client
import http.server
import threading
import urllib.parse


class LossyProxy:
    """Forwards to `target`. `faults[(method, path)]` is a list of what happens to the next such requests:
    "drop"    the connection is closed before anything is forwarded
    "lose"    it is forwarded, but the answer never gets back
    "hold"    it waits until `release` is set, and is not forwarded
    "take"    it is forwarded, then waits until `release` is set, and the answer never gets back
    a number  is answered with that status, not forwarded
    `requests` lists what arrived, `answered` what came back from the service."""

    def __init__(self, target):
        self.target = urllib.parse.urlsplit(target)
        self.faults, self.requests, self.answered = {}, [], []
        self.arrived, self.release = threading.Event(), threading.Event()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                proxy.handle(self)

            do_POST = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.release.set()
        self.server.shutdown()
        self.server.server_close()

    def count(self, path):
        return sum(1 for _, seen in self.requests if seen == path)

    def forward(self, handler, body):
        link = http.client.HTTPConnection(self.target.hostname, self.target.port, timeout=30)
        headers = {k: v for k, v in handler.headers.items() if k.lower() not in ("host", "connection")}
        link.request(handler.command, handler.path, body, headers)
        answer = link.getresponse()
        content = answer.read()
        link.close()
        return answer, content

    def handle(self, handler):
        path = handler.path.split("?")[0]
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((handler.command, path))
        waiting = self.faults.get((handler.command, path), [])
        fault = waiting.pop(0) if waiting else None
        if isinstance(fault, int):
            handler.send_response(fault)
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        if fault not in ("drop", "hold"):
            try:
                answer, content = self.forward(handler, body)
                self.answered.append((path, answer.status, content))
            except (OSError, http.client.HTTPException):  # the service is down
                fault = fault or "drop"
        if fault in ("hold", "take"):
            self.arrived.set()
            self.release.wait(60)
        if fault:
            handler.close_connection = True
            handler.connection.close()
            return
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length", "date", "server"):
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
