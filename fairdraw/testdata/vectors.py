#!/usr/bin/env python3
"""A second implementation of fairdraw, written from docs/design/fairdraw.md.

It shares no code and, where there is a choice, no method with the Go package:
the tree is computed by RFC 9162's recursive definition, HKDF by its two steps,
the shuffle on a plain list. It needs Python 3.8 and nothing else.

    vectors.py                    writes vectors.json beside itself
    vectors.py --check            exits 1 unless vectors.json is what it would write
    vectors.py --verify PROOF     verifies a proof document, exits 1 if it is refused
    vectors.py --verify-inclusion PROOF
"""
import hashlib
import hmac
import json
import os
import re
import sys

SALT = b"fairlead/fairdraw/v1"


def sha256(data):
    return hashlib.sha256(data).digest()


def be(n, size):
    return n.to_bytes(size, "big")


def text(s):
    raw = s.encode("utf-8")
    return be(len(raw), 4) + raw


# The tree, as RFC 9162 §2.1.1 and §2.1.3.1 define it.

def leaf(p):
    return b"\x00" + text(p["id"]) + be(p["layer"], 4) + be(p["number"], 4) + text(p["account"])


def split(n):
    """The largest power of two smaller than n."""
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def tree_hash(entries):
    if len(entries) == 1:
        return sha256(leaf(entries[0]))
    k = split(len(entries))
    return sha256(b"\x01" + tree_hash(entries[:k]) + tree_hash(entries[k:]))


def tree_path(m, entries):
    if len(entries) == 1:
        return []
    k = split(len(entries))
    if m < k:
        return tree_path(m, entries[:k]) + [tree_hash(entries[k:])]
    return tree_path(m - k, entries[k:]) + [tree_hash(entries[:k])]


def root_from_path(campaign, position, index, size, path):
    """The verification algorithm of RFC 9162 §2.1.3.2."""
    fn, sn, r = index, size - 1, sha256(leaf(position))
    for p in path:
        if sn == 0:
            raise ValueError("siblings: too many")
        if fn & 1 or fn == sn:
            r = sha256(b"\x01" + p + r)
            while not fn & 1 and fn != 0:
                fn >>= 1
                sn >>= 1
        else:
            r = sha256(b"\x01" + r + p)
        fn >>= 1
        sn >>= 1
    if sn != 0:
        raise ValueError("siblings: too few")
    return seal(campaign, size, r)


def seal(campaign, size, tree):
    return sha256(b"\x02" + text(campaign) + be(size, 8) + tree)


def root(campaign, positions):
    return seal(campaign, len(positions), tree_hash(positions))


# Keys.

