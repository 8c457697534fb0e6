from __future__ import annotations

import email.utils
import time
import unittest
from datetime import datetime, timedelta, timezone
from unittest import mock

from support import Server, cut, lose, refuse, reply

from fairlead import NOT_APPLIED, UNKNOWN, Answer, Client, ProblemError, Retry, UnansweredError, UnexpectedAnswerError, types
from fairlead import _client, _codec

MOVED = {"id": "1", "account": "ann", "amount": 5, "currency": "EUR", "available": 5}


class CallTest(unittest.TestCase):
    def test_a_call_is_repeated_under_one_key(self) -> None:
        for name, plan in {
            "lost": [lose, lose],
            "cut": [cut],
            "overloaded": [refuse(503, "overloaded")],
            "limited": [refuse(429, "rate_limited")],
            "in flight": [refuse(409, "in_flight")],
            "gateway": [reply(b"<html>", 502), reply(b"<html>", 503), reply(b"<html>", 504)],
            "no document": [reply(b"[]", 503)],
        }.items():
            with self.subTest(name), Server(*plan, reply(MOVED, 201)) as server, Client(server.url, "k") as client:
                answer = Answer()
                moved = client.deposit(account="ann", amount=5, answer=answer)
                self.assertEqual(moved.available, 5)
                self.assertEqual(server.keys(), [answer.key] * (len(plan) + 1))
                self.assertEqual((answer.status, answer.attempts), (201, len(plan) + 1))

    def test_two_calls_have_two_keys_and_a_read_has_none(self) -> None:
        with Server(reply(MOVED, 201), reply(MOVED, 201), reply({})) as server, Client(server.url) as client:
            client.deposit(account="ann", amount=5)
            client.deposit(account="ann", amount=5)
            client.call("GET", "/v1/new")
            first, second, read = server.keys()
            self.assertNotEqual(first, second)
            self.assertIsNone(read)

    def test_what_is_sent(self) -> None:
        with Server(*[reply(b"", 204)] * 3, reply({"items": [], "next": None})) as server, Client(server.url + "/base/", "secret") as client:
            client.release_lock("a/b ?", idempotency_key="my-key")
            client.call("POST", "/v1/x", {"s": "ü", "none": None})
            client.call("POST", "/v1/y")
            list(client.transfers_by_reference(reference="a&b"))
            (method, path, headers, body), post, empty, page = server.requests
            self.assertEqual((method, path, body), ("DELETE", "/base/v1/locks/a%2Fb%20%3F", b""))
            self.assertEqual((headers["Authorization"], headers["Idempotency-Key"]), ("Bearer secret", "my-key"))
            self.assertEqual(post[3], '{"s":"ü"}'.encode())
            self.assertEqual(empty[3], b"{}")
            self.assertEqual(page[1], "/base/v1/transfers?reference=a%26b&limit=200")

    def test_a_body_is_made_of_arguments(self) -> None:
        lock = {"id": "1", "owner": "o", "tokens": {"a": 7}, "expires_at": "2026-01-01T00:00:30.123456Z"}
        with Server(reply(lock, 201)) as server, Client(server.url) as client:
            granted = client.acquire_lock(keys=["a"], owner="o", ttl=timedelta(seconds=1.5))
            self.assertEqual(server.requests[0][3], b'{"keys":["a"],"owner":"o","ttl":"1500000us"}')
            self.assertEqual(granted.tokens, {"a": 7})
            self.assertEqual(granted.expires_at, datetime(2026, 1, 1, 0, 0, 30, 123456, timezone.utc))

    def test_ids_and_keys_are_checked(self) -> None:
        with Client("http://127.0.0.1:1") as client:
            for key in ("", "a b", "é", "x" * 256, "a\n"):
                with self.assertRaises(ValueError):
                    client.deposit(account="ann", amount=5, idempotency_key=key)
            with self.assertRaises(ValueError):
                client.get_account("")
        for url in ("127.0.0.1:8080", "ftp://x", "http://"):
            with self.assertRaises(ValueError):
                Client(url)

    def test_a_problem(self) -> None:
        with Server(refuse(402, "insufficient_funds", retryable=False, outcome=NOT_APPLIED)) as server, Client(server.url) as client:
            with self.assertRaises(ProblemError) as caught:
                client.withdraw(account="ann", amount=5, idempotency_key="k")
            error = caught.exception
            self.assertEqual((error.status, error.code, error.outcome, error.retryable, error.key),
                             (402, "insufficient_funds", NOT_APPLIED, False, "k"))
            self.assertEqual(str(error), "d (insufficient_funds)")
            self.assertEqual(len(server.requests), 1)

    def test_retry_after_is_honoured_and_bounded(self) -> None:
        with Server(refuse(503, "overloaded", Retry_After="1"), reply({"status": "ok"})) as server, Client(server.url) as client:
            began = time.monotonic()
            client.ready()
            self.assertGreaterEqual(time.monotonic() - began, 1)
        with Server(refuse(503, "overloaded", Retry_After="3600")) as server, Client(server.url) as client:
            with self.assertRaises(ProblemError) as caught:
                client.ready()
            self.assertEqual(caught.exception.retry_after, 3600)
        in_an_hour = email.utils.formatdate(time.time() + 3600, usegmt=True)
        with Server(refuse(503, "overloaded", Retry_After=in_an_hour)) as server, Client(server.url) as client:
            with self.assertRaises(ProblemError) as caught:
                client.ready()
            self.assertTrue(3000 < caught.exception.retry_after <= 3600)

    def test_attempts_are_bounded(self) -> None:
        with Server(*[lose] * 9) as server, Client(server.url, retry=Retry(attempts=3)) as client:
            with self.assertRaises(UnansweredError) as caught:
                client.deposit(account="ann", amount=5, idempotency_key="k")
            self.assertEqual((caught.exception.attempts, caught.exception.key, len(server.requests)), (3, "k", 3))
            self.assertIsNotNone(caught.exception.__cause__)

    def test_an_attempt_is_bounded_in_time(self) -> None:
        def trickle(h) -> None:  # type: ignore[no-untyped-def]
            h.send_response(200)
            h.send_header("Content-Length", "1000000")
            h.end_headers()
            try:
                while True:
                    h.wfile.write(b" ")
                    time.sleep(0.01)
            except OSError:
                h.breaks()

        with Server(trickle) as server, Client(server.url, retry=Retry(attempts=1), timeout=0.3) as client:
            with self.assertRaises(UnansweredError) as caught:
                client.ready()
            self.assertIsInstance(caught.exception.__cause__, TimeoutError)

    def test_what_is_no_fairlead_server(self) -> None:
        for answer in (reply(b"<html>"), reply(["hello"]), reply(b"", 302)):
            with Server(answer) as server, Client(server.url) as client, self.assertRaises(UnexpectedAnswerError):
                client.get_account("ann")

    def test_a_kept_connection_that_the_server_has_closed_is_not_used(self) -> None:
        def last(h) -> None:  # type: ignore[no-untyped-def]
            reply({"status": "ok"})(h)
            h.breaks()  # Without a word about it.

        with Server(last, reply({"status": "ok"})) as server, Client(server.url, retry=Retry(attempts=1)) as client:
            client.ready()
            (_, deadline), = client._transport._idle
            while not deadline.readable():
                time.sleep(0.001)
            client.ready()

    def test_pages(self) -> None:
        pages = [reply({"items": [1, 2], "next": "c 1"}), lose, reply({"items": [3], "next": "c2"}), reply({"items": [], "next": None})]
        with Server(*pages) as server, Client(server.url) as client:
            self.assertEqual(list(client.multidraw_results("m", limit=2)), [1, 2, 3])
            self.assertEqual([path for _, path, _, _ in server.requests], [
                "/v1/multidraws/m/results?limit=2", "/v1/multidraws/m/results?limit=2&after=c%201",
                "/v1/multidraws/m/results?limit=2&after=c%201", "/v1/multidraws/m/results?limit=2&after=c2"])

    def test_reads_name_the_latest_place_in_the_log(self) -> None:
        answers = [reply(MOVED, 201, Fairlead_After=at) for at in ("0/FF", "1/0", "0/FFFFFFFF", "x/1", "1/123456789")]
        with Server(*answers, reply({"status": "ok"})) as server, Client(server.url) as client:
            for _ in answers:
                client.deposit(account="ann", amount=1)
            client.ready()
            self.assertEqual(server.requests[-1][2]["Fairlead-After"], "1/0")
            self.assertNotIn("Fairlead-After", server.requests[-2][2])


