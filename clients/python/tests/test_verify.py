from __future__ import annotations

import json
import unittest
from dataclasses import asdict, replace
from typing import Any

from support import ROOT

from fairlead import verify
from fairlead.verify import BeaconUnverifiedError, Position, Prize, ProofError, SignedMessage, verify_draw, verify_inclusion

VECTORS = json.loads((ROOT / "fairdraw/testdata/vectors.json").read_bytes())
SEALED = json.loads((ROOT / "translog/seal/testdata/sealed.json").read_bytes())
BEACON = json.loads((ROOT / "fairdraw/beacon/testdata/rounds.json").read_bytes())
CHAINS = {
    "quicknet": {
        "scheme": "bls-unchained-g1-rfc9380", "chain_hash": "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
        "public_key": "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451"
                      "0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
        "period": 3, "genesis_time": 1692803367, "genesis_seed": "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e",
        "beacon_id": "quicknet",
    },
    "default": {
        "scheme": "pedersen-bls-chained", "chain_hash": "8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce",
        "public_key": "868f005eb8e6e4ca0a47c8a77ceaa5309a47978a7c71bc5cce96366b5d7a569937c529eeda66c7293784a9402801af31",
        "period": 30, "genesis_time": 1595431050, "genesis_seed": "176f93498eac9ca337150b46d21dd58673ea4e3581185f869672e59fa4cb390a",
        "beacon_id": "default",
    },
}
SEED = bytes(range(32))


def stream(vector: dict[str, Any]) -> Any:
    return verify.integers(bytes.fromhex(vector["key"]), int(vector["index"]))


def forged(positions: list[Position], prizes: list[Prize], campaign: str = "c-1", seed: bytes = SEED, beacon: Any = None, **members: Any) -> bytes:
    """A document that agrees with itself, also where it breaks a rule."""
    root = verify.sealed_root(campaign, positions)
    signature = bytes.fromhex(beacon["signature"]) if beacon else b""
    key = verify.derive_draw_seed(seed, signature, root, campaign, prizes)
    try:
        winners = list(verify.select_winners(key, positions, prizes))
    except (KeyError, ZeroDivisionError):
        winners = []
    document = {
        "versions": {"document": 1, "algorithm": 1}, "campaign": campaign, "commitment": verify._sha256(seed).hex(), "server_seed": seed.hex(),
        "root": root.hex(), "draw_seed": key.hex(), "positions": [asdict(p) for p in positions], "prizes": [asdict(p) for p in prizes],
        "winners": [{"prize": w.prize, "layer": w.position.layer, "account": w.position.account,
                     "position": {"id": w.position.id, "layer": w.position.layer, "number": w.position.number}} for w in winners],
        **({"beacon": beacon} if beacon else {}), **members,
    }
    return json.dumps(document).encode()


POSITIONS = [Position(f"p-{layer}-{n}", layer, n, f"acct-{n}") for layer in range(1, 4) for n in range(1, layer + 1)]
PRIZES = [Prize("first", 1, 1), Prize("any", 0, 3)]


class VectorsTest(unittest.TestCase):
    def test_the_algorithm(self) -> None:
        for v in VECTORS["streams"]:
            numbers = stream(v)
            self.assertEqual([next(numbers) for _ in v["integers"]], [int(n) for n in v["integers"]])
        for v in VECTORS["below"]:
            numbers = stream(v)
            self.assertEqual([verify.below(numbers, int(v["n"])) for _ in v["values"]], [int(n) for n in v["values"]])
            self.assertEqual(next(numbers), int(v["next"]))
        for v in VECTORS["samples"]:
            self.assertEqual(verify.sample(stream(v), int(v["n"]), int(v["k"])), v["chosen"])
        for v in VECTORS["roots"]:
            positions = [Position(**p) for p in v["positions"]]
            self.assertEqual(verify.leaf(positions[-1]).hex() if len(positions) == 1 else v["leaf"], v["leaf"])
            self.assertEqual(verify.sealed_root(v["campaign"], positions).hex(), v["root"])

    def test_documents(self) -> None:
        for v in VECTORS["draws"]:
            proof = v["proof"]
            document = json.dumps(proof)
            if "beacon" in proof:
                with self.assertRaises(BeaconUnverifiedError):
                    verify_draw(document)
                continue
            draw = verify_draw(document, commitment=proof["commitment"], root=proof["root"])
            self.assertEqual(len(draw.winners), len(proof["winners"]))
            self.assertEqual(verify.prize_digest(draw.prizes).hex(), v["prize_digest"])
        for v in VECTORS["inclusions"]:
            inclusion = verify_inclusion(json.dumps(v), v["root"])
            self.assertEqual((inclusion.index, inclusion.position.id), (v["index"], v["position"]["id"]))


