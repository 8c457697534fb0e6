"""Reads JSON of a known shape, and nothing else.

The json module keeps the last of two equal names, takes ``1.0`` for ``1`` where Python compares them, and shows no escapes:
each would let two programs see two documents in the same bytes, which a document that settles disputes cannot afford.
docs/design/fairdraw.md, §9, has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

_SPACE = re.compile(r"[ \t\n\r]*")
_MAY_BE_SPACE = frozenset(" \t\n\r")
_NAME = re.compile(r'"([a-z_]+)"')
_STRING = re.compile(r'"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*)"')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]([0-9a-fA-F]{2})\\u[dD][c-fC-F]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_INTEGER = re.compile(r"(?:0|[1-9][0-9]*)(?![0-9.eE])")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


class ProofError(Exception):
    """A proof is not valid. The message says where, and why."""


class Reader:
    """Goes through one document. Every method reads one value and moves on behind it."""

    def __init__(self, document: bytes | str, limit: int) -> None:
        try:
            size = len(document if isinstance(document, bytes) else document.encode("utf-8"))
            self._text = document.decode("utf-8") if isinstance(document, bytes) else document
        except UnicodeError as err:
            raise ProofError(f"not valid UTF-8: {err}") from err
        if size > limit:
            raise ProofError(f"the document is longer than {limit} bytes")
        self._at = 0
        self._path: list[str] = []

    def fail(self, reason: str) -> ProofError:
        where = "".join(self._path).lstrip(".") or "the document"
        return ProofError(f"{where}, at character {self._at}: {reason}")

    def whole(self, read: Callable[[], T]) -> T:
        """Reads a value with nothing but white space around it."""
        self._space()
        value = read()
        self._space()
        if self._at != len(self._text):
            raise self.fail("there is something after the document")
        return value

    def object(self, fields: Mapping[str, Callable[[], Any]], optional: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Reads an object with these fields, each once, in any order."""
        self._expect("{", "an object")
        out: dict[str, Any] = {}
        self._space()
        while not self._take("}"):
            if out:
                self._expect(",", "',' or '}'")
                self._space()
            match = _NAME.match(self._text, self._at)
            if match is None or match[1] not in fields:
                raise self.fail("there is no field of this name")
            name = match[1]
            self._path.append("." + name)
            if name in out:
                raise self.fail("the field is there twice")
            self._at = match.end()
            self._space()
            self._expect(":", "':'")
            self._space()
            out[name] = fields[name]()
            self._path.pop()
            self._space()
        for name in fields:
            if name not in out and name not in optional:
                raise self.fail(f"{name} is missing")
        return out

    def list(self, read: Callable[[], T], limit: int) -> list[T]:
        self._expect("[", "a list")
        out: list[T] = []
        self._space()
        while not self._take("]"):
            if out:
                self._expect(",", "',' or ']'")
                self._space()
            if len(out) == limit:
                raise self.fail(f"over {limit} entries")
            self._path.append(f"[{len(out)}]")
            out.append(read())
            self._path.pop()
            self._space()
        return out

    def integer(self, low: int, high: int) -> int:
        match = _INTEGER.match(self._text, self._at)
        if match is None:
            raise self.fail("a plain integer was expected")
        # No limit has more digits; int would take long over many.
        if len(match[0]) > 16 or not low <= int(match[0]) <= high:
            raise self.fail(f"the number is not {low} to {high}")
        self._at = match.end()
        return int(match[0])

    def string(self) -> str:
        """Reads a string, with its escapes decoded once."""
        match = _STRING.match(self._text, self._at)
        if match is None:
            raise self.fail("a string was expected, with escapes of JSON and without control characters")
        text = _ESCAPE.sub(self._unescape, match[1]) if "\\" in match[1] else match[1]
        self._at = match.end()
        return text

    def text(self) -> str:
        """Reads a text: 1 to 200 code points without control characters."""
        value = self.string()
        if not 1 <= len(value) <= 200:
            raise self.fail("a text has 1 to 200 characters")
        if _CONTROL.search(value):
            raise self.fail("there is a control character")
        return value

    def hexadecimal(self, low: int, high: int) -> bytes:
        """Reads low to high bytes in lower-case hexadecimal."""
        value = self.string()
        if not low <= len(value) / 2 <= high or _HEX.fullmatch(value) is None:
            raise self.fail(f"{low} to {high} bytes in lower-case hexadecimal were expected")
        return bytes.fromhex(value)

    def digest(self) -> bytes:
        return self.hexadecimal(32, 32)

    def _unescape(self, match: re.Match[str]) -> str:
        high, low, unit, short = match.groups()
        if short is not None:
            return _SHORT[short]
        if unit is None:
            pair = bytes.fromhex(match[0][2:6] + match[0][8:12])
            return pair.decode("utf-16-be")
        if 0xD800 <= int(unit, 16) <= 0xDFFF:
            raise self.fail("a lone surrogate")
        return chr(int(unit, 16))

    def _space(self) -> None:
        if self._text[self._at:self._at + 1] in _MAY_BE_SPACE:
            match = _SPACE.match(self._text, self._at)
            assert match is not None  # It matches nothing, too.
            self._at = match.end()

    def _take(self, character: str) -> bool:
        if self._text.startswith(character, self._at):
            self._at += 1
            return True
        return False

    def _expect(self, character: str, what: str) -> None:
        if not self._take(character):
            raise self.fail(f"{what} was expected")
