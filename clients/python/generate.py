"""Writes the types and the methods of the Python client from docs/openapi.json.

    python3 clients/python/generate.py OPENAPI OUT

puts types.py, _operations.py and _async_operations.py into the folder OUT. scripts/generate.sh runs it, and a test
compares its files with those in src/fairlead. An operation without a name below is an error, so that a new one gets a
good name.
"""

from __future__ import annotations

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

# Operations by their operationId. A name of None: reached in another way, or no document.
NAMES: dict[str, str | None] = {
    "get-docs": None, "get-docs-asset": None, "get-openapi-json": None, "get-metrics": None,
    "get-p-auctions-id": None, "get-p-campaigns-id": None, "get-p-check": None,
    "get-events": None,  # Client.follow
    "get-live": None, "post-commands": None,
    "get-healthz": "healthy", "get-readyz": "ready",
    "get-keys": "api_keys", "post-keys": "register_key", "delete-keys-id": "revoke_key",
    "post-accounts": "create_account", "get-accounts-id": "get_account", "get-accounts-id-entries": "entries",
    "get-accounts-id-holds": "account_holds", "get-accounts-id-aliases": "alias", "get-accounts-id-bids": "account_bids",
    "get-accounts-id-purchases": "account_purchases",
    "post-deposits": "deposit", "post-withdrawals": "withdraw", "post-transfers": "transfer",
    "get-transfers-id": "get_transfer", "get-transfers": "transfers_by_reference",
    "post-holds": "hold", "get-holds-id": "get_hold", "post-holds-id-capture": "capture_hold",
    "post-holds-id-release": "release_hold", "get-integrity": "integrity",
    "get-campaigns": "campaigns", "post-campaigns": "create_campaign", "get-campaigns-id": "get_campaign",
    "get-campaigns-id-statistics": "statistics", "post-campaigns-id-publish": "publish_campaign",
    "post-campaigns-id-cancel": "cancel_campaign", "post-campaigns-id-purchases": "buy",
    "get-campaigns-id-purchases": "purchases", "get-campaigns-id-positions": "positions",
    "post-campaigns-id-draw": "draw", "get-campaigns-id-draw": "get_draw", "get-campaigns-id-proof": "proof",
    "get-campaigns-id-proof-positions-position": "inclusion_proof",
    "get-auctions": "auctions", "post-auctions": "create_auction", "get-auctions-id": "get_auction",
    "post-auctions-id-start": "start_auction", "post-auctions-id-cancel": "cancel_auction",
    "post-auctions-id-bids": "bid", "get-auctions-id-bids": "bids", "get-auctions-id-min-winning-bid": "min_winning_bid",
    "get-auctions-id-leaderboard": "leaderboard", "get-auctions-id-winners": "auction_winners",
    "get-p-campaigns-id-state": "public_campaign", "get-p-campaigns-id-positions-position": "public_position",
    "get-p-auctions-id-state": "public_auction",
    "get-multidraws": "multidraws", "post-multidraws": "create_multidraw", "get-multidraws-id": "get_multidraw",
    "get-multidraws-id-results": "multidraw_results", "get-multidraws-id-proof": "multidraw_proof",
    "post-multidraws-id-resume": "resume_multidraw", "post-multidraws-id-rollback": "rollback_multidraw",
    "get-locks": "locks", "post-locks": "acquire_lock", "delete-locks-id": "release_lock",
    "post-locks-id-renew": "renew_lock",
    "get-targets": "targets", "post-targets": "create_target", "get-targets-id": "get_target",
    "post-targets-id-secret": "rotate_secret", "post-targets-id-credentials": "replace_credentials",
    "post-targets-id-pause": "pause_target", "post-targets-id-resume": "resume_target",
    "get-subscriptions": "subscriptions", "post-subscriptions": "create_subscription",
    "get-subscriptions-id": "get_subscription", "delete-subscriptions-id": "delete_subscription",
    "get-subscriptions-id-topics": "subscription_topics", "post-subscriptions-id-pause": "pause_subscription",
    "post-subscriptions-id-resume": "resume_subscription", "post-subscriptions-id-replay": "replay_topic",
    "get-publications": "publications", "post-publications": "create_publication",
    "get-publications-id": "get_publication", "get-publications-id-attempts": "attempts",
    "post-publications-id-schedule": "schedule", "post-publications-id-publish": "publish_now",
    "post-publications-id-cancel": "cancel_publication", "post-publications-id-retry": "retry_publication",
    "get-automations": "automations", "post-automations": "create_automation", "get-automations-id": "get_automation",
    "get-automations-id-firings": "firings", "post-automations-id-pause": "pause_automation",
    "post-automations-id-resume": "resume_automation", "post-automations-id-cancel": "cancel_automation",
    "get-cross-transfers": "cross_transfers", "post-cross-transfers": "cross_transfer",
    "get-cross-transfers-id": "get_cross_transfer", "post-cross-transfers-id-retry": "retry_cross_transfer",
    "post-cross-transfers-id-compensate": "compensate_cross_transfer", "post-cross-legs": "execute_cross_leg",
    "get-in-doubt": "in_doubt", "post-in-doubt-adopt": "adopt",
    "get-sagas": "sagas", "get-sagas-id": "get_saga", "post-sagas-id-retry": "retry_saga",
    "post-sagas-id-compensate": "compensate_saga",
    "get-admin-accounts": "accounts", "get-admin-accounts-id-balances": "balances",
    "get-admin-accounts-id-entries": "admin_entries", "get-admin-accounts-id-holds": "admin_holds",
    "get-admin-auctions": "admin_auctions", "get-admin-auctions-id-bids": "admin_bids",
    "get-admin-auctions-id-chart": "bid_chart", "get-admin-audit": "audits", "get-admin-automations": "admin_automations",
    "get-admin-automations-id-firings": "admin_firings", "get-admin-campaigns": "admin_campaigns",
    "get-admin-campaigns-id-map": "sale_map", "get-admin-campaigns-id-purchases": "admin_purchases",
    "get-admin-campaigns-id-sales": "sales", "get-admin-database-waits": "database_waits",
    "get-admin-deadlocks": "deadlocks", "get-admin-idempotency": "key_record", "get-admin-keys": "admin_keys",
    "get-accounts-id-proof": "account_proof", "get-auctions-id-log": "auction_log", "get-campaigns-id-log": "campaign_log",
    "get-campaigns-id-seal": "campaign_seal",
    "get-multidraws-id-log": "multidraw_log", "get-log-checkpoint": None, "get-log-key": None, "get-log-tile-level-tile": None,
    "get-admin-measurements": "measurements", "get-admin-multidraws": "admin_multidraws", "get-admin-names": "names",
    "get-admin-overview": "overview", "get-admin-publications": "admin_publications",
    "get-admin-publications-id-attempts": "admin_attempts", "get-admin-sagas": "admin_sagas",
    "get-admin-search": "search", "get-admin-targets": "admin_targets", "get-admin-transfers": "transfers",
}
# Documents that verifiers read: they come as bytes.
RAW = {"ProofDocument", "InclusionDocument", "MultidrawProofDocument"}
# Types that are written by hand, or belong to what has no method.
SKIPPED = {"Problem", "NoFields", "Batch", "BatchRequest", "BatchedRequest", "Result", "ProofBeacon", "ProofPosition",
           "ProofPrize", "ProofSeal", "ProofVersions"} | RAW