class RulesTest(unittest.TestCase):
    def test_what_was_published_is_compared(self) -> None:
        document = forged(POSITIONS, PRIZES)
        draw = verify_draw(document)
        for commitment, root in (("0" * 64, None), (None, "0" * 64), (draw.commitment.upper(), None)):
            with self.assertRaises(ProofError):
                verify_draw(document, commitment=commitment, root=root)

    def test_documents_that_agree_with_themselves_and_break_a_rule(self) -> None:
        first, *rest = POSITIONS
        broken = {
            "no positions": lambda: json.dumps({**json.loads(forged(POSITIONS, [])), "positions": []}),
            "a zero seed": lambda: forged(POSITIONS, PRIZES, seed=bytes(32)),
            "an id twice": lambda: forged([first, *rest[:-1], replace(rest[-1], id=first.id)], PRIZES),
            "not in order": lambda: forged([*rest, first], PRIZES),
            "a place twice": lambda: forged([first, replace(first, id="other"), *rest], PRIZES),
            "a prize twice": lambda: forged(POSITIONS, [*PRIZES, Prize("any", 0, 1)]),
            "an empty id": lambda: forged([replace(first, id=""), *rest], PRIZES),
            "a long id": lambda: forged([replace(first, id="x" * 201), *rest], PRIZES),
            "a control character": lambda: forged([replace(first, account="a\x85"), *rest], PRIZES),
            "an empty campaign": lambda: forged(POSITIONS, PRIZES, campaign=""),
            "layer 0": lambda: forged([replace(first, layer=0), *rest], PRIZES[1:]),
            "a large number": lambda: forged([*POSITIONS, Position("x", 1_000_001, 1, "a")], PRIZES),
            "none of a prize": lambda: forged(POSITIONS, [Prize("none", 0, 0)]),
            "more than there are": lambda: forged(POSITIONS, [Prize("many", 0, 7)], winners=[]),
            "of a layer that is not there": lambda: forged(POSITIONS, [Prize("far", 9, 1)], winners=[]),
            "a bare beacon": lambda: forged(POSITIONS, PRIZES, beacon={"signature": "0102"}),
            "no beacon": lambda: forged(POSITIONS, PRIZES, versions={"document": 2, "algorithm": 1}),
        }
        for name, make in broken.items():
            with self.subTest(name), self.assertRaises(ProofError):
                verify_draw(make())
        self.assertEqual(len(verify_draw(forged(POSITIONS, PRIZES)).winners), 4)
        self.assertEqual(verify_draw(forged([Position("x" * 200, 1_000_000, 1_000_000, "😀" * 200)], [])).winners, [])

    def test_a_beacon(self) -> None:
        """No signature is verified here: that is the caller's function. What it is given, and what is refused before, are."""
        for name, chain in CHAINS.items():
            with self.subTest(name):
                self.check_beacon(chain, BEACON[name][0])

    def check_beacon(self, chain: dict[str, Any], published: dict[str, Any]) -> None:
        beacon: dict[str, Any] = {**chain, "round": published["round"], "signature": published["signature"]}
        if published.get("previous_signature"):
            beacon["previous_signature"] = published["previous_signature"]
        document = forged(POSITIONS, PRIZES, beacon=beacon, versions={"document": 2, "algorithm": 1})
        with self.assertRaises(BeaconUnverifiedError):
            verify_draw(document)
        asked: list[SignedMessage] = []
        verify_draw(document, verify_signature=lambda signed: asked.append(signed) or True, round=published["round"])
        message = verify._sha256(bytes.fromhex(published.get("previous_signature") or "") + published["round"].to_bytes(8, "big"))
        self.assertEqual(asked, [SignedMessage(chain["scheme"], message, bytes.fromhex(chain["public_key"]), bytes.fromhex(published["signature"]))])
        with self.assertRaisesRegex(ProofError, "not that of the round"):
            verify_draw(document, verify_signature=lambda signed: False)
        with self.assertRaisesRegex(ProofError, "published round"):
            verify_draw(document, verify_signature=lambda signed: True, round=published["round"] + 1)
        other = "pedersen-bls-chained" if chain["scheme"] != "pedersen-bls-chained" else "bls-unchained-g1-rfc9380"
        for change in ({"period": chain["period"] + 1}, {"scheme": other}, {"previous_signature": "05"}, {"scheme": "x"}, {"round": 0},
                       {"round": 1 << 53}, {"signature": published["signature"][2:]}, {"chain_hash": "0" * 64}):
            with self.subTest(change), self.assertRaises(ProofError) as caught:
                verify_draw(forged(POSITIONS, PRIZES, beacon={**beacon, **change}, versions={"document": 2, "algorithm": 1}),
                            verify_signature=lambda signed: True)
            self.assertNotIsInstance(caught.exception, BeaconUnverifiedError)
        with self.assertRaises(ProofError):
            verify_draw(forged(POSITIONS, PRIZES, beacon=beacon), verify_signature=lambda signed: True)

    def test_a_seal_in_a_log(self) -> None:
        proof = SEALED["proof"]
        draw = verify_draw(json.dumps(proof), verify_signature=lambda signed: True, round=42)
        found = draw.seal
        assert found is not None
        self.assertEqual((found.log, found.index, found.size, found.signatures), ("log.example.com/shop", 5, 7, 4))
        self.assertEqual((found.due_at - found.sealed_at).total_seconds(), 3.5)
        with self.assertRaises(BeaconUnverifiedError):
            verify_draw(json.dumps(proof))
        seal = proof["seal"]
        note, leaf = seal["checkpoint"], seal["leaf"]
        for change in (
            {"index": 4}, {"index": 7}, {"inclusion": seal["inclusion"][1:]}, {"inclusion": [*seal["inclusion"], "0" * 64]},
            {"inclusion": ["0" * 64, *seal["inclusion"][1:]]}, {"leaf": leaf[:-1]}, {"leaf": leaf[4:]}, {"leaf": leaf[:4] + "\n" + leaf[4:]}, {"leaf": ""},
            {"checkpoint": note.replace("\n7\n", "\n9\n")}, {"checkpoint": note.replace("\n7\n", "\n07\n")}, {"checkpoint": note.partition("—")[0]},
            {"checkpoint": note.replace("\n\n", "\nmore\n\n")}, {"checkpoint": note + "x"}, {"more": 1},
        ):
            with self.subTest(change), self.assertRaises(ProofError) as caught:
                verify_draw(json.dumps({**proof, "seal": {**seal, **change}}))
            self.assertNotIsInstance(caught.exception, BeaconUnverifiedError)
        for wrong in ({**proof, "versions": {"document": 2, "algorithm": 1}}, {k: v for k, v in proof.items() if k != "seal"}):
            with self.assertRaisesRegex(ProofError, "seal"):
                verify_draw(json.dumps(wrong))
        other = forged(POSITIONS, PRIZES, beacon=proof["beacon"], versions=proof["versions"], seal=seal)
        with self.assertRaisesRegex(ProofError, "seal.leaf"):
            verify_draw(other)

    def test_a_chain_has_to_be_trusted(self) -> None:
        chain: dict[str, Any] = {"scheme": "bls-unchained-g1-rfc9380", "public_key": "01" * 96, "period": 3, "genesis_time": 1,
                                 "genesis_seed": "02", "beacon_id": "mine", "round": 7, "signature": "03" * 48}
        description = (3).to_bytes(4, "big") + (1).to_bytes(8, "big") + b"\x01" * 96 + b"\x02mine"
        chain["chain_hash"] = verify._sha256(description).hex()
        document = forged(POSITIONS, PRIZES, beacon=chain, versions={"document": 2, "algorithm": 1})
        with self.assertRaisesRegex(ProofError, "not trusted"):
            verify_draw(document, verify_signature=lambda signed: True)
        verify_draw(document, verify_signature=lambda signed: True, trusted_chains=[chain["chain_hash"]])

    def test_inclusion_breaks_off_at_every_wrong_place(self) -> None:
        for v in VECTORS["inclusions"]:
            for change in ({"index": v["index"] + 1}, {"size": v["size"] + 1}, {"siblings": v["siblings"] + [v["root"]]}, {"siblings": v["siblings"][1:]},
                           {"versions": {"document": 2, "algorithm": 1}}, {"position": {**v["position"], "account": "x"}}, {"extra": 1}):
                if change == {"siblings": v["siblings"]}:
                    continue  # A tree of one has none.
                with self.subTest(change), self.assertRaises(ProofError):
                    verify_inclusion(json.dumps({**v, **change}), v["root"])
            with self.assertRaises(ProofError):
                verify_inclusion(json.dumps(v), "0" * 64)