def hkdf(secret, info):
    prk = hmac.new(SALT, secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()


def prize_digest(prizes):
    msg = b"\x03" + be(len(prizes), 4)
    for p in prizes:
        msg += text(p["name"]) + be(p["layer"], 4) + be(p["quantity"], 4)
    return sha256(msg)


def draw_seed(campaign, server_seed, beacon, sealed, prizes):
    info = text("draw") + text(campaign) + prize_digest(prizes)
    return hkdf(server_seed + beacon + sealed, info)


def operation_key(server_seed, name):
    return hkdf(server_seed, text("operation") + text(name))


# Selection.

def stream(key, index):
    counter = index << 64
    while True:
        block = hmac.new(key, be(counter, 16), hashlib.sha256).digest()
        for i in range(0, 32, 8):
            yield int.from_bytes(block[i:i + 8], "big")
        counter += 1


def below(s, n):
    bound = 2 ** 64 // n * n
    while True:
        v = next(s)
        if v < bound:
            return v % n


def sample(s, n, k):
    rest = list(range(n))
    for i in range(k):
        j = i + below(s, n - i)
        rest[i], rest[j] = rest[j], rest[i]
    return rest[:k]


def weighted(s, weights):
    r = below(s, sum(weights))
    for i, w in enumerate(weights):
        if r < w:
            return i
        r -= w
    raise AssertionError


def draw(campaign, server_seed, beacon, positions, prizes):
    sealed = root(campaign, positions)
    key = draw_seed(campaign, server_seed, beacon, sealed, prizes)
    winners = []
    for i, prize in enumerate(prizes):
        eligible = [p for p in positions if prize["layer"] in (0, p["layer"])]
        for c in sample(stream(key, i), len(eligible), prize["quantity"]):
            p = eligible[c]
            winners.append({
                "prize": prize["name"],
                "layer": p["layer"],
                "position": {"id": p["id"], "layer": p["layer"], "number": p["number"]},
                "account": p["account"],
            })
    return sealed, key, winners


def proof(campaign, server_seed, beacon, positions, prizes):
    sealed, key, winners = draw(campaign, server_seed, beacon, positions, prizes)
    doc = {
        "versions": {"document": 1, "algorithm": 1},
        "campaign": campaign,
        "commitment": sha256(server_seed).hex(),
        "server_seed": server_seed.hex(),
        "root": sealed.hex(),
        "draw_seed": key.hex(),
    }
    if beacon:
        doc["beacon"] = {"signature": beacon.hex()}
    doc.update(positions=positions, prizes=prizes, winners=winners)
    return doc


# Verification.

def refuse(where, why):
    raise ValueError(f"{where}: {why}")


def pairs(items):
    out = {}
    for k, v in items:
        if k in out:
            refuse(k, "appears twice")
        out[k] = v
    return out


def load(data):
    def no(x):
        refuse("number", f"{x} is not a plain integer")

    def plain(x):
        return int(x) if x[0] != "-" else no(x)

    return json.loads(data.decode("utf-8"), object_pairs_hook=pairs,
                      parse_float=no, parse_constant=no, parse_int=plain)


def fields(where, value, names, optional=()):
    if not isinstance(value, dict):
        refuse(where, "not an object")
    for name in value:
        if name not in names and name not in optional:
            refuse(where, f"unknown field {name!r}")
    for name in names:
        if name not in value:
            refuse(where, f"{name} is missing")


def want_text(where, s):
    if not isinstance(s, str) or not 1 <= len(s) <= 200:
        refuse(where, "not a text of 1 to 200 characters")
    if any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in s):
        refuse(where, "control character or surrogate")


def want_int(where, n, low, high):
    if not isinstance(n, int) or isinstance(n, bool) or not low <= n <= high:
        refuse(where, f"not an integer from {low} to {high}")


def want_hex(where, s, sizes):
    if not isinstance(s, str) or len(s) // 2 not in sizes or not re.match(r"([0-9a-f]{2})+\Z", s):
        refuse(where, "not lower-case hexadecimal of the right length")


def want_list(where, v, low, high):
    if not isinstance(v, list) or not low <= len(v) <= high:
        refuse(where, f"not a list of {low} to {high}")


def want_place(where, p):
    want_text(where + ".id", p["id"])
    want_int(where + ".layer", p["layer"], 1, 10 ** 6)
    want_int(where + ".number", p["number"], 1, 10 ** 6)


def want_position(where, p):
    fields(where, p, ("id", "layer", "number", "account"))
    want_place(where, p)
    want_text(where + ".account", p["account"])


