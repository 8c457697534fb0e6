from __future__ import annotations

import asyncio
import threading
import unittest
from unittest import mock

from support import Server, event, lose, refuse, reply, stream

from fairlead import AsyncClient, Client, ProblemError, Retry, UnansweredError, _client, _follow

SUBSCRIBED = b": subscribed 9\n\n"
DROPPED = b'event: dropped\ndata: {"op":"dropped","topic":"auction:1","last_seq":4}\n\n'


def resumed(server: Server) -> list[str | None]:
    return [headers.get("Last-Event-ID") for _, _, headers, _ in server.requests]


class FollowTest(unittest.TestCase):
    def test_every_event_once_whatever_breaks(self) -> None:
        plan = [
            stream(SUBSCRIBED + event(1) + event(2)[:40]),  # within an event
            lose,
            stream(SUBSCRIBED, event(2)[:-1]),  # before the line that ends it
            refuse(503, "overloaded"),
            stream(event(2), event(0, "countdown"), event(3) + DROPPED),
            stream(event(3), b":\n\n", event(4), event(4), event(5)),  # a server that repeats itself
        ]
        with Server(*plan) as server, Client(server.url) as client, client.follow("auction:1", 0) as events:
            got = [next(events) for _ in range(6)]
            self.assertEqual([e.seq for e in got], [1, 2, 0, 3, 4, 5])
            self.assertEqual((got[0].topic, got[0].type, got[0].data), ("auction:1", "bid.placed", {"amount": 1}))
            self.assertEqual(resumed(server), ["0", "1", "1", "1", "1", "3"])
            self.assertEqual(events.last, 5)
            self.assertEqual(server.requests[0][1], "/v1/events?topic=auction%3A1")

    def test_what_comes_from_now_on_has_no_gap_either(self) -> None:
        with Server(stream(SUBSCRIBED), stream(SUBSCRIBED, event(10))) as server, Client(server.url) as client:
            with client.follow("auction:1") as events:
                self.assertEqual(next(events).seq, 10)
            self.assertEqual(resumed(server), [None, "9"])

    def test_what_ends_it(self) -> None:
        with Server(refuse(410, "events_expired", retryable=False)) as server, Client(server.url) as client:
            events = client.follow("auction:1", 3)
            with self.assertRaises(ProblemError):
                next(events)
            self.assertEqual(list(events), [])
        with Server(*[lose] * 9) as server, Client(server.url, retry=Retry(attempts=3)) as client:
            with self.assertRaises(UnansweredError):
                next(client.follow("auction:1"))
            self.assertEqual(len(server.requests), 3)
        with Server(refuse(503, "overloaded", Retry_After="3600")) as server, Client(server.url) as client:
            with self.assertRaises(ProblemError):
                next(client.follow("auction:1"))

    def test_accepted_connections_use_up_nothing(self) -> None:
        plan = [stream(SUBSCRIBED), lose] * 4 + [stream(event(1))]
        with Server(*plan) as server, Client(server.url, retry=Retry(attempts=2)) as client, client.follow("auction:1", 0) as events:
            self.assertEqual(next(events).seq, 1)
            self.assertEqual(len(server.requests), 9)

    def test_a_silent_connection_is_left(self) -> None:
        hold = threading.Event()
        self.addCleanup(hold.set)
        with mock.patch.object(_follow, "SILENCE_SECONDS", 0.2):
            # A machine that is slow may leave some of the others, too.
            with Server(stream(SUBSCRIBED, hold=hold), *[stream(event(1), hold=hold)] * 50) as server, Client(server.url) as client:
                with client.follow("auction:1", 0) as events:
                    self.assertEqual(next(events).seq, 1)
                self.assertGreaterEqual(len(server.requests), 2)
                hold.set()

    def test_another_thread_closes_it(self) -> None:
        hold = threading.Event()
        self.addCleanup(hold.set)
        with Server(stream(event(1), hold=hold)) as server, Client(server.url) as client:
            events = client.follow("auction:1", 0)
            next(events)
            thread = threading.Thread(target=lambda: self.assertEqual(list(events), []))
            thread.start()
            events.close()
            thread.join()
            hold.set()

    def test_since_is_checked(self) -> None:
        with Client("http://127.0.0.1:1") as client, self.assertRaises(ValueError):
            client.follow("auction:1", -1)


class AsyncTest(unittest.IsolatedAsyncioTestCase):
    async def test_calls_pages_and_problems(self) -> None:
        moved = {"id": "1", "account": "ann", "amount": 5, "currency": "EUR", "available": 5}
        plan = [lose, reply(moved, 201), reply({"items": [1], "next": "c"}), reply({"items": [2], "next": None}), reply({"new": 1}),
                refuse(404, "not_found", retryable=False)]
        with Server(*plan) as server:
            async with AsyncClient(server.url, "k") as client:
                self.assertEqual((await client.deposit(account="ann", amount=5)).available, 5)
                self.assertEqual([n async for n in client.multidraw_results("m")], [1, 2])
                self.assertEqual(await client.call("POST", "/v1/new"), {"new": 1})
                with self.assertRaises(ProblemError):
                    await client.get_account("x")
                self.assertEqual(server.keys()[0], server.keys()[1])

    async def test_many_at_a_time(self) -> None:
        with Server() as server:
            async with AsyncClient(server.url, concurrency=4) as client:
                await asyncio.gather(*(client.ready() for _ in range(40)))
            self.assertEqual(len(server.requests), 40)

    async def test_a_cancelled_call_is_not_sent_again(self) -> None:
        asked = threading.Event()

        def first(h) -> None:  # type: ignore[no-untyped-def]
            asked.set()
            refuse(503, "overloaded")(h)

        with Server(first) as server, mock.patch.object(_client, "FIRST_PAUSE_SECONDS", 20.0):
            async with AsyncClient(server.url) as client:
                call = asyncio.ensure_future(client.ready())
                await asyncio.to_thread(asked.wait)
                call.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await call
            self.assertEqual(len(server.requests), 1)

    async def test_following(self) -> None:
        hold = threading.Event()
        self.addCleanup(hold.set)
        with Server(stream(event(1)), stream(event(2), hold=hold)) as server:
            async with AsyncClient(server.url) as client, client.follow("auction:1", 0) as events:
                self.assertEqual([(await events.__anext__()).seq, (await events.__anext__()).seq], [1, 2])
                waiting = asyncio.ensure_future(events.__anext__())
                await asyncio.sleep(0)
                waiting.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await waiting
                self.assertEqual(events.last, 2)
                self.assertEqual([e async for e in events], [])
            hold.set()


if __name__ == "__main__":
    unittest.main()
