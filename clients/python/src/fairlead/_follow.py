"""Following a topic, over connections that break."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import quote

from . import _codec
from ._errors import Answer, ProblemError, UnansweredError
from ._transport import Response

# How long a stream may say nothing. The server sends a comment every 15 s.
SILENCE_SECONDS = 45.0
# The longest line of a stream, in bytes.
_MAX_LINE = 16 << 20


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a topic."""

    topic: str
    seq: int  #: 1, 2, 3, …; 0: a message without a number, such as a countdown, which may get lost
    type: str  #: such as ``bid.placed``
    at: datetime
    data: Any  #: as json.loads gives it


class _Retry(Protocol):
    @property
    def attempts(self) -> int: ...
    @property
    def limit(self) -> float: ...


class _Pauses(Protocol):
    def reset(self) -> None: ...
    def next(self) -> float: ...


class Follower(Iterator[Event]):
    """An iterator over the events of a topic, and a context manager, which closes it. It belongs to one thread; :meth:`close`
    may be called by any."""

    def __init__(
        self,
        open_stream: Callable[[str, Mapping[str, str]], Response],
        retry: _Retry,
        pauses: _Pauses,
        topic: str,
        since: int | None,
    ) -> None:
        if since is not None and since < 0:
            raise ValueError("since is the number of an event, or 0")
        self._open, self._retry, self._pauses = open_stream, retry, pauses
        self._target = f"/v1/events?topic={quote(topic, safe='')}"
        self._last = since
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._stream: Response | None = None
        self._refused, self._refused_since = 0, 0.0

    @property
    def last(self) -> int | None:
        """The number of the last event, from which ``follow(topic, last)`` goes on; None as long as none is known."""
        return self._last

    def close(self) -> None:
        """Ends the iteration, also one that waits in another thread."""
        self._closed.set()
        with self._lock:
            if self._stream is not None:
                self._stream.shut()

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._leave()

    def __iter__(self) -> Follower:
        return self

    def __next__(self) -> Event:
        while not self._closed.is_set():
            try:
                if self._stream is None:
                    self._connect()
                return self._read()
            except (OSError, http.client.HTTPException) as err:
                failure: Exception = UnansweredError("", 1)
                failure.__cause__ = err
                self._pause(failure, 0)
            except ProblemError as problem:
                if not problem.retryable:
                    self.close()
                    raise
                self._pause(problem, problem.retry_after)
        self._leave()
        raise StopIteration

    def _connect(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = str(self._last)
        stream = self._open(self._target, headers)
        if stream.status != 200:
            try:
                body = stream.read()
            finally:
                stream.close()
            raise ProblemError(Answer(status=stream.status, headers=stream.headers, body=body, attempts=1))
        with self._lock:
            self._stream = stream
            if self._closed.is_set():
                stream.shut()
        self._refused = 0

    def _read(self) -> Event:
        """The next event of the connection under way. Raises where it breaks."""
        stream = self._stream
        assert stream is not None
        data: bytes | None = None
        while True:
            stream.extend(SILENCE_SECONDS)
            line = stream.readline(_MAX_LINE)
            if not line.endswith(b"\n"):
                raise ConnectionError("the stream ended")  # What came of a line, or of an event, is no event.
            name, _, value = line.rstrip(b"\r\n").partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data = value
            elif name == b"" and value.startswith(b"subscribed "):
                # The topic's last number: from there a subscription without a place goes on.
                if self._last is None:
                    self._last = int(value.split()[1])
            elif line in (b"\n", b"\r\n") and data is not None:
                event, data = self._event(json.loads(data)), None
                if event is not None:
                    return event

    def _event(self, message: Mapping[str, Any]) -> Event | None:
        if "type" not in message:
            return None  # That the connection was too slow: it ends now, and the next one goes on.
        seq = message.get("seq", 0)
        if seq:
            if self._last is not None and seq <= self._last:
                return None
            self._last = seq
            self._pauses.reset()
        return Event(message["topic"], seq, message["type"], _codec.decode(datetime, message["at"]), message.get("data"))

    def _pause(self, failure: Exception, seconds: float) -> None:
        """Waits before the next connection, or raises the failure where there must be none."""
        if self._stream is None:
            if self._refused == 0:
                self._refused_since = time.monotonic()
            self._refused += 1
        self._leave()
        pause = self._pauses.next() + seconds
        elapsed = time.monotonic() - self._refused_since if self._refused else 0.0
        if self._refused >= self._retry.attempts or (self._refused and elapsed + pause > self._retry.limit):
            self.close()
            raise failure
        self._closed.wait(pause)

    def _leave(self) -> None:
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