def verify(doc):
    fields("proof", doc, ("versions", "campaign", "commitment", "server_seed", "root", "draw_seed",
                          "positions", "prizes", "winners"), ("beacon",))
    fields("versions", doc["versions"], ("document", "algorithm"))
    for name in ("document", "algorithm"):
        want_int("versions." + name, doc["versions"][name], 1, 1)
    want_text("campaign", doc["campaign"])
    for name in ("commitment", "server_seed", "root", "draw_seed"):
        want_hex(name, doc[name], (32,))
    beacon = b""
    if "beacon" in doc:
        fields("beacon", doc["beacon"], ("signature",))
        want_hex("beacon.signature", doc["beacon"]["signature"], range(1, 1025))
        beacon = bytes.fromhex(doc["beacon"]["signature"])

    want_list("positions", doc["positions"], 1, 10 ** 6)
    last, ids = (0, 0), set()
    for i, p in enumerate(doc["positions"]):
        want_position(f"positions[{i}]", p)
        if not last < (p["layer"], p["number"]):
            refuse(f"positions[{i}]", "not in canonical order")
        if p["id"] in ids:
            refuse(f"positions[{i}].id", "appears twice")
        last = (p["layer"], p["number"])
        ids.add(p["id"])

    want_list("prizes", doc["prizes"], 0, 10 ** 4)
    names, total = set(), 0
    for i, p in enumerate(doc["prizes"]):
        fields(f"prizes[{i}]", p, ("name", "layer", "quantity"))
        want_text(f"prizes[{i}].name", p["name"])
        want_int(f"prizes[{i}].layer", p["layer"], 0, 10 ** 6)
        eligible = sum(1 for q in doc["positions"] if p["layer"] in (0, q["layer"]))
        want_int(f"prizes[{i}].quantity", p["quantity"], 1, eligible)
        if p["name"] in names:
            refuse(f"prizes[{i}].name", "appears twice")
        names.add(p["name"])
        total += p["quantity"]
    if total > 10 ** 6:
        refuse("prizes", "too many winners")

    want_list("winners", doc["winners"], 0, 10 ** 6)
    for i, w in enumerate(doc["winners"]):
        fields(f"winners[{i}]", w, ("prize", "layer", "position", "account"))
        fields(f"winners[{i}].position", w["position"], ("id", "layer", "number"))
        want_place(f"winners[{i}].position", w["position"])
        want_int(f"winners[{i}].layer", w["layer"], 1, 10 ** 6)

    server_seed = bytes.fromhex(doc["server_seed"])
    if server_seed == bytes(32):
        refuse("server_seed", "zero")
    true = proof(doc["campaign"], server_seed, beacon, doc["positions"], doc["prizes"])
    for name in ("commitment", "root", "draw_seed", "winners"):
        if doc[name] != true[name]:
            refuse(name, f"want {true[name]!r}, got {doc[name]!r}")


def verify_inclusion(doc):
    fields("inclusion", doc, ("versions", "campaign", "root", "position", "index", "size", "siblings"))
    if doc["versions"] != {"document": 1, "algorithm": 1}:
        refuse("versions", "not known")
    want_text("campaign", doc["campaign"])
    want_hex("root", doc["root"], (32,))
    want_position("position", doc["position"])
    want_int("size", doc["size"], 1, 10 ** 6)
    want_int("index", doc["index"], 0, doc["size"] - 1)
    want_list("siblings", doc["siblings"], 0, 20)
    for i, s in enumerate(doc["siblings"]):
        want_hex(f"siblings[{i}]", s, (32,))
    got = root_from_path(doc["campaign"], doc["position"], doc["index"], doc["size"],
                         [bytes.fromhex(s) for s in doc["siblings"]])
    if got.hex() != doc["root"]:
        refuse("root", f"want {got.hex()}, got {doc['root']}")


# The vectors.

def triangle(base, account):
    out = []
    for layer in range(1, base + 1):
        for number in range(1, layer + 1):
            i = len(out)
            out.append({"id": f"p-{layer}-{number}", "layer": layer, "number": number, "account": account(i)})
    return out


def inclusion(campaign, positions, index):
    return {
        "versions": {"document": 1, "algorithm": 1},
        "campaign": campaign,
        "root": root(campaign, positions).hex(),
        "position": positions[index],
        "index": index,
        "size": len(positions),
        "siblings": [h.hex() for h in tree_path(index, positions)],
    }