# The most items that the server puts on a page, where it is not 200.
PAGE_LIMITS = {"get-multidraws-id-results": 10_000}

HEAD = '"""%s\n\nMade by generate.py from docs/openapi.json: do not edit.\n"""\n\nfrom __future__ import annotations\n\n'
WIDTH = 120


def python_name(name: str) -> str:
    name = name.replace("-", "_").lower()
    return name + "_" if keyword.iskeyword(name) else name


def ref(schema: dict[str, Any]) -> str | None:
    return schema["$ref"].rsplit("/", 1)[1] if "$ref" in schema else None


def annotation(schema: dict[str, Any], request: bool, prefix: str = "") -> str:
    """The annotation of a value of the schema, without its being absent."""
    if name := ref(schema):
        return f"{prefix}{name} | Mapping[str, Any]" if request else f"{prefix}{name}"
    if "anyOf" in schema:
        return " | ".join(annotation(one, request, prefix) for one in schema["anyOf"])
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    out = []
    for kind in kinds:
        if kind == "string" and "enum" in schema and request:
            out.append("Literal[" + ", ".join(f'"{v}"' for v in schema["enum"] if v is not None) + "]")
        elif kind == "string" and schema.get("format") == "date-time":
            out.append("datetime")
        elif kind == "string" and request and schema.get("description", "").startswith("Go duration"):
            out.append("str | timedelta")
        elif kind == "array":
            inner = annotation(schema["items"], request, prefix)
            out.append(f"Sequence[{inner}]" if request else f"list[{inner}]")
        elif kind == "object" and "additionalProperties" in schema and schema["additionalProperties"]:
            out.append(f"dict[str, {annotation(schema['additionalProperties'], request, prefix)}]")
        else:
            out.append({"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None",
                        "object": "dict[str, Any]"}[kind])
    return " | ".join(out) or "Any"


