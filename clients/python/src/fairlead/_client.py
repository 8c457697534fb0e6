"""The client: how a call is sent until it is settled."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _codec
from ._errors import NOT_APPLIED, UNKNOWN, Answer, ProblemError, UnansweredError, UnexpectedAnswerError
from ._follow import Follower
from ._operations import Operations
from ._transport import Response, Transport

T = TypeVar("T")

# The pauses between attempts where the server asks for none: long enough for a queue to drain or a process to start.
FIRST_PAUSE_SECONDS = 0.05
MAX_PAUSE_SECONDS = 5.0

# How many commands of unknown outcome a client remembers. Beyond that it forgets the oldest, which is then as new.
_MAX_DOUBTS = 10_000

_KEY = "Idempotency-Key"
_POSITION = "Fairlead-After"


@dataclass(frozen=True)
class Retry:
    """How long a call is tried."""

    attempts: int = 6  #: how often a request is sent at most; 1 means that nothing is sent again
    #: Seconds after its first attempt in which a call may begin its last one. A longer Retry-After ends the call at once, with
    #: the answer that asked for it.
    limit: float = 30.0


class Pauses:
    """Growing pauses with jitter, in seconds."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._base = FIRST_PAUSE_SECONDS

    def next(self) -> float:
        pause = self._base * random.uniform(0.5, 1.5)
        self._base = min(self._base * 1.5, MAX_PAUSE_SECONDS)
        return pause


