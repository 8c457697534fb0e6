"""HTTP over kept connections, with a limit on the whole of an attempt."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

_IDLE_CONNECTIONS = 64  # kept for the next calls


class _Deadline:
    """A socket whose every wait ends at one time."""

    def __init__(self, sock: socket.socket, ends: float) -> None:
        self._sock = sock
        self.ends = ends

    def arm(self) -> None:
        left = self.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the attempt took too long")
        self._sock.settimeout(left)

    def sendall(self, data: Any) -> None:
        self.arm()
        self._sock.sendall(data)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self, self._sock.makefile("rb", buffering=0)))

    def readable(self) -> bool:
        """Whether bytes have come that nobody asked for, or the end: then the connection is of no use any more."""
        if not hasattr(select, "poll"):
            return bool(select.select([self._sock], [], [], 0)[0])
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def shutdown(self) -> None:
        try:
            # Not ssl's own, which takes the state of the encryption from under the thread that reads.
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
        except OSError:
            pass  # It is gone already.

    def close(self) -> None:
        self._sock.close()


class _Reader(io.RawIOBase):
    def __init__(self, deadline: _Deadline, raw: Any) -> None:
        self._deadline, self._raw = deadline, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._deadline.arm()
        count: int | None = self._raw.readinto(buffer)
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class Response:
    """An answer whose body is read as it comes."""

    def __init__(self, connection: http.client.HTTPConnection, deadline: _Deadline, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.getheaders()}
        self._connection, self._deadline, self._response = connection, deadline, response

    def extend(self, seconds: float) -> None:
        """Gives what is still to come that much time from now on."""
        self._deadline.ends = time.monotonic() + seconds

    def readline(self, limit: int) -> bytes:
        return self._response.readline(limit)

    def read(self) -> bytes:
        """The whole body. An answer that breaks off raises."""
        return self._response.read()

    def shut(self) -> None:
        """Ends a read that another thread waits in."""
        self._deadline.shutdown()

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class Transport:
    """Sends requests to one server. Safe for concurrent use."""

    def __init__(self, base_url: str, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"base URL {base_url!r} must be absolute, with http or https")
        self._secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._context = context
        self._lock = threading.Lock()
        self._idle: list[tuple[http.client.HTTPConnection, _Deadline]] = []
        self._closed = False

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> tuple[int, Mapping[str, str], bytes]:
        """Sends a request and reads the whole answer, within timeout seconds. Raises OSError or HTTPException where no whole
        answer came."""
        connection, deadline, response = self._request(method, target, headers, body, timeout)
        try:
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection, deadline)
        return response.status, {name.lower(): value for name, value in response.getheaders()}, content

    def open(self, target: str, headers: Mapping[str, str], timeout: float) -> Response:
        """Sends a GET, and leaves the body to be read. The caller closes the answer."""
        connection, deadline, response = self._request("GET", target, headers, None, timeout)
        return Response(connection, deadline, response)

    def close(self) -> None:
        """Closes the connections that no call is using."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection, _ in idle:
            connection.close()

    def _request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, timeout: float
    ) -> tuple[http.client.HTTPConnection, _Deadline, http.client.HTTPResponse]:
        connection, deadline = self._connection(timeout)
        try:
            connection.request(method, self._prefix + target, body, dict(headers))
            return connection, deadline, connection.getresponse()
        except BaseException:
            connection.close()
            raise

    def _connection(self, timeout: float) -> tuple[http.client.HTTPConnection, _Deadline]:
        ends = time.monotonic() + timeout
        while True:
            with self._lock:
                if not self._idle:
                    break
                connection, deadline = self._idle.pop()
            if not deadline.readable():
                deadline.ends = ends
                return connection, deadline
            connection.close()
        if self._secure:
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        connection.connect()
        deadline = _Deadline(connection.sock, ends)
        connection.sock = deadline  # type: ignore[assignment]  # http.client calls sendall, makefile and close.
        return connection, deadline

    def _keep(self, connection: http.client.HTTPConnection, deadline: _Deadline) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append((connection, deadline))
                return
        connection.close()
