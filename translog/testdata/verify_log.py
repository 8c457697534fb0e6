"""Verifies a Fairlead log by its specification alone: docs/design/log.md, the pages it names, and the C2SP documents.

    python3 verify_log.py URL VKEY [--witness VKEY ...] [--json]
    python3 verify_log.py --leaves FILE VKEY [--witness VKEY ...] [--json]
    python3 verify_log.py --balance FILE VKEY [--witness VKEY ...] [--json]

URL is that of the server. FILE is an answer of GET /v1/auctions/{id}/log (or of a campaign's), or of GET /v1/accounts/{id}/proof.
It exits with 0 when everything follows, with 1 when something does not (it names the first leaf that does not), with 2 when
something cannot be read. It needs Python 3.8 and nothing else, and shares no code with the server.
"""

import argparse
import base64
import hashlib
import json
import sys
import urllib.error
import urllib.request

import log_leaves
import log_replay
from log_leaves import Wrong, demand, sha256


class Unreadable(Exception):
    """Something could not be read: nothing is said about the log."""


# ---- Ed25519 (RFC 8032), verification only

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, P - 2, P) % P
ROOT = pow(2, (P - 1) // 4, P)
IDENTITY = (0, 1, 1, 0)


def point_add(a, b):
    """Adds two points in extended coordinates (X, Y, Z, T)."""
    e, f = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    g, h = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    x, y, z, t = f - e, h - g, h + g, f + e
    return (x * y % P, t * z % P, y * z % P, x * t % P)


def point_multiply(n, point):
    total = IDENTITY
    while n:
        if n & 1:
            total = point_add(total, point)
        point, n = point_add(point, point), n >> 1
    return total


def point_decode(data):
    """Returns the point of 32 bytes, or None."""
    n = int.from_bytes(data, "little")
    sign, y = n >> 255, n & (2**255 - 1)
    if y >= P:
        return None
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    if x * x % P != xx:
        x = x * ROOT % P
    if x * x % P != xx or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return (x, y, 1, x * y % P)


def point_equal(a, b):
    return (a[0] * b[2] - b[0] * a[2]) % P == 0 and (a[1] * b[2] - b[1] * a[2]) % P == 0


BASE = point_decode((4 * pow(5, P - 2, P) % P).to_bytes(32, "little"))


def ed25519_verifies(key, message, signature):
    a, r = point_decode(key), point_decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if len(signature) != 64 or a is None or r is None or s >= Q:
        return False
    k = int.from_bytes(hashlib.sha512(signature[:32] + key + message).digest(), "little") % Q
    return point_equal(point_multiply(s, BASE), point_add(r, point_multiply(k, a)))


# ---- Signed notes and checkpoints

LOG_KEY, WITNESS_KEY = 1, 4


class Key:
    """A verifier key: name+hash+base64(type, key)."""

    def __init__(self, vkey, kind):
        try:
            self.name, digest, material = vkey.strip().split("+", 2)
            data = base64.b64decode(material, validate=True)
            self.id = bytes.fromhex(digest)
        except ValueError as e:
            raise Unreadable("%r is no verifier key: %s" % (vkey, e)) from e
        if not self.name or len(data) != 33 or data[0] != kind:
            raise Unreadable("%r is no verifier key of type %d" % (vkey, kind))
        if self.id != sha256(self.name.encode() + b"\n" + data)[:4]:
            raise Unreadable("the key %r does not have the hash that it names" % vkey)
        self.key = data[1:]


class Checkpoint:
    """A checkpoint whose signatures verify: that of the log, and those of the witnesses that were named."""

    def __init__(self, note, key, witnesses):
        try:
            text = note.decode("utf-8")
        except UnicodeDecodeError as e:
            raise Unreadable("the checkpoint is not UTF-8") from e
        if "\n\n" not in text or not text.endswith("\n") or any(c < " " and c != "\n" for c in text):
            raise Unreadable("the checkpoint is no signed note")
        body, signatures = text.rsplit("\n\n", 1)
        body = body + "\n"
        self.text, self.witnesses = text, {}
        signed = False
        for line in signatures.split("\n")[:-1]:
            try:
                mark, name, blob = line.split(" ")
                blob = base64.b64decode(blob, validate=True)
            except ValueError as e:
                raise Unreadable("a line of the checkpoint is no signature") from e
            demand(mark == "\u2014" and len(blob) > 4, "a line of the checkpoint is no signature")
            if (name, blob[:4]) == (key.name, key.id):
                demand(ed25519_verifies(key.key, body.encode(), blob[4:]), "the log's signature is false")
                signed = True
            for w in witnesses:
                if (name, blob[:4]) == (w.name, w.id):
                    demand(len(blob) == 76, "the cosignature of %s is false" % name)
                    at = int.from_bytes(blob[4:12], "big")
                    message = "cosignature/v1\ntime %d\n%s" % (at, body)
                    demand(ed25519_verifies(w.key, message.encode(), blob[12:]), "the cosignature of %s is false" % name)
                    self.witnesses[name] = at
        demand(signed, "the checkpoint is not signed by %s" % key.name)
        for w in witnesses:
            demand(w.name in self.witnesses, "the checkpoint is not cosigned by %s" % w.name)
        lines = body.split("\n")[:-1]
        demand(len(lines) == 3, "the checkpoint has not exactly three lines")
        demand(lines[0] == key.name, "the checkpoint's origin is %r" % lines[0])
        demand(lines[1].isdecimal() and lines[1] == str(int(lines[1])), "the checkpoint's size is no number")
        self.origin, self.size = lines[0], int(lines[1])
        self.root = base64.b64decode(lines[2], validate=True)
        demand(base64.b64encode(self.root).decode() == lines[2] and len(self.root) == 32, "the checkpoint's root is no hash")


# ---- The tree of RFC 6962 §2.1

def leaf_hash(entry):
    return sha256(b"\x00" + entry)


def node_hash(left, right):
    return sha256(b"\x01" + left + right)


def root_of(hashes):
    """Returns the root over leaf hashes, level by level: a last hash without a partner moves up."""
    if not hashes:
        return sha256(b"")
    while len(hashes) > 1:
        odd = [hashes[-1]] if len(hashes) % 2 else []
        hashes = [node_hash(hashes[i], hashes[i + 1]) for i in range(0, len(hashes) - 1, 2)] + odd
    return hashes[0]


def root_by_path(index, size, leaf, path):
    """Returns the root that an inclusion proof leads to (RFC 9162 §2.1.3.2), or None."""
    if not 0 <= index < size:
        return None
    i, last, h = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if i & 1 or i == last:
            h = node_hash(sibling, h)
            while not i & 1 and i:
                i, last = i >> 1, last >> 1
        else:
            h = node_hash(h, sibling)
        i, last = i >> 1, last >> 1
    return h if last == 0 else None


def consistent(first, second, first_root, second_root, path):
    """Verifies a consistency proof between sizes 0 < first < second (RFC 9162 §2.1.4.2)."""
    if first & (first - 1) == 0:
        path = [first_root] + path
    if not path:
        return False
    i, last = first - 1, second - 1
    while i & 1:
        i, last = i >> 1, last >> 1
    a = b = path[0]
    for h in path[1:]:
        if last == 0:
            return False
        if i & 1 or i == last:
            a, b = node_hash(h, a), node_hash(h, b)
            while not i & 1 and i:
                i, last = i >> 1, last >> 1
        else:
            b = node_hash(b, h)
        i, last = i >> 1, last >> 1
    return (a, b, last) == (first_root, second_root, 0)


def split(n):
    """Returns the largest power of two under n."""
    return 1 << ((n - 1).bit_length() - 1)


def inclusion(index, low, high, range_hash):
    """Makes the proof for a leaf in the tree over low to high."""
    if high - low == 1:
        return []
    mid = low + split(high - low)
    if index < mid:
        return inclusion(index, low, mid, range_hash) + [range_hash(mid, high)]
    return inclusion(index, mid, high, range_hash) + [range_hash(low, mid)]


def consistency(first, low, high, range_hash, whole=True):
    """Makes the proof that the tree over low to high grew from the one over low to first."""
    if first == high:
        return [] if whole else [range_hash(low, high)]
    mid = low + split(high - low)
    if first <= mid:
        return consistency(first, low, mid, range_hash, whole) + [range_hash(mid, high)]
    return consistency(first, mid, high, range_hash, False) + [range_hash(low, mid)]


# ---- Tiles

WIDTH = 256


class Tiles:
    """The log's resources over HTTP, each read once."""

    def __init__(self, url, size):
        self.url, self.size, self.read = url.rstrip("/"), size, {}

    def get(self, level, n):
        """Returns the tile's bytes; level is "entries" for a bundle. Its width is that of the tree's size."""
        height = 0 if level == "entries" else level
        width = min(WIDTH, (self.size >> 8 * height) - n * WIDTH)
        path = "%03d" % (n % 1000)
        while n >= 1000:
            n //= 1000
            path = "x%03d/%s" % (n % 1000, path)
        path = "/log/tile/%s/%s%s" % (level, path, "" if width == WIDTH else ".p/%d" % width)
        if path not in self.read:
            self.read[path] = fetch(self.url + path)
        return self.read[path], width, path

    def hashes(self, level, n):
        data, width, path = self.get(level, n)
        demand(len(data) == 32 * width, "%s has %d bytes" % (path, len(data)))
        return [data[i:i + 32] for i in range(0, len(data), 32)]

    def entries(self, n):
        data, width, path = self.get("entries", n)
        found = []
        while data:
            length = int.from_bytes(data[:2], "big")
            demand(len(data) >= 2 + length, "%s ends within an entry" % path, n * WIDTH + len(found))
            found.append(data[2:2 + length])
            data = data[2 + length:]
        demand(len(found) == width, "%s has %d entries" % (path, len(found)), n * WIDTH + len(found))
        return found

    def range_hash(self, low, high):
        """Returns the hash of the tree over low to high, which is a node of the log's tree, from as few hashes as there are."""
        size = high - low
        if size & (size - 1):
            mid = low + split(size)
            return node_hash(self.range_hash(low, mid), self.range_hash(mid, high))
        level = (size.bit_length() - 1) // 8
        low, high = low >> 8 * level, high >> 8 * level
        start = low % WIDTH
        return root_of(self.hashes(level, low // WIDTH)[start:start + high - low])


def fetch(url):
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read()
    except (OSError, ValueError) as e:
        raise Unreadable("%s: %s" % (url, e)) from e


# ---- The three things that can be judged

def judge_log(url, key, witnesses, report):
    checkpoint = Checkpoint(fetch(url.rstrip("/") + "/log/checkpoint"), key, witnesses)
    report.update(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex(), witnesses=checkpoint.witnesses)
    tiles = Tiles(url, checkpoint.size)
    entries, hashes = [], []
    for n in range((checkpoint.size + WIDTH - 1) // WIDTH):
        bundle, tile = tiles.entries(n), tiles.hashes(0, n)
        for i, entry in enumerate(bundle):
            demand(leaf_hash(entry) == tile[i], "the entry does not have the hash that its tile has", n * WIDTH + i)
        entries += bundle
        hashes += tile
    judge_tree(checkpoint, tiles, hashes, report)
    replay = log_replay.Log()
    for index, entry in enumerate(entries):
        replay.add(index, entry)
    report.update(replay.report())


def judge_tree(checkpoint, tiles, hashes, report):
    demand(root_of(hashes) == checkpoint.root, "the leaves do not have the checkpoint's root")
    level, below = 1, hashes
    while len(below) >= WIDTH:
        above = [root_of(below[i:i + WIDTH]) for i in range(0, len(below) - WIDTH + 1, WIDTH)]
        for n in range((len(above) + WIDTH - 1) // WIDTH):
            demand(tiles.hashes(level, n) == above[n * WIDTH:(n + 1) * WIDTH], "tile %d of level %d is false" % (n, level))
        level, below = level + 1, above
    size = checkpoint.size
    some = sorted({i for i in (0, 1, size // 3, size // 2, size - 2, size - 1) if 0 <= i < size})
    for i in some:
        path = inclusion(i, 0, size, tiles.range_hash)
        demand(root_by_path(i, size, hashes[i], path) == checkpoint.root, "its inclusion does not verify", i)
    older = sorted({i for i in (1, size // 3, size // 2, split(size) if size > 1 else 0, size - 1) if 0 < i < size})
    for first in older:
        path = consistency(first, 0, size, tiles.range_hash)
        demand(consistent(first, size, root_of(hashes[:first]), checkpoint.root, path), "size %d is not consistent" % first)
    report.update(inclusions=len(some), consistencies=len(older))


def unhex(text, length=None):
    data = bytes.fromhex(text)
    if data.hex() != text or length not in (None, len(data)):
        raise ValueError("%r is no hexadecimal number of %s bytes" % (text, length))
    return data


def included(checkpoint, item):
    """Demands that an item of an answer is a leaf under the checkpoint, and returns its index and bytes."""
    index, leaf = item["index"], base64.b64decode(item["leaf"], validate=True)
    path = [unhex(h, 32) for h in item["inclusion"]]
    demand(root_by_path(index, checkpoint.size, leaf_hash(leaf), path) == checkpoint.root, "its inclusion does not verify", index)
    return index, leaf


def judge_leaves(answer, key, witnesses, report):
    checkpoint = Checkpoint(answer["checkpoint"].encode(), key, witnesses)
    report.update(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex(), witnesses=checkpoint.witnesses)
    replay, last = log_replay.Log(), -1
    for item in answer["items"]:
        index, leaf = included(checkpoint, item)
        demand(index > last, "its index is not higher than that of the leaf before", index)
        last = index
        topic = replay.add(index, leaf)
        demand(item["type"] == topic.kind, "its type is %s, not %s" % (topic.kind, item["type"]), index)
        demand(len(replay.topics) == 1, "it belongs to another topic", index)
    report.update(replay.report())


def judge_balance(answer, key, witnesses, report):
    checkpoint = Checkpoint(answer["checkpoint"].encode(), key, witnesses)
    report.update(origin=checkpoint.origin, size=checkpoint.size, root=checkpoint.root.hex(), witnesses=checkpoint.witnesses)
    index, leaf = included(checkpoint, answer["leaf"])
    fact = log_leaves.Leaf(index, leaf)
    with log_leaves.at_leaf(index):
        demand(fact.type == "books.closed" and fact.topic == "books", "it is no closing")
        demand(not fact.parts, "a closing in parts needs all of them")
        closing = log_leaves.read(fact.data, log_replay.CLOSING)
        demand(answer["leaf"]["type"] == fact.type, "its type is not the answer's")
        demand(answer["closing"] == fact.seq, "its number is not the answer's")
        demand(answer["at"] == fact.at, "its time is not the answer's")
        demand(answer["root"] == closing["root"], "its root is not the answer's")
        demand(answer["accounts"] == closing["accounts"], "it has another number of accounts than the answer")
        log_replay.check_books(closing)
        name = log_replay.alias("books", answer["account"], answer["salt"])
        demand(answer["alias"] == name, "the alias is not that of account and salt")
        account = log_replay.books_leaf(name, answer["currency"], answer["available"], answer["held"], answer["version"])
        path = [unhex(h, 32) for h in answer["path"]]
        root = root_by_path(answer["place"], closing["accounts"], account, path)
        demand(root is not None and root.hex() == closing["root"], "the balance is not under the closing's root")
        sums = [c for c in closing["currencies"] if c["currency"] == answer["currency"]]
        demand(sums and sums[0]["available"] >= answer["available"] and sums[0]["held"] >= answer["held"], "the balance exceeds the sums")
    report.update({k: answer[k] for k in ("account", "currency", "available", "held", "version", "closing", "at")})


def read_answer(path):
    try:
        with open(path, "rb") as f:
            return json.load(f)
    except (OSError, ValueError) as e:
        raise Unreadable("%s: %s" % (path, e)) from e


def judge(args, report):
    vkey = args.given[-1]
    key = Key(vkey, LOG_KEY)
    witnesses = [Key(w, WITNESS_KEY) for w in args.witness]
    try:
        if args.leaves:
            judge_leaves(read_answer(args.leaves), key, witnesses, report)
        elif args.balance:
            judge_balance(read_answer(args.balance), key, witnesses, report)
        else:
            judge_log(args.given[0], key, witnesses, report)
    except (KeyError, TypeError, ValueError) as e:
        raise Unreadable("the answer has another form: %r" % e) from e


def main(argv):
    parser = argparse.ArgumentParser(description="Verify a Fairlead log.")
    parser.add_argument("given", nargs="+", metavar="URL VKEY", help="the server's URL, unless there is a file, and the log's verifier key")
    parser.add_argument("--witness", action="append", default=[], metavar="VKEY", help="a witness that must have cosigned")
    parser.add_argument("--leaves", metavar="FILE", help="an answer with leaves of one topic")
    parser.add_argument("--balance", metavar="FILE", help="an answer with the proof of a balance")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args(argv)
    if len(args.given) != (1 if args.leaves or args.balance else 2):
        parser.error("give URL and VKEY, or a file and VKEY")
    report, code = {"valid": False}, 0
    try:
        judge(args, report)
        report["valid"] = True
    except Wrong as e:
        report.update(problem=e.message, index=e.index)
        code = 1
    except Unreadable as e:
        report["problem"], code = str(e), 2
    if args.json:
        print(json.dumps(report, indent=2, sort_keys=True))
    elif code == 0:
        print("valid:", json.dumps(report, sort_keys=True))
    else:
        where = "" if report.get("index") is None else "leaf %d: " % report["index"]
        print("%s: %s%s" % ("cannot be read" if code == 2 else "does not follow", where, report["problem"]))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