class Client(Operations):
    """Calls one server. Safe for concurrent use, and meant to be shared; also a context manager, which closes it.

    A call that changes something is sent with an idempotency key: a random one, or ``idempotency_key``. While no answer
    comes, or a retryable one, the same request is sent again under the same key. A call ends in one of three ways: it
    returns, when what was asked was done, once, and is durable; it raises a :class:`ProblemError`; or it raises an
    :class:`UnansweredError`.
    """

    def __init__(
        self,
        base_url: str,
        key: str = "",
        *,
        retry: Retry = Retry(),
        timeout: float = 120.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """
        base_url: of the server, such as http://127.0.0.1:8080
        key: an API key or a user's JWT; without one only the routes that need none can be called
        timeout: seconds that one attempt may take, with its whole answer
        """
        self._transport = Transport(base_url, ssl_context)
        self._credential = key
        self._retry = retry
        self._timeout = timeout
        self._doubts = Doubts()
        self._position = Position()

    def close(self) -> None:
        """Closes the connections that are kept. Calls under way go on."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> Any:
        """Sends any request, and returns the document of the answer as json.loads gives it: for operations that a newer
        server has and this package does not. The path begins with a slash, and its ids are escaped. A POST without a body
        sends an empty object."""
        return self._invoke(method, path, object, query=query, body=body, key=idempotency_key, answer=answer)

    def follow(self, topic: str, since: int | None = None) -> Follower:
        """Iterates over the events of a topic, ``auction:ID``, ``campaign:ID``, ``multidraw:ID`` or ``account:ID``: each
        with a number above ``since``, once and in order; without ``since``, those to come.

        It does not end by itself. When its connection breaks, or says nothing for 45 s, it connects again after a growing
        pause with jitter, at most 5 s, and goes on where it was. It raises a :class:`ProblemError` that is not retryable,
        such as ``not_found``; and the last error, when the attempts of the client's Retry are used up by connections in a
        row that were not accepted.
        """
        return Follower(self._open, self._retry, Pauses(), topic, since)

    def _open(self, target: str, headers: Mapping[str, str]) -> Response:
        return self._transport.open(target, {**self._headers("GET"), **headers}, self._timeout)

    def _headers(self, method: str) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity"}
        if self._credential:
            headers["Authorization"] = f"Bearer {self._credential}"
        if method == "GET" and (place := self._position.last()):
            headers[_POSITION] = place
        return headers

    def _pages(self, path: str, kind: type[T], query: Mapping[str, Any], limit: int) -> Iterator[T]:
        after: str | None = None
        while True:
            page, after = self._page(path, kind, query, limit, after)
            yield from page
            if after is None:
                return

    def _page(
        self, path: str, kind: type[T], query: Mapping[str, Any], limit: int, after: str | None, stop: threading.Event | None = None
    ) -> tuple[list[T], str | None]:
        document = self._invoke("GET", path, dict, query={**query, "limit": limit, "after": after}, stop=stop)
        try:
            return [_codec.decode(kind, item) for item in document["items"]], document["next"] or None
        except (KeyError, TypeError, ValueError) as err:
            raise UnexpectedAnswerError(f"the answer is no page of a list: {err!r}") from err

    def _invoke(
        self,
        method: str,
        path: str,
        kind: type[T] | None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        answer: Answer | None = None,
        stop: threading.Event | None = None,
    ) -> T:
        got = answer if answer is not None else Answer()
        self._send(method, _codec.with_query(path, query), body, key, got, stop or threading.Event())
        if kind is None or (kind is object and not got.body):
            return None  # type: ignore[return-value]  # There is no document.
        if kind is bytes:
            return got.body  # type: ignore[return-value]
        try:
            return _codec.decode(kind, json.loads(got.body))  # type: ignore[no-any-return]
        except (KeyError, TypeError, ValueError) as err:
            raise UnexpectedAnswerError(f"the answer is not the document that was expected: {err!r}") from err

    def _send(self, method: str, target: str, body: Any, key: str | None, answer: Answer, stop: threading.Event) -> None:
        """Sends a request until it is settled, and fills in the answer of a success. stop ends the pauses, and with them the call."""
        headers = self._headers(method)
        content = None
        if body is None and method == "POST":
            body = {}
        if body is not None:
            if isinstance(body, dict):
                body = {name: member for name, member in body.items() if member is not None}
            content = _codec.encode(body)
            headers["Content-Type"] = "application/json"
        command = None
        if method != "GET":
            key = str(uuid.uuid4()) if key is None else _checked(key)
            headers[_KEY] = key
            command = (method, target, key)
        answer.key = key or ""
        pauses, began, attempt = Pauses(), time.monotonic(), 0
        while True:
            attempt += 1
            answer.attempts = attempt
            pause = pauses.next()
            try:
                answer.status, answer.headers, answer.body = self._transport.send(method, target, headers, content, self._timeout)
            except BaseException as err:
                # KeyboardInterrupt, too: what was sent may have been done.
                if command:
                    self._doubts.unanswered(command)
                if not isinstance(err, (OSError, http.client.HTTPException)):
                    raise
                failure: Exception = UnansweredError(answer.key, attempt)
                failure.__cause__ = err
            else:
                self._position.note(answer.headers.get(_POSITION.lower(), ""))
                if 200 <= answer.status < 300:
                    if command:
                        self._doubts.settled(command)
                    return
                if answer.status < 400:
                    raise UnexpectedAnswerError(f"the answer was {answer.status}: nothing of Fairlead redirects")
                problem = ProblemError(answer)
                if command:
                    problem.outcome = self._doubts.refused(command, problem)
                if not problem.retryable:
                    raise problem
                # The pause is added, so that callers refused together do not come back together.
                pause += problem.retry_after
                failure = problem
            elapsed = time.monotonic() - began
            if attempt >= self._retry.attempts or elapsed + pause > self._retry.limit or stop.wait(pause):
                raise failure


def _checked(key: str) -> str:
    if not 1 <= len(key) <= 255 or not all("!" <= c <= "~" for c in key):
        raise ValueError("an idempotency key has 1 to 255 visible ASCII characters")
    return key


class Doubts:
    """Remembers the commands whose outcome is unknown: an attempt got no answer, or the answer "unknown".

    Such an attempt may have been carried out, or may still be on its way. Only an answer that the server stores under the key
    settles it. Every other answer speaks of its own attempt alone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commands: dict[tuple[str, str, str], None] = {}

    def unanswered(self, command: tuple[str, str, str]) -> None:
        with self._lock:
            self._commands[command] = None
            while len(self._commands) > _MAX_DOUBTS:
                del self._commands[next(iter(self._commands))]

    def settled(self, command: tuple[str, str, str]) -> None:
        with self._lock:
            self._commands.pop(command, None)

    def refused(self, command: tuple[str, str, str], problem: ProblemError) -> str:
        """Notes a problem, and returns what is known of the command's outcome then."""
        if problem.outcome == UNKNOWN:
            self.unanswered(command)
            return UNKNOWN
        # These answers, the server has stored under the key, so no other attempt can end differently.
        if problem.status in (402, 409, 422) and not problem.retryable:
            self.settled(command)
            return problem.outcome
        with self._lock:
            doubtful = command in self._commands
        return UNKNOWN if doubtful and problem.outcome == NOT_APPLIED else problem.outcome


class Position:
    """The last place in the database's log that an answer has told. With it a read sees what this client has written, also where a standby
    answers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at = 0
        self._text = ""

    def last(self) -> str:
        with self._lock:
            return self._text

    def note(self, text: str) -> None:
        at = _place(text)
        with self._lock:
            if at > self._at:
                self._at, self._text = at, text


def _place(text: str) -> int:
    """A place as PostgreSQL writes it, two hexadecimal numbers of 32 bits; 0 where there is none."""
    high, _, low = text.partition("/")
    digits = set("0123456789abcdefABCDEF")
    if not all(1 <= len(half) <= 8 and set(half) <= digits for half in (high, low)):
        return 0
    return int(high, 16) << 32 | int(low, 16)
