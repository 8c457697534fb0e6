"""Runs clients/scenario/scenario.json, as clients/scenario/README.md says."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import urllib.request
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import fairlead
from fairlead._operations import METHODS

STEP = {"do", "name", "client", "expect"}
MEMBERS = {
    "call": {"operation", "path", "body", "key", "repeat", "save", "save_key"},
    "pages": {"operation", "path"},
    "live": {"topic", "since", "on_event"},
    "fault": {"fault"},
    "cut": set(),
    "requests": {"method", "path"},
    "prove": {"campaign", "commitment", "root", "position"},
    "verify": {"folder"},
}
ATTRIBUTES = {"from": "from_", "async": "async_"}  # members that Python has other uses for


class Failure(Exception):
    """A step went otherwise than expected."""


def equal(what: str, want: Any, got: Any) -> None:
    if isinstance(want, dict) and set(want) == {"at_least"}:
        if not isinstance(got, (int, float)) or got < want["at_least"]:
            raise Failure(f"{what} is {got!r}, want at least {want['at_least']}")
    # True == 1 in Python, and not in JSON.
    elif want != got or isinstance(want, bool) != isinstance(got, bool):
        raise Failure(f"{what} is {got!r}, want {want!r}")


def at(document: Any, place: str) -> Any:
    for name in place.split("."):
        try:
            document = document[int(name) if isinstance(document, list) else name]
        except (KeyError, IndexError, TypeError) as err:
            raise Failure(f"there is no {place} in {document!r}") from err
    return document


def places(want: dict[str, Any], document: Any) -> None:
    for place, value in want.items():
        equal(place, value, at(document, place))


class Runner:
    def __init__(self, script: dict[str, Any]) -> None:
        self.script = script
        self.values: dict[str, Any] = {"run": uuid.uuid4().hex}
        self.control = os.environ["SCENARIO_CONTROL"]
        self.clients = {}
        for name, spec in script["clients"].items():
            if unknown := set(spec) - {"attempts", "key"}:
                raise Failure(f"unknown members of a client: {unknown}")
            retry = fairlead.Retry(attempts=spec["attempts"]) if "attempts" in spec else fairlead.Retry()
            self.clients[name] = fairlead.Client(os.environ["FAIRLEAD_URL"], spec.get("key", os.environ["FAIRLEAD_KEY"]), retry=retry)

    def run(self) -> int:
        for i, step in enumerate(self.script["steps"]):
            try:
                self.step(step)
            except Exception as err:
                raise Failure(f"scenario: step {i + 1} ({step['name']}): {err!r}") from err
        return len(self.script["steps"])

    def step(self, step: dict[str, Any]) -> None:
        # The steps within wait for their turn: their variables may be set only then.
        step = {name: value if name == "on_event" else self.fill(value) for name, value in step.items()}
        do = step["do"]
        if do not in MEMBERS:
            raise Failure(f"there is no step {do!r}")
        if unknown := set(step) - STEP - MEMBERS[do]:
            raise Failure(f"unknown members {unknown}")
        client = self.clients[step.get("client", "default")]
        expect = Expectation(step.get("expect", {}))
        getattr(self, do)(client, step, expect)
        expect.done()

    def fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.fill(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        if not isinstance(value, str):
            return value
        if match := re.fullmatch(r"\$\{(\w+)\}", value):
            return self.values[match[1]]
        return re.sub(r"\$\{(\w+)\}", lambda m: str(self.values[m[1]]), value)

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(self.control + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request) as response:
            content = response.read()
        return json.loads(content) if content else None

    def call(self, client: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        method = getattr(client, METHODS[step["operation"]])
        path = step.get("path", {})
        body: dict[str, Any] = {ATTRIBUTES.get(str(name), str(name)): value for name, value in step.get("body", {}).items()}
        if "key" in step:
            body["idempotency_key"] = step["key"]
        for _ in range(step.get("repeat", 1)):
            answer = fairlead.Answer()
            began = time.monotonic()
            error: fairlead.FairleadError | None = None
            try:
                method(*path.values(), **body, answer=answer)
            except fairlead.FairleadError as err:
                error = err
            took = (time.monotonic() - began) * 1000
            if "took_at_least_ms" in expect:
                equal("took_at_least_ms", {"at_least": expect.get("took_at_least_ms")}, took)
            self.check(expect, answer, error)
            document = error.document if isinstance(error, fairlead.ProblemError) else answer.json() if error is None else None
            for name, place in step.get("save", {}).items():
                self.values[name] = at(document, place)
            if "save_key" in step:
                self.values[step["save_key"]] = answer.key if error is None else error.key  # type: ignore[attr-defined]

    def check(self, expect: Expectation, answer: fairlead.Answer, error: fairlead.FairleadError | None) -> None:
        if expect.get("unanswered"):
            if not isinstance(error, fairlead.UnansweredError):
                raise Failure(f"want no answer, got {error!r}, {answer}")
            if "attempts" in expect:
                equal("attempts", expect.get("attempts"), error.attempts)
            return
        if "problem" in expect:
            problem(expect.get("problem"), error)
            return
        if error is not None:
            raise error
        for name in ("status", "attempts", "replayed"):
            if name in expect:
                equal(name, expect.get(name), getattr(answer, name))
        places(expect.get("body") or {}, answer.json())

    def pages(self, client: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        try:
            items = list(getattr(client, METHODS[step["operation"]])(*step["path"].values()))
        except fairlead.ProblemError as err:
            problem(expect.get("problem") or {"code": None}, err)
            return
        documents = [{name: getattr(item, name) for name in item.__dataclass_fields__} for item in items]
        if "count" in expect:
            equal("count", expect.get("count"), len(documents))
        if unique := expect.get("unique"):
            equal("different items", len(documents), len({at(item, unique) for item in documents}))
        if ascending := expect.get("ascending"):
            numbers = [at(item, ascending) for item in documents]
            if any(b <= a for a, b in zip(numbers, numbers[1:])):
                raise Failure(f"not ascending: {numbers}")
        places(expect.get("body") or {}, documents)

    def live(self, client: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        wanted = expect.get("count")
        types: dict[str, int] = {}
        count = 0
        try:
            with client.follow(step["topic"], step["since"]) as events:
                for event in events:
                    if event.seq == 0:
                        continue
                    count += 1
                    equal("the event's number", step["since"] + count, event.seq)
                    if count == 1 and "first_seq" in expect:
                        equal("first_seq", expect.get("first_seq"), event.seq)
                    types[event.type] = types.get(event.type, 0) + 1
                    for inner in step.get("on_event", {}).get(str(count), []):
                        self.step(inner)
                    if count == wanted:
                        break
        except fairlead.ProblemError as err:
            problem(expect.get("problem") or {"code": None}, err)
            return
        equal("count", wanted, count)
        if "types" in expect:
            equal("types", expect.get("types"), types)

    def fault(self, _: fairlead.Client, step: dict[str, Any], __: Expectation) -> None:
        self.ask("/faults", step["fault"])

    def cut(self, _: fairlead.Client, __: dict[str, Any], ___: Expectation) -> None:
        self.ask("/cut")

    def requests(self, _: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        seen = [r for r in self.ask("/requests")["requests"] if (r["method"], r["path"]) == (step.get("method"), step.get("path"))]
        if "count" in expect:
            equal("count", expect.get("count"), len(seen))
        if "keys" in expect:
            equal("keys", expect.get("keys"), len({r["key"] for r in seen}))
        if "after" in expect:
            equal("after", expect.get("after"), seen[-1]["after"] if seen else "")

    def prove(self, client: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        valid, winners = True, None
        try:
            if "position" in step:
                fairlead.verify_inclusion(client.inclusion_proof(step["campaign"], step["position"]), step["root"])
            else:
                draw = fairlead.verify_draw(client.proof(step["campaign"]), commitment=step.get("commitment"), root=step.get("root"))
                winners = len(draw.winners)
        except fairlead.ProofError:
            valid = False
        equal("valid", expect.get("valid"), valid)
        if "winners" in expect:
            equal("winners", expect.get("winners"), winners)

    def verify(self, _: fairlead.Client, step: dict[str, Any], expect: Expectation) -> None:
        files = sorted((Path(os.environ["SCENARIO_PROOFS"]) / step["folder"]).glob("*.json"))
        valid = 0
        for file in files:
            document = file.read_bytes()
            try:
                if file.name.startswith("inclusion-"):
                    fairlead.verify_inclusion(document, own_root(document))
                else:
                    fairlead.verify_draw(document)
                valid += 1
            except fairlead.ProofError:
                pass
        equal("count", expect.get("count"), len(files))
        equal("valid", expect.get("valid"), valid)


def own_root(document: bytes) -> str:
    """The root that a document names, which an inclusion proof is compared with here. Where there is none, it is not valid anyhow."""
    try:
        return str(json.loads(document)["root"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""


def problem(want: dict[str, Any], error: fairlead.FairleadError | None) -> None:
    if not isinstance(error, fairlead.ProblemError):
        raise Failure(f"want a problem, got {error!r}") from error
    if unknown := set(want) - {"status", "code", "retryable", "outcome", "retry_after", "key"}:
        raise Failure(f"unknown members of a problem: {unknown}")
    for name, value in want.items():
        equal(f"{name} of {error!r}", value, getattr(error, name))


class Expectation:
    """What is expected of a step. It notes what was looked at, so that no member is passed over."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.members, self.asked = members, set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def get(self, name: str) -> Any:
        self.asked.add(name)
        return self.members.get(name)

    def done(self) -> None:
        if left := set(self.members) - self.asked:
            raise Failure(f"nothing looked at {left}")


if __name__ == "__main__":
    try:
        passed = Runner(json.loads(Path(os.environ["SCENARIO_FILE"]).read_bytes())).run()
    except Failure as failure:
        sys.exit(str(failure))
    print(f"scenario: {passed} steps passed")