class ReadingTest(unittest.TestCase):
    def test_what_means_the_same(self) -> None:
        text = forged(POSITIONS, PRIZES, campaign="a/ü😀").decode()
        self.assertIn("\\ud83d", text)
        for other in (text.replace("\\ud83d\\ude00", "\U0001f600"), text.replace("\\ude", "\\uDE"), text.replace("a/", "\\u0061\\/"),
                      text.replace(":", "\t:\r\n "), text.replace('"server_seed": "0', '"server_seed": "\\u0030')):
            self.assertEqual(verify_draw(other.encode()).campaign, "a/ü😀")

    def test_what_is_refused(self) -> None:
        text = forged(POSITIONS, PRIZES).decode()
        for a, b in (
            ('"document": 1', '"document": 1.0'), ('"document": 1', '"document": 1e0'), ('"document": 1', '"document": 01'),
            ('"document": 1', '"document": -0'), ('"document": 1', '"document": true'), ('"document": 1', '"document": "1"'),
            ('"document": 1', '"document": ' + "1" * 5000), ('"document": 1', '"document": 1, "document": 1'), ('"root"', '"Root"'),
            ('"root"', '"\\u0072oot"'), ('"c-1"', '"c-1\\ud800"'), ('"c-1"', '"\\ude00\\ud83d"'), ('"c-1"', '"\\ud83d\\u0041"'), ('"c-1"', '"\\x"'),
            ('"c-1"', '"c\n1"'), ('"c-1"', "null"), ('"c-1"', "[" * 100_000), ("}]}", "},]}"), ("}]}", "}]}{}"), ("}]}", "}]}\x00"),
            ('{"versions"', '\ufeff{"versions"'), ('{"versions"', '\u00a0{"versions"'), ('"positions": [', '"positions": [,'), ('"campaign"', '"note"'),
        ):
            self.assertIn(a, text)
            with self.subTest(b[:40]), self.assertRaises(ProofError):
                verify_draw(text.replace(a, b, 1).encode())
        for document in (b"", b"\xff", b"[]", b"{}", text.encode("utf-16"), text.encode() + b"\xff"):
            with self.assertRaises(ProofError):
                verify_draw(document)
        with self.assertRaises(ProofError):
            verify_inclusion(b" " * 70_000, "0" * 64)


if __name__ == "__main__":
    unittest.main()