def members(schema: dict[str, Any], request: bool, prefix: str = "") -> list[tuple[str, str, bool, str]]:
    """Name, annotation, whether it is required, and description of each member, required ones first."""
    required = set(schema.get("required", []))
    out = []
    for name, value in schema.get("properties", {}).items():
        text = annotation(value, request, prefix)
        if name not in required and "None" not in text.split(" | ") and text != "Any":
            text += " | None"
        out.append((name, text, name in required, value.get("description", "")))
    return sorted(out, key=lambda m: not m[2])


def comment(text: str, indent: str) -> str:
    return "".join(textwrap.indent(line, indent + "#: ") + "\n"
                   for line in textwrap.wrap(text, WIDTH - len(indent) - 3))


def make_types(schemas: dict[str, Any], operations: list[Operation]) -> str:
    """The types, but for lists, which are iterated, and for documents whose members are a method's arguments."""
    lists = {n for n, s in schemas.items() if "next" in s.get("properties", {})}
    nested = set(re.findall(r"schemas/(\w+)", json.dumps(schemas)))
    bodies = {o.body for o in operations} - nested
    names = [n for n in sorted(schemas) if n not in SKIPPED | lists | bodies]
    out = [HEAD % "What the server takes and answers.",
           "from collections.abc import Mapping, Sequence\nfrom dataclasses import dataclass\n"
           "from datetime import datetime, timedelta\nfrom typing import Any, Literal\n\n",
           "__all__ = [\n", *(f'    "{n}",\n' for n in names), "]\n"]
    for name in names:
        request = name.endswith("Request") or name in {"CrossEnd"}
        out.append(f"\n\n@dataclass(frozen=True, slots=True, kw_only=True)\nclass {name}:\n")
        fields = members(schemas[name], request)
        if not fields:
            out.append("    pass\n")
        for member, text, required, description in fields:
            out.append(comment(description, "    "))
            out.append(f"    {python_name(member)}: {text}{'' if required else ' = None'}\n")
    return "".join(out)


class Operation:
    """An operation of the contract, as a method."""

    def __init__(self, method: str, path: str, spec: dict[str, Any], schemas: dict[str, Any]) -> None:
        self.id = spec["operationId"]
        self.name = NAMES[self.id]
        self.method, self.path, self.spec = method.upper(), path, spec
        self.parameters = [p["name"] for p in spec.get("parameters", []) if p["in"] == "path"]
        success = next(v for k, v in sorted(spec["responses"].items()) if k.startswith("2"))
        content = success.get("content", {}).get("application/json", {})
        self.answer = ref(content.get("schema", {}))
        self.item = None
        if self.answer and "next" in schemas[self.answer]["properties"]:
            self.item = annotation(schemas[self.answer]["properties"]["items"]["items"], False, "_types.")
        self.query = [p for p in spec.get("parameters", []) if p["in"] == "query" and p["name"] not in
                      ({"limit", "after"} if self.item else set())]
        body = spec.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        self.body = ref(body)
        self.fields = members(schemas[self.body], True, "_types.") if self.body else []

    def signature(self) -> list[str]:
        out = ["self"]
        if self.parameters:
            out += [f"{self.parameter(p)}: str" for p in self.parameters] + ["/"]
        keywords = [f"{python_name(n)}: {text}{'' if required else ' = None'}" for n, text, required, _ in self.fields]
        for q in self.query:
            kind = annotation(q["schema"], True)
            keywords.append(f"{python_name(q['name'])}: {kind} | None = None")
        if self.item:
            keywords.append(f"limit: int = {PAGE_LIMITS.get(self.id, 200)}")
        else:
            if self.method != "GET":
                keywords.append("idempotency_key: str | None = None")
            keywords.append("answer: Answer | None = None")
        return out + ["*"] + keywords

    def parameter(self, name: str) -> str:
        """What an id is one of: campaigns/{id} takes a campaign."""
        if name != "id":
            return python_name(name)
        before = self.path.split("/{id}")[0].rsplit("/", 1)[1].replace("-", "_")
        return before.removesuffix("s")

    def returns(self, asynchronous: bool) -> str:
        if self.item:
            return f"{'AsyncIterator' if asynchronous else 'Iterator'}[{self.item}]"
        if self.answer in RAW:
            return "bytes"
        return f"_types.{self.answer}" if self.answer else "None"

    def documentation(self, asynchronous: bool) -> str:
        lines = [self.spec["summary"] + "."]
        if asynchronous:
            return f'        """{lines[0]} See :meth:`fairlead.Client.{self.name}`."""'
        described = [(p, d) for p, _, _, d in self.fields if d] + [(q["name"], q.get("description", "")) for q in self.query]
        body = self.spec.get("description", "").replace("\\", "\\\\")
        if body:
            lines += [""] + [line for part in body.split("\n\n") for line in [*textwrap.wrap(part, WIDTH - 8), ""]][:-1]
        if described:
            lines += [""]
            for name, text in described:
                lines += textwrap.wrap(f"{python_name(name)}: {text}", WIDTH - 8, subsequent_indent="    ",
                                       break_on_hyphens=False)
        text = "\n".join(lines)
        return textwrap.indent(f'"""{text}\n"""' if "\n" in text else f'"""{text}"""', "        ")

    def write(self, asynchronous: bool) -> str:
        word = "async def" if asynchronous and not self.item else "def"
        signature = f"    {word} {self.name}({', '.join(self.signature())}) -> {self.returns(asynchronous)}:\n"
        if len(signature) > WIDTH:
            inner = "".join(f"        {part},\n" for part in self.signature())
            signature = f"    {word} {self.name}(\n{inner}    ) -> {self.returns(asynchronous)}:\n"
        path = f'"{self.path}"'
        if self.parameters:
            pairs = ", ".join(f'"{p}": {self.parameter(p)}' for p in self.parameters)
            path = f"_path({path}, {{{pairs}}})"
        query = "{" + ", ".join(f'"{q["name"]}": {python_name(q["name"])}' for q in self.query) + "}"
        if self.item:
            arguments = [path, self.item if self.item != "Any" else "object", query if self.query else "{}", "limit"]
            call = f"return self._pages({', '.join(arguments)})\n"
        else:
            arguments = [f'"{self.method}"', path]
            kind = "bytes" if self.answer in RAW else f"_types.{self.answer}" if self.answer else "None"
            arguments.append(kind)
            if self.query:
                arguments.append(f"query={query}")
            if self.fields:
                body = "{" + ", ".join(f'"{n}": {python_name(n)}' for n, *_ in self.fields) + "}"
                arguments.append(f"body={body}")
            if self.method != "GET":
                arguments.append("key=idempotency_key")
            arguments.append("answer=answer")
            wait = "await " if asynchronous else ""
            call = f"return {wait}self._invoke({', '.join(arguments)})\n"
            if len(call) + 8 > WIDTH:
                inner = "".join(f"            {part},\n" for part in arguments)
                call = f"return {wait}self._invoke(\n{inner}        )\n"
        return f"\n{signature}{self.documentation(asynchronous)}\n        {call}"