class DoubtTest(unittest.TestCase):
    def outcome(self, *plan, key: str = "k", client: Client) -> str:  # type: ignore[no-untyped-def]
        self.server.plan = list(plan)
        with self.assertRaises(ProblemError) as caught:
            client.deposit(account="ann", amount=1, idempotency_key=key)
        return caught.exception.outcome

    def test_once_unknown_only_a_stored_answer_settles_it(self) -> None:
        held = refuse(409, "lock_held", outcome=NOT_APPLIED)
        away = refuse(503, "unavailable", outcome=NOT_APPLIED)
        gone = refuse(404, "not_found", retryable=False, outcome=NOT_APPLIED)
        poor = refuse(402, "insufficient_funds", retryable=False, outcome=NOT_APPLIED)
        with Server() as self.server, Client(self.server.url, retry=Retry(attempts=2)) as client:
            for first in (lose, refuse(503, "outcome_unknown"), reply(b"<html>", 502)):
                self.assertEqual(self.outcome(away, away, client=client), NOT_APPLIED)
                self.assertEqual(self.outcome(first, away, client=client), UNKNOWN)
                self.assertEqual(self.outcome(held, held, client=client), UNKNOWN)
                self.assertEqual(self.outcome(gone, client=client), UNKNOWN)
                self.assertEqual(self.outcome(gone, key="other", client=client), NOT_APPLIED)
                self.assertEqual(self.outcome(poor, client=client), NOT_APPLIED)
                self.assertEqual(self.outcome(gone, client=client), NOT_APPLIED)
                self.assertEqual(self.outcome(first, away, client=client), UNKNOWN)
                self.server.plan = [reply(MOVED, 201)]
                client.deposit(account="ann", amount=1, idempotency_key="k")

    def test_an_interrupted_call_is_in_doubt(self) -> None:
        with Server() as self.server, Client(self.server.url) as client:
            with mock.patch.object(client._transport, "send", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
                client.deposit(account="ann", amount=1, idempotency_key="k")
            self.assertEqual(self.outcome(refuse(404, "not_found", retryable=False, outcome=NOT_APPLIED), client=client), UNKNOWN)

    def test_what_is_remembered_is_bounded(self) -> None:
        doubts = _client.Doubts()
        for i in range(_client._MAX_DOUBTS + 5):
            doubts.unanswered(("POST", "/", str(i)))
        self.assertEqual(len(doubts._commands), _client._MAX_DOUBTS)
        self.assertNotIn(("POST", "/", "4"), doubts._commands)


class CodecTest(unittest.TestCase):
    def test_answers_of_a_newer_server(self) -> None:
        moved = _codec.decode(types.Movement, {**MOVED, "new": {"x": 1}})
        self.assertEqual(moved.reference, None)
        edge = _codec.decode(types.Transfer, {"from": "a", "status": "a new one", "completed_at": None, "legs": [{"from": "x"}]})
        self.assertEqual((edge.from_, edge.status, edge.completed_at, edge.memo), ("a", "a new one", None, None))
        self.assertEqual(edge.legs[0].from_, "x")

    def test_times(self) -> None:
        for text, want in {
            "2026-01-01T00:00:00Z": datetime(2026, 1, 1, tzinfo=timezone.utc),
            "2026-01-01T00:00:00.1Z": datetime(2026, 1, 1, 0, 0, 0, 100_000, timezone.utc),
            "2026-01-01T02:00:00.000001999+02:00": datetime(2026, 1, 1, 0, 0, 0, 1, timezone.utc),
        }.items():
            self.assertEqual(_codec.decode(datetime, text), want)
        self.assertEqual(_codec.to_json(datetime(2026, 1, 1, 0, 0, 0, 1, timezone.utc)), "2026-01-01T00:00:00.000001Z")
        with self.assertRaises(ValueError):
            _codec.to_json(datetime(2026, 1, 1))

    def test_requests(self) -> None:
        prize = types.PrizeRequest(name="p", quantity=1)
        leg = types.LegRequest(from_="a", to="b", amount=1)
        self.assertEqual(_codec.to_json({"prizes": (prize, {"name": "q"}), "legs": [leg]}), {
            "prizes": [{"name": "p", "quantity": 1}, {"name": "q"}], "legs": [{"from": "a", "to": "b", "amount": 1}]})


if __name__ == "__main__":
    unittest.main()