def vectors():
    count = bytes(range(32))
    other = sha256(b"another key")
    out = {"about": "Written by vectors.py. Integers over 2^53 are strings."}

    out["commitments"] = [{"seed": k.hex(), "commitment": sha256(k).hex()} for k in (count, other)]

    out["streams"] = []
    for key in (count, other):
        for index in (0, 1, 2 ** 32, 2 ** 64 - 1):
            s = stream(key, index)
            out["streams"].append({"key": key.hex(), "index": str(index),
                                   "integers": [str(next(s)) for _ in range(10)]})

    out["below"] = []
    for n in (1, 2, 3, 10, 210, 10 ** 6, 2 ** 32 - 1, 2 ** 63, 2 ** 63 + 1, 2 ** 64 - 1):
        s = stream(count, 7)
        out["below"].append({"key": count.hex(), "index": "7", "n": str(n),
                             "values": [str(below(s, n)) for _ in range(20)],
                             # What comes next shows how many were passed over.
                             "next": str(next(s))})

    out["between"] = []
    for low, high in ((1, 6), (-10, 10), (0, 0), (-2 ** 63, 2 ** 63 - 1), (-2 ** 63, 0)):
        s = stream(other, 3)
        width = high - low + 1
        out["between"].append({"key": other.hex(), "index": "3", "low": str(low), "high": str(high),
                               # A range of all 2^64 values adds the integer to low modulo 2^64.
                               "values": [str(low + below(s, width)) for _ in range(12)]})

    out["samples"] = [{"key": count.hex(), "index": str(i), "n": n, "k": k, "chosen": sample(stream(count, i), n, k)}
                      for i, (n, k) in enumerate(((0, 0), (1, 1), (5, 2), (10, 10), (210, 13), (1000, 3), (20000, 40)))]

    out["weights"] = []
    for i, weights in enumerate(([1], [1, 2, 3], [0, 5, 0, 1], [2 ** 63, 2 ** 62, 1], [1, 99, 900, 9000])):
        s = stream(other, i)
        out["weights"].append({"key": other.hex(), "index": str(i), "weights": [str(w) for w in weights],
                               "picks": [weighted(s, weights) for _ in range(16)]})

    out["operations"] = []
    for name in ("op-1", "op-2", "Ziehung Ä"):
        for index in (0, 1, 19999999):
            key = operation_key(count, name)
            s = stream(key, index)
            out["operations"].append({"seed": count.hex(), "operation": name, "key": key.hex(), "index": str(index),
                                      "integers": [str(next(s)) for _ in range(3)]})

    out["roots"] = []
    full = triangle(4, lambda i: f"acct-{i % 3}")
    for size in range(1, len(full) + 1):
        out["roots"].append({"campaign": "c-1", "positions": full[:size],
                             "leaf_message": leaf(full[size - 1]).hex(),
                             "leaf": sha256(leaf(full[size - 1])).hex(),
                             "tree": tree_hash(full[:size]).hex(),
                             "root": root("c-1", full[:size]).hex()})

    inputs = [
        ("c-1", count, b"", full, [{"name": "first", "layer": 1, "quantity": 1},
                                   {"name": "second", "layer": 4, "quantity": 2},
                                   {"name": "any", "layer": 0, "quantity": 3}]),
        ("c-1", count, bytes(range(48)), full, [{"name": "first", "layer": 1, "quantity": 1},
                                                {"name": "second", "layer": 4, "quantity": 2},
                                                {"name": "any", "layer": 0, "quantity": 3}]),
        ("one", other, b"", full[:1], [{"name": "all", "layer": 0, "quantity": 1}]),
        ("none", other, b"", full[:2], []),
        ("Fête 2026 🎈", other, b"", [dict(p, account="コント<&>\"\\" + p["account"]) for p in full],
         [{"name": "Größter Preis", "layer": 0, "quantity": 10}, {"name": "größter Preis", "layer": 3, "quantity": 3}]),
        ("0193b6c1-7c1a-7000-8000-000000000001", count, b"", triangle(20, lambda i: f"buyer-{i * 7 % 500:03d}"),
         [{"name": "Grand prize", "layer": 0, "quantity": 1}, {"name": "Layer 20", "layer": 20, "quantity": 5},
          {"name": "Consolation", "layer": 0, "quantity": 21}]),
    ]
    out["draws"] = [{"prize_digest": prize_digest(args[4]).hex(), "proof": proof(*args)} for args in inputs]
    for d in out["draws"]:
        verify(load(json.dumps(d["proof"]).encode()))

    out["inclusions"] = [inclusion("c-1", full[:7], i) for i in range(7)] + [inclusion("c-1", full[:1], 0)]
    for d in out["inclusions"]:
        verify_inclusion(d)
    return out


def main():
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors.json")
    args = sys.argv[1:]
    if len(args) == 2 and args[0] in ("--verify", "--verify-inclusion"):
        with open(args[1], "rb") as f:
            data = f.read()
        try:
            (verify if args[0] == "--verify" else verify_inclusion)(load(data))
        except (ValueError, KeyError, TypeError) as e:
            print(f"refused: {e}")
            return 1
        print("valid")
        return 0
    want = json.dumps(vectors(), indent=1, ensure_ascii=False) + "\n"
    if args == ["--check"]:
        with open(here, encoding="utf-8") as f:
            return 0 if f.read() == want else 1
    with open(here, "w", encoding="utf-8", newline="\n") as f:
        f.write(want)
    return 0


if __name__ == "__main__":
    sys.exit(main())