def make_operations(operations: list[Operation], asynchronous: bool) -> str:
    kind = "AsyncIterator" if asynchronous else "Iterator"
    word = "async def" if asynchronous else "def"
    name = "AsyncOperations" if asynchronous else "Operations"
    out = [HEAD % ("A method for every operation" + (", as coroutines." if asynchronous else ".")),
           f"from collections.abc import {kind}, Mapping, Sequence\n",
           "from datetime import datetime, timedelta\nfrom typing import Any, Literal, TypeVar\n\n",
           "from . import types as _types\nfrom ._codec import path as _path\nfrom ._errors import Answer\n\n"]
    if not asynchronous:
        out += ["#: The names of the methods by operationId.\nMETHODS = {\n",
                *(f'    "{o.id}": "{o.name}",\n' for o in operations), "}\n\n"]
    out += ['T = TypeVar("T")\n\n\n',
            f"class {name}:\n    " + '"""The operations. ' + ("AsyncClient" if asynchronous else "Client") + ' adds how they are sent."""\n\n',
            f"    {word} _invoke(\n        self,\n        method: str,\n        path: str,\n        kind: type[T] | None,\n"
            "        *,\n        query: Mapping[str, Any] | None = None,\n        body: Any = None,\n"
            "        key: str | None = None,\n        answer: Answer | None = None,\n    ) -> T:\n"
            "        raise NotImplementedError\n\n",
            f"    def _pages(self, path: str, kind: type[T], query: Mapping[str, Any], limit: int) -> {kind}[T]:\n"
            "        raise NotImplementedError\n"]
    out += [o.write(asynchronous) for o in operations]
    return "".join(out)


def main(contract: str, folder: str) -> None:
    document = json.loads(Path(contract).read_text("utf-8"))
    schemas = document["components"]["schemas"]
    found = {o["operationId"]: (m, p, o) for p, methods in document["paths"].items() for m, o in methods.items()}
    if missing := sorted(set(found) ^ set(NAMES)):
        sys.exit(f"generate.py: give these operations a name, or remove them: {', '.join(missing)}")
    operations = [Operation(*found[i], schemas) for i in found if NAMES[i]]
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in {
        "types.py": make_types(schemas, operations),
        "_operations.py": make_operations(operations, False),
        "_async_operations.py": make_operations(operations, True),
    }.items():
        (out / name).write_text(re.sub(r"[ ]+\n", "\n", text), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: generate.py OPENAPI OUT")
    main(*sys.argv[1:])
