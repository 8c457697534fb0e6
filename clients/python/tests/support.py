"""A server of a few lines, which answers what a test tells it to."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from fairlead import _client  # noqa: E402

_client.FIRST_PAUSE_SECONDS = 0.001  # The tests have other things to do than to wait.

Answer = Callable[["Handler"], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server  # type: ignore[assignment]

    def do_GET(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            self.server.requests.append((self.command, self.path, dict(self.headers.items()), self.body))
            answer = self.server.plan.pop(0) if self.server.plan else reply({})
        answer(self)

    do_POST = do_DELETE = do_GET

    def log_message(self, *_: Any) -> None:
        pass

    def breaks(self) -> None:
        self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, *plan: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan: list[Answer] = list(plan)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.lock = threading.Lock()
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()

    def keys(self) -> list[str | None]:
        return [headers.get("Idempotency-Key") for _, _, headers, _ in self.requests]


def reply(document: Any, status: int = 200, **headers: str) -> Answer:
    """Answers with a document."""

    def answer(h: Handler) -> None:
        content = document if isinstance(document, bytes) else json.dumps(document).encode()
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(content)))
        h.end_headers()
        h.wfile.write(content)

    return answer


def refuse(status: int, code: str, *, retryable: bool = True, outcome: str = "unknown", **headers: str) -> Answer:
    """Answers with a problem."""
    return reply({"status": status, "code": code, "title": "t", "detail": "d", "retryable": retryable, "outcome": outcome}, status, **headers)


def lose(h: Handler) -> None:
    """Breaks the connection instead of answering."""
    h.breaks()


def cut(h: Handler) -> None:
    """Breaks the answer off."""
    h.send_response(200)
    h.send_header("Content-Length", "100")
    h.end_headers()
    h.wfile.write(b'{"id":')
    h.breaks()


def stream(*parts: bytes, hold: threading.Event | None = None) -> Answer:
    """Sends parts of an event stream, waits for hold, and breaks the connection."""

    def answer(h: Handler) -> None:
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        for part in parts:
            h.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            h.wfile.flush()
        if hold is not None:
            hold.wait()
        h.breaks()

    return answer


def event(seq: int, kind: str = "bid.placed") -> bytes:
    """An event as the server writes it."""
    document = {"topic": "auction:1", "type": kind, "at": "2026-03-01T12:00:00.5Z", "data": {"amount": seq}}
    head = b""
    if seq:
        document["seq"] = seq
        head = b"id: %d\n" % seq
    return head + b"event: %s\ndata: %s\n\n" % (kind.encode(), json.dumps(document).encode())
