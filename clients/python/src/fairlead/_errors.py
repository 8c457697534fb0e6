"""What calls raise, and what they tell besides their result."""

from __future__ import annotations

import email.utils
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The server has seen that nothing was done under the call's key, and did nothing now.
NOT_APPLIED = "not_applied"
#: The effect is there although the answer is a problem.
APPLIED = "applied"
#: It may have been done, by this attempt or an earlier one. A call with the same key tells later.
UNKNOWN = "unknown"

_GATEWAY = frozenset({502, 503, 504})


@dataclass
class Answer:
    """What really came. Give one to a call as ``answer=``, and the call fills it in, whether it succeeds or raises a
    :class:`ProblemError`."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)  #: by names in lower case
    body: bytes = b""  #: as it came, byte for byte
    key: str = ""  #: the idempotency key that was sent; empty where none was
    attempts: int = 0  #: how often the request was sent

    @property
    def replayed(self) -> bool:
        """Whether the server repeated the answer to an earlier request with the same key."""
        return self.headers.get("idempotent-replayed") == "true"

    def json(self) -> Any:
        """The document of the answer."""
        return json.loads(self.body)


class FairleadError(Exception):
    """The base of all errors of this package."""


class ProblemError(FairleadError):
    """The server answered that it did not do what was asked.

    :attr:`outcome` says whether it is certain that nothing was done. Where it is :data:`UNKNOWN`, call again with
    ``idempotency_key=error.key``.
    """

    def __init__(self, answer: Answer) -> None:
        document = _members(answer.body)
        code = document.get("code")
        known = isinstance(code, str) and code != ""
        #: HTTP status, 400 or above.
        self.status: int = answer.status
        #: Stable name of what happened, such as ``sold_out``. Empty when what answered was no Fairlead server, but a
        #: proxy in front of it, say.
        self.code: str = code if known and isinstance(code, str) else ""
        #: What happened, for a person: in general, and this once.
        self.title: str = str(document.get("title", ""))
        self.detail: str = str(document.get("detail", ""))
        #: Whether the same request may succeed later. The client has tried already.
        self.retryable: bool = document.get("retryable") is True if known else answer.status in _GATEWAY
        #: NOT_APPLIED, APPLIED or UNKNOWN. A proxy that could not reach the server knows nothing of the effect.
        self.outcome: str = str(document.get("outcome", UNKNOWN)) if known else UNKNOWN
        #: Finds the request in the server's log.
        self.request_id: str = str(document.get("request_id", ""))
        #: The failed transfer, with ``insufficient_funds``; the one that has the reference, with ``reference_taken``.
        self.transfer: str = str(document.get("transfer", ""))
        #: The owners that wait for each other, with ``deadlock``.
        self.cycle: list[str] = list(document.get("cycle") or [])
        #: Why the server is not ready, in answers of /readyz, which are no problem documents.
        self.reason: str = str(document.get("reason", ""))
        #: Seconds that the server asked to wait; 0 when it did not.
        self.retry_after: float = retry_after(answer.headers.get("retry-after", ""))
        #: The idempotency key of the call; empty where it had none.
        self.key: str = answer.key
        #: The whole document, with members that this version does not know.
        self.document: dict[str, Any] = document
        super().__init__(answer)

    def __str__(self) -> str:
        if self.reason:
            return f"the server is not ready: {self.reason}"
        if not self.code:
            return f"the answer was {self.status}, and no problem document"
        return f"{self.detail or self.title} ({self.code})"


class UnansweredError(FairleadError):
    """No answer came, at any attempt. What was asked was done once or not at all: call again with
    ``idempotency_key=error.key`` to learn which. ``__cause__`` is what went wrong the last time."""

    def __init__(self, key: str, attempts: int) -> None:
        super().__init__(key, attempts)
        self.key = key  #: the idempotency key of the call; empty where it had none
        self.attempts = attempts  #: how often the request was sent

    def __str__(self) -> str:
        under = f" with Idempotency-Key {self.key}" if self.key else ""
        return f"no answer after {self.attempts} attempts{under}: {self.__cause__}"


class UnexpectedAnswerError(FairleadError):
    """A success without the document that was expected: what answered was no Fairlead server."""


def retry_after(text: str) -> float:
    """Seconds, from either form of Retry-After; 0 where there is none, or the time is past."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = email.utils.parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError):
        return 0.0
    return max(0.0, at.timestamp() - time.time())


def _members(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
