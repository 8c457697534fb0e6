"""Between the server's JSON documents and the dataclasses of :mod:`fairlead.types`."""

from __future__ import annotations

import dataclasses
import functools
import json
import keyword
import re
import types as builtin_types
import typing
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import quote, urlencode

# RFC 3339, as the server writes it. datetime.fromisoformat of Python 3.10 takes neither Z nor any number of digits.
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)")


def path(template: str, parameters: Mapping[str, str]) -> str:
    """Fills the gaps of a path with escaped ids."""
    for name, value in parameters.items():
        if not value:
            raise ValueError(f"{name} must not be empty")
        template = template.replace(f"{{{name}}}", quote(value, safe=""))
    return template


def with_query(target: str, query: Mapping[str, Any] | None) -> str:
    """Appends what is not None of a query."""
    pairs = [(name, _plain(value)) for name, value in (query or {}).items() if value is not None]
    return f"{target}?{urlencode(pairs, quote_via=quote)}" if pairs else target


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def encode(value: Any) -> bytes:
    """A request's document. Members that are None are left out."""
    return json.dumps(to_json(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def to_json(value: Any) -> Any:
    """What the server takes for a value: durations as Go writes them, times as RFC 3339."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        members = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {_json_name(name): to_json(member) for name, member in members.items() if member is not None}
    if isinstance(value, Mapping):
        return {name: to_json(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(member) for member in value]
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a time without a zone could mean any: give it a tzinfo")
        return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{value // timedelta(microseconds=1)}us"
    return value


def _json_name(name: str) -> str:
    bare = name.removesuffix("_")
    return bare if bare != name and keyword.iskeyword(bare) else name


def decode(kind: Any, value: Any) -> Any:
    """The value of an answer, as kind. Members that kind doesn't have are left out: the server may be newer. Members that the
    document doesn't have are None: it may be older."""
    return _decoder(kind)(value)


@functools.lru_cache(maxsize=None)
def _decoder(kind: Any) -> Callable[[Any], Any]:
    """How a kind of value is read. Enumerations are plain texts, since the server may add values."""
    if dataclasses.is_dataclass(kind):
        return functools.partial(_object, kind)
    if kind is datetime:
        return _time
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, builtin_types.UnionType):
        rest = [a for a in arguments if a is not type(None)]
        inner = _decoder(rest[0]) if len(rest) == 1 else _same
        return lambda value: None if value is None else inner(value)
    if origin is list:
        return lambda value: [decode(arguments[0], item) for item in value]
    if origin is dict:
        return lambda value: {name: decode(arguments[1], item) for name, item in value.items()}
    return _same


def _same(value: Any) -> Any:
    return value


def _object(kind: Any, value: Mapping[str, Any]) -> Any:
    if not isinstance(value, Mapping):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    given = ((name, hint, value.get(_json_name(name))) for name, hint in _hints(kind).items())
    return kind(**{name: None if member is None else decode(hint, member) for name, hint, member in given})


@functools.lru_cache(maxsize=None)
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _time(text: str) -> datetime:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time of RFC 3339")
    whole, fraction, zone = match.groups()
    zone = "+00:00" if zone == "Z" else zone
    return datetime.fromisoformat(f"{whole}.{(fraction or '0'):0<6}{zone}")
