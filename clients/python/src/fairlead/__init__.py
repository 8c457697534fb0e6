"""The Python client of a Fairlead server.

:class:`Client` has a method for every operation; :class:`AsyncClient` has the same as coroutines. :mod:`fairlead.types` has
the documents, and :mod:`fairlead.verify` verifies draws offline.
"""

from . import types
from ._async import AsyncClient, AsyncFollower
from ._client import Client, Retry
from ._errors import APPLIED, NOT_APPLIED, UNKNOWN, Answer, FairleadError, ProblemError, UnansweredError, UnexpectedAnswerError
from ._follow import Event, Follower
from .verify import BeaconUnverifiedError, ProofError, SignedMessage, verify_draw, verify_inclusion

__all__ = [
    "APPLIED",
    "NOT_APPLIED",
    "UNKNOWN",
    "Answer",
    "AsyncClient",
    "AsyncFollower",
    "BeaconUnverifiedError",
    "Client",
    "Event",
    "FairleadError",
    "Follower",
    "ProblemError",
    "ProofError",
    "Retry",
    "SignedMessage",
    "UnansweredError",
    "UnexpectedAnswerError",
    "types",
    "verify_draw",
    "verify_inclusion",
]
