"""The client for asyncio: the one of :mod:`fairlead._client`, in threads."""

from __future__ import annotations

import asyncio
import functools
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ._async_operations import AsyncOperations
from ._client import Client, Retry
from ._errors import Answer
from ._follow import Event, Follower

T = TypeVar("T")


class AsyncClient(AsyncOperations):
    """A :class:`Client` whose methods are coroutines, and whose iterators are asynchronous. Its requests are made by threads,
    at most ``concurrency`` at a time; further calls wait for one.

    A call that is cancelled is not sent again. The attempt that is under way goes on in its thread, so what was asked may
    still be done: the outcome is unknown. Give such a call an idempotency key of your own.
    """

    def __init__(
        self,
        base_url: str,
        key: str = "",
        *,
        retry: Retry = Retry(),
        timeout: float = 120.0,
        ssl_context: ssl.SSLContext | None = None,
        concurrency: int = 32,
    ) -> None:
        """concurrency: how many requests may be under way at a time; the others as of :class:`Client`"""
        self._client = Client(base_url, key, retry=retry, timeout=timeout, ssl_context=ssl_context)
        self._threads = ThreadPoolExecutor(concurrency, "fairlead")

    async def close(self) -> None:
        """Waits for the attempts under way, and closes the connections."""
        await asyncio.to_thread(self._threads.shutdown)
        self._client.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        answer: Answer | None = None,
    ) -> Any:
        """Sends any request. See :meth:`Client.call`."""
        return await self._invoke(method, path, object, query=query, body=body, key=idempotency_key, answer=answer)

    def follow(self, topic: str, since: int | None = None) -> AsyncFollower:
        """Iterates over the events of a topic. See :meth:`Client.follow`."""
        return AsyncFollower(self._client.follow(topic, since))

    async def _invoke(
        self,
        method: str,
        path: str,
        kind: type[T] | None,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        answer: Answer | None = None,
    ) -> T:
        invoke = functools.partial(self._client._invoke, method, path, kind, query=query, body=body, key=key, answer=answer)
        return await self._in_thread(invoke)

    async def _pages(self, path: str, kind: type[T], query: Mapping[str, Any], limit: int) -> AsyncIterator[T]:
        after: str | None = None
        while True:
            page, after = await self._in_thread(functools.partial(self._client._page, path, kind, query, limit, after))
            for item in page:
                yield item
            if after is None:
                return

    async def _in_thread(self, call: Callable[..., T]) -> T:
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, functools.partial(call, stop=stop))
        except asyncio.CancelledError:
            stop.set()
            raise


class AsyncFollower(AsyncIterator[Event]):
    """An asynchronous iterator over the events of a topic, with a thread of its own. Leave it with ``async with``, or call
    :meth:`aclose`: the thread ends then. A cancelled wait closes it too."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._thread = ThreadPoolExecutor(1, "fairlead-follow")

    @property
    def last(self) -> int | None:
        """The number of the last event, from which ``follow(topic, last)`` goes on."""
        return self._follower.last

    async def aclose(self) -> None:
        """Ends the iteration."""
        self._follower.close()
        await asyncio.to_thread(self._thread.shutdown)
        self._follower.__exit__()

    async def __aenter__(self) -> AsyncFollower:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncFollower:
        return self

    async def __anext__(self) -> Event:
        try:
            # StopIteration can't pass through a future.
            event = await asyncio.get_running_loop().run_in_executor(self._thread, next, self._follower, None)
        except asyncio.CancelledError:
            self._follower.close()
            raise
        if event is None:
            raise StopAsyncIteration
        return event
