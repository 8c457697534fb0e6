"""Reads the leaves of a Fairlead log as strictly as docs/design/log.md §2 writes them. A part of verify_log.py."""

import contextlib
import datetime
import hashlib
import json
import re


class Wrong(Exception):
    """Something does not follow; index is the leaf's, if it is a leaf."""

    def __init__(self, message, index=None):
        super().__init__(message)
        self.message, self.index = message, index


def demand(condition, message, index=None):
    if not condition:
        raise Wrong(message, index)


@contextlib.contextmanager
def at_leaf(index, label=""):
    """Names the leaf in what goes wrong in its block."""
    try:
        yield
    except Wrong as e:
        raise Wrong(label + e.message, index if e.index is None else e.index) from e
    except (KeyError, TypeError, ValueError, RecursionError) as e:
        raise Wrong("%sit has not the form of its type: %s" % (label, e), index) from e


def sha256(data):
    return hashlib.sha256(data).digest()


def be(n, size, signed=False):
    return n.to_bytes(size, "big", signed=signed)


def text(s, size=4):
    raw = s.encode()
    return be(len(raw), size) + raw


# ---- JSON, and the members of objects

def no_repeats(pairs):
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is repeated")
    return members


def refuse_number(s):
    raise ValueError("%s is no integer" % s)


def parse(raw):
    """Reads JSON that must be written in the one way that log.md §2 allows."""
    value = json.loads(raw, object_pairs_hook=no_repeats, parse_float=refuse_number, parse_constant=refuse_number)
    if json.dumps(value, ensure_ascii=False, separators=(",", ":")) != raw:
        raise ValueError("it is not written as log.md wants JSON")
    return value


def number(low=0, high=2**63 - 1):
    def check(v):
        if type(v) is not int or not low <= v <= high:
            raise ValueError("%r is no integer from %d to %d" % (v, low, high))
        return v
    return check


def matching(pattern):
    compiled = re.compile(pattern, re.DOTALL)

    def check(v):
        if type(v) is not str or not compiled.fullmatch(v):
            raise ValueError("%r is not %s" % (v, pattern))
        return v
    return check


def boolean(v):
    if type(v) is not bool:
        raise ValueError("%r is no boolean" % (v,))
    return v


def list_of(check, least=0, most=None):
    def check_all(v):
        if type(v) is not list or len(v) < least or (most is not None and len(v) > most):
            raise ValueError("no list of the right length")
        return [check(x) for x in v]
    return check_all


def optional(check):
    check_there = lambda v: check(v)
    check_there.optional = True
    return check_there


def read(v, schema):
    """Returns the members of an object that the schema knows. Others are passed over, as log.md §2 says."""
    if type(v) is not dict:
        raise ValueError("no object")
    members = {}
    for name, check in schema.items():
        if name in v:
            members[name] = check(v[name])
        elif not getattr(check, "optional", False):
            raise ValueError("%s is missing" % name)
    return members


def object_of(schema):
    return lambda v: read(v, schema)


STRING = matching(".*")
TEXT = matching("[^\x00-\x1f\x7f-\x9f]{1,200}")
HASH = matching("[0-9a-f]{64}")
ALIAS = matching("[0-9a-f]{32}")
BYTES = matching("(?:[0-9a-f]{2})+")
CURRENCY = matching("[A-Z][A-Z0-9]{2,11}")
SIGNED = number(-2**63)

TIME_PATTERN = matching(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
EPOCH = datetime.datetime(1970, 1, 1)


def micros(v):
    """Returns a time in microseconds since 1970."""
    at = datetime.datetime.strptime(TIME_PATTERN(v), "%Y-%m-%dT%H:%M:%S.%fZ")
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


UNITS = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "µs": 10**3, "ns": 1}


def duration(v):
    """Returns a duration that Go wrote, in microseconds."""
    total, rest = 0, STRING(v)
    while rest:
        m = re.match(r"(\d+)(?:\.(\d{1,9}))?(h|ms|m|s|µs|ns)", rest)
        if not m:
            raise ValueError("%r is no duration" % v)
        unit = UNITS[m.group(3)]
        total += int(m.group(1)) * unit + int((m.group(2) or "0").ljust(9, "0")) * unit // 10**9
        rest = rest[m.end():]
    return total // 1000


# ---- Leaves

UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
TOPIC = matching("(?:campaign|auction|multidraw):%s|books" % UUID)
ENVELOPE = {"type": STRING, "topic": TOPIC, "seq": number(), "at": micros}
WHOLE = ["type", "topic", "seq", "at", "data"]
PART = ["type", "topic", "seq", "at", "part", "parts", "text"]
MAX_DATA, MAX_PART = 32768, 16384


class Leaf:
    """One leaf. parts is 0 where it is a fact in one piece."""

    def __init__(self, index, entry):
        with at_leaf(index):
            self.index, v = index, parse(entry.decode("utf-8"))
            names = list(v) if type(v) is dict else None
            demand(names in (WHOLE, PART), "its members are not those of a leaf")
            known = read(v, ENVELOPE)
            self.type, self.topic, self.seq, self.at, self.micros = v["type"], v["topic"], v["seq"], v["at"], known["at"]
            self.part, self.parts = 0, 0
            if names == WHOLE:
                self.data = v["data"]
                size = len(json.dumps(self.data, ensure_ascii=False, separators=(",", ":")).encode())
                demand(type(self.data) is dict and size <= MAX_DATA, "its data is no object of at most 32,768 bytes")
            else:
                self.parts = number(2)(v["parts"])
                self.part, self.text = number(1, self.parts)(v["part"]), STRING(v["text"])
                demand(len(self.text.encode()) <= MAX_PART, "its text has more than 16,384 bytes")


class Topic:
    """What all topics have: numbers without a gap, and times that do not run backwards."""

    def __init__(self, name):
        self.name, self.id, self.next_seq, self.last = name, name.split(":")[-1], 0, 0
        self.ended, self.notes, self.kind = False, [], ""

    def take(self, leaf):
        demand(leaf.seq == self.next_seq, "the next number of its topic is %d" % self.next_seq)
        demand(leaf.micros >= self.last, "its time is before that of the fact before")
        demand(not self.ended, "its topic has ended")
        self.next_seq, self.last = leaf.seq + 1, leaf.micros
        self.decide(leaf)
