"""Verifies proofs of draws and of inclusion, offline.

Written from docs/design/fairdraw.md alone; the numbers of sections below are that page's. It needs nothing of the server, and
nothing of the rest of this package.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from ._strict import ProofError, Reader

__all__ = ["BeaconUnverifiedError", "Draw", "Inclusion", "Position", "Prize", "ProofError", "Seal", "SignedMessage", "Winner", "verify_draw", "verify_inclusion"]

# Limits of §2, and of §9 and §11 for whole documents.
MAX_POSITIONS = 1_000_000
MAX_PRIZES = 10_000
MAX_WINNERS = 1_000_000
MAX_NUMBER = 1_000_000
MAX_PROOF_BYTES = 1 << 30
MAX_INCLUSION_BYTES = 1 << 16
MAX_SIBLINGS = 20
# Limits of §9.1.
MAX_LEAF_BYTES = 65_535
MAX_CHECKPOINT_BYTES = 128 << 10
MAX_LOG_SIZE = (1 << 53) - 1
MAX_LOG_SIBLINGS = 53

_SALT = b"fairlead/fairdraw/v1"


# The League of Entropy's chains quicknet and default, by the hash, which fixes all of a chain but the scheme (§10).
_PINNED = {
    "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971": "bls-unchained-g1-rfc9380",
    "8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce": "pedersen-bls-chained",
}
# How many bytes a scheme's public keys and signatures have, and whether it signs the signature before.
_SCHEMES = {"bls-unchained-g1-rfc9380": (96, 48, False), "pedersen-bls-chained": (48, 96, True)}


class BeaconUnverifiedError(ProofError):
    """A public beacon decided the draw, and nothing verified the beacon's signature. All else is right."""


@dataclass(frozen=True, slots=True)
class SignedMessage:
    """What a verifier of BLS signatures is given. §10 says on which curve, and with which domain separation tag."""

    scheme: str  #: ``bls-unchained-g1-rfc9380`` or ``pedersen-bls-chained``
    message: bytes
    public_key: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Position:
    """A position that was sold."""

    id: str
    layer: int
    number: int
    account: str


@dataclass(frozen=True, slots=True)
class Prize:
    """An entry of the prize list."""

    name: str
    layer: int  #: whose positions may win it; 0 means any
    quantity: int


@dataclass(frozen=True, slots=True)
class Winner:
    """A position that won a prize."""

    prize: str
    position: Position


@dataclass(frozen=True, slots=True)
class Seal:
    """Where the seal of a draw is in a public log. That it is there, and says the same as the proof, was verified; the signatures of
    the checkpoint were not."""

    log: str  #: the log's name, as the checkpoint has it
    index: int  #: of the entry, from 0
    size: int  #: how many entries the checkpoint has
    sealed_at: datetime
    due_at: datetime  #: when the beacon's round was due
    checkpoint: str  #: the signed note
    signatures: int  #: how many it has, none of which was verified


@dataclass(frozen=True, slots=True)
class Draw:
    """A draw whose proof is valid."""

    campaign: str
    commitment: str
    root: str
    positions: Sequence[Position]
    prizes: Sequence[Prize]
    winners: Sequence[Winner]
    seal: Seal | None = None  #: in documents of version 3


@dataclass(frozen=True, slots=True)
class Inclusion:
    """A position that was among those drawn from."""

    campaign: str
    root: str
    position: Position
    index: int  #: in canonical order, from 0
    size: int  #: how many positions there were


def verify_draw(
    document: bytes | str,
    *,
    commitment: str | None = None,
    root: str | None = None,
    round: int | None = None,
    verify_signature: Callable[[SignedMessage], bool] | None = None,
    trusted_chains: Collection[str] = (),
) -> Draw:
    """Recomputes a draw from its proof, the answer of ``Client.proof``, and returns it. Raises a :class:`ProofError` that names
    the first difference.

    A document of version 3 has its seal in a public log. This function verifies that the log's entry is that of the draw, and that it is
    under the checkpoint. It does not verify who has signed the checkpoint, because Python's standard library has no Ed25519:
    ``fairlead verify --log-key --witness`` does, and says how long before the round that was.

    commitment: what was published before the sale, 64 hexadecimal digits. A proof without it shows only that it agrees with
        itself. Take it from where it was published, not from the proof.
    root: what was published at sell-out, likewise
    round: the number of the beacon's round that was published at sell-out
    verify_signature: verifies a beacon's signature, with a library for BLS12-381. Without it, a draw that a beacon decided
        raises a :class:`BeaconUnverifiedError` when all else is right.
    trusted_chains: the hashes of further chains to trust; drand's quicknet and default are trusted
    """
    reader = Reader(document, MAX_PROOF_BYTES)
    draw, seed, draw_seed, listed, beacon, in_log = reader.whole(lambda: _read_proof(reader))
    if not any(seed):
        raise ProofError("server_seed: all zero")
    _same("commitment", _sha256(seed).hex(), draw.commitment)
    _check_inputs(draw.positions, draw.prizes)
    computed = sealed_root(draw.campaign, draw.positions)
    _same("root", computed.hex(), draw.root)
    key = derive_draw_seed(seed, beacon.signature if beacon else b"", computed, draw.campaign, draw.prizes)
    _same("draw_seed", key.hex(), draw_seed.hex())
    _compare_winners(list(select_winners(key, draw.positions, draw.prizes)), listed)
    if commitment is not None:
        _same("the published commitment", commitment, draw.commitment)
    if root is not None:
        _same("the published root", root, draw.root)
    if round is not None and (beacon is None or round != beacon.round):
        raise ProofError(f"the published round: {round} was expected, not {beacon and beacon.round}")
    if beacon is not None:
        if in_log is not None:
            draw = replace(draw, seal=_verify_seal(draw, beacon, in_log))
        _verify_beacon(beacon, trusted_chains, verify_signature)
    return draw


def verify_inclusion(document: bytes | str, root: str) -> Inclusion:
    """Verifies that a position was among those drawn from, with the answer of ``Client.inclusion_proof``, and returns it. Raises a
    :class:`ProofError`.

    root: 64 hexadecimal digits, from where you trust it: as published at sell-out, or of the campaign's verified proof
    """
    reader = Reader(document, MAX_INCLUSION_BYTES)
    position = _position(reader)
    fields = reader.whole(lambda: reader.object({
        "versions": lambda: _versions(reader, 1),
        "campaign": reader.text,
        "root": reader.digest,
        "position": position,
        "index": lambda: reader.integer(0, MAX_POSITIONS - 1),
        "size": lambda: reader.integer(1, MAX_POSITIONS),
        "siblings": lambda: reader.list(reader.digest, MAX_SIBLINGS),
    }))
    _same("root", root, fields["root"].hex())
    index, size, siblings = fields["index"], fields["size"], iter(fields["siblings"])
    if index >= size:
        raise ProofError(f"index: {index} is not under the size, {size}")
    digest = _climb("siblings", leaf(fields["position"]), index, size, siblings)
    _same("root", seal(fields["campaign"], size, digest).hex(), root)
    return Inclusion(fields["campaign"], root, fields["position"], index, size)


def _climb(what: str, digest: bytes, i: int, width: int, siblings: Iterator[bytes]) -> bytes:
    """The top of the tree over a leaf (§11), which is that of RFC 6962."""
    while width > 1:
        if i ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None:
                raise ProofError(f"{what}: one is missing")
            digest = node(sibling, digest) if i % 2 else node(digest, sibling)
        i, width = i // 2, (width + 1) // 2
    if next(siblings, None) is not None:
        raise ProofError(f"{what}: one is left over")
    return digest


# --- Reading (§9, §10) ---


@dataclass(frozen=True, slots=True)
class _Beacon:
    signature: bytes
    scheme: str = ""  # Empty where the signature is all that is given.
    chain_hash: str = ""
    public_key: bytes = b""
    genesis_seed: bytes = b""
    round: int | None = None
    previous: bytes = b""
    period: int = 0
    genesis_time: int = 0


@dataclass(frozen=True, slots=True)
class _Seal:
    leaf: bytes
    index: int
    inclusion: list[bytes]
    checkpoint: str


def _read_proof(r: Reader) -> tuple[Draw, bytes, bytes, list[Winner], _Beacon | None, _Seal | None]:
    fields = r.object({
        "versions": lambda: _versions(r, 1, 2, 3),
        "campaign": r.text,
        "commitment": r.digest,
        "server_seed": r.digest,
        "root": r.digest,
        "draw_seed": r.digest,
        "beacon": lambda: _read_beacon(r),
        "seal": lambda: _read_seal(r),
        "positions": lambda: r.list(_position(r), MAX_POSITIONS),
        "prizes": lambda: r.list(_prize(r), MAX_PRIZES),
        "winners": lambda: r.list(_winner(r), MAX_WINNERS),
    }, frozenset({"beacon", "seal"}))
    beacon, in_log = fields.get("beacon"), fields.get("seal")
    if (fields["versions"] >= 2) != (beacon is not None and beacon.scheme != ""):
        raise ProofError("beacon: not that of the document's version")
    if (fields["versions"] == 3) != (in_log is not None):
        raise ProofError("seal: not that of the document's version")
    listed = fields["winners"]
    draw = Draw(fields["campaign"], fields["commitment"].hex(), fields["root"].hex(), fields["positions"], fields["prizes"], listed)
    return draw, fields["server_seed"], fields["draw_seed"], listed, beacon, in_log


def _read_seal(r: Reader) -> _Seal:
    def text(limit: int) -> str:
        value = r.string()
        if not 1 <= len(value.encode("utf-8")) <= limit:
            raise r.fail(f"1 to {limit} bytes were expected")
        return value

    def in_base64() -> bytes:
        raw = _base64(text(4 * ((MAX_LEAF_BYTES + 2) // 3)))
        if raw is None or len(raw) > MAX_LEAF_BYTES:
            raise r.fail("base64 was expected")
        return raw

    return _Seal(**r.object({
        "leaf": in_base64,
        "index": lambda: r.integer(0, MAX_LOG_SIZE - 1),
        "inclusion": lambda: r.list(r.digest, MAX_LOG_SIBLINGS),
        "checkpoint": lambda: text(MAX_CHECKPOINT_BYTES),
    }))


def _base64(text: str) -> bytes | None:
    """Reads base64 that is written in the one way that there is."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return raw if base64.b64encode(raw).decode() == text else None


def _versions(r: Reader, *known: int) -> int:
    versions = r.object({"document": lambda: r.integer(0, MAX_NUMBER), "algorithm": lambda: r.integer(0, MAX_NUMBER)})
    document: int = versions["document"]
    if document not in known or versions["algorithm"] != 1:
        raise r.fail("these versions are not known")
    return document


def _position(r: Reader) -> Callable[[], Position]:
    fields = {**_place(r), "account": r.text}
    return lambda: Position(**r.object(fields))


def _place(r: Reader) -> dict[str, Callable[[], Any]]:
    return {"id": r.text, "layer": lambda: r.integer(1, MAX_NUMBER), "number": lambda: r.integer(1, MAX_NUMBER)}


def _prize(r: Reader) -> Callable[[], Prize]:
    fields = {"name": r.text, "layer": lambda: r.integer(0, MAX_NUMBER), "quantity": lambda: r.integer(1, MAX_WINNERS)}
    return lambda: Prize(**r.object(fields))


def _winner(r: Reader) -> Callable[[], Winner]:
    place = _place(r)
    fields = {"prize": r.text, "layer": lambda: r.integer(1, MAX_NUMBER), "position": lambda: r.object(place), "account": r.text}

    def read() -> Winner:
        winner = r.object(fields)
        if winner["layer"] != winner["position"]["layer"]:
            raise r.fail("the layer is not that of the position")
        return Winner(winner["prize"], Position(**winner["position"], account=winner["account"]))

    return read


def _read_beacon(r: Reader) -> _Beacon:
    chain = {
        "scheme": r.text, "chain_hash": r.digest, "public_key": lambda: r.hexadecimal(1, 256),
        "period": lambda: r.integer(1, 86_400), "genesis_time": lambda: r.integer(1, 253402300799),
        "genesis_seed": lambda: r.hexadecimal(1, 256), "beacon_id": r.text, "round": lambda: r.integer(1, (1 << 53) - 1),
    }
    fields = r.object({
        **chain, "signature": lambda: r.hexadecimal(1, 1024), "previous_signature": lambda: r.hexadecimal(1, 1024),
    }, frozenset(chain) | {"previous_signature"})
    if len(fields) == 1:
        return _Beacon(fields["signature"])
    if not fields.keys() >= chain.keys():
        raise r.fail("neither a signature alone nor a round with all of its chain")
    scheme = fields["scheme"]
    if scheme not in _SCHEMES or _SCHEMES[scheme][2] != ("previous_signature" in fields):
        raise r.fail("the scheme is not known, or does not go with previous_signature")
    name = b"" if fields["beacon_id"] == "default" else fields["beacon_id"].encode("utf-8")
    description = _u32(fields["period"]) + _u64(fields["genesis_time"]) + fields["public_key"] + fields["genesis_seed"] + name
    if _sha256(description) != fields["chain_hash"]:
        raise r.fail("chain_hash is not that of the chain")
    return _Beacon(fields["signature"], scheme, fields["chain_hash"].hex(), fields["public_key"], fields["genesis_seed"],
                   fields["round"], fields.get("previous_signature", b""), fields["period"], fields["genesis_time"])


def _verify_beacon(beacon: _Beacon, trusted: Collection[str], verify: Callable[[SignedMessage], bool] | None) -> None:
    if beacon.round is None:
        raise BeaconUnverifiedError("beacon: the document does not say of which round the signature is")
    if _PINNED.get(beacon.chain_hash, beacon.scheme) != beacon.scheme:
        raise ProofError(f"beacon.scheme: the chain does not sign by {beacon.scheme}")
    if beacon.chain_hash not in _PINNED and beacon.chain_hash not in trusted:
        raise ProofError(f"beacon.chain_hash: the chain {beacon.chain_hash} is not trusted")
    key_size, signature_size, chained = _SCHEMES[beacon.scheme]
    if (len(beacon.public_key), len(beacon.signature)) != (key_size, signature_size):
        raise ProofError(f"beacon: the key or the signature has not the length that {beacon.scheme} wants")
    if chained and beacon.round == 1 and beacon.previous != beacon.genesis_seed:
        raise ProofError("beacon.previous_signature: before round 1, it is the genesis seed")
    if chained and beacon.round > 1 and len(beacon.previous) != signature_size:
        raise ProofError("beacon.previous_signature: has not the length of a signature")
    if verify is None:
        raise BeaconUnverifiedError("beacon: its signature was not verified")
    signed = SignedMessage(beacon.scheme, _sha256(beacon.previous + _u64(beacon.round)), beacon.public_key, beacon.signature)
    if verify(signed) is not True:
        raise ProofError("beacon.signature: not that of the round")


# --- The seal (§9.1) ---

_CHECKPOINT = re.compile(
    r"([^\x00-\x1f\x7f]+)\n([1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:\u2014 [^\x00-\x20\x7f+]+ [A-Za-z0-9+/=]+\n)+)")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LAST = 253402300799  # the last second of the year 9999


def _verify_seal(draw: Draw, beacon: _Beacon, s: _Seal) -> Seal:
    assert beacon.round is not None  # As a document of version 3 has it.
    due = beacon.genesis_time + (beacon.round - 1) * beacon.period
    if due > _LAST:
        raise ProofError("seal.leaf: the round is due after the year 9999")
    due_at = _EPOCH + timedelta(seconds=due)
    topic = "campaign:" + draw.campaign.replace("\\", "\\\\").replace('"', '\\"')
    head = f'{{"type":"campaign.sealed","topic":"{topic}","seq":2,"at":"'.encode()
    tail = (f'","data":{{"positions":{len(draw.positions)},"root":"{draw.root}","round":{beacon.round},'
            f'"due_at":"{due_at:%Y-%m-%dT%H:%M:%S}.000000Z"}}}}').encode()
    at = s.leaf[len(head):-len(tail)].decode("latin-1")
    if s.leaf[:len(head)] != head or s.leaf[-len(tail):] != tail or not _TIME.fullmatch(at):
        raise ProofError("seal.leaf: it does not say that this campaign was sealed with this root for this round")
    try:
        sealed_at = datetime.strptime(at, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc)
    except ValueError as err:
        raise ProofError(f"seal.leaf: {at} is no time") from err
    if sealed_at > due_at - timedelta(seconds=beacon.period):
        raise ProofError(f"seal.leaf: sealed at {at}, less than a period before the round was due")
    match = _CHECKPOINT.fullmatch(s.checkpoint)
    root = match and _base64(match[3])
    if match is None or root is None or int(match[2]) > MAX_LOG_SIZE:
        raise ProofError("seal.checkpoint: it is not a signed checkpoint of a log")
    size = int(match[2])
    if s.index >= size:
        raise ProofError(f"seal.index: {s.index} is not under the size, {size}")
    _same("seal.inclusion", root.hex(), _climb("seal.inclusion", _sha256(b"\x00" + s.leaf), s.index, size, iter(s.inclusion)).hex())
    return Seal(match[1], s.index, size, sealed_at, due_at, s.checkpoint, match[4].count("\n"))


# --- Rules and comparisons (§2, §9) ---


def _check_inputs(positions: Sequence[Position], prizes: Sequence[Prize]) -> None:
    if not positions:
        raise ProofError("positions: there are none")
    per_layer: dict[int, int] = {0: len(positions)}
    ids, last = set(), (0, 0)
    for i, position in enumerate(positions):
        if (position.layer, position.number) <= last:
            raise ProofError(f"positions[{i}]: does not come after the one before it")
        last = position.layer, position.number
        if position.id in ids:
            raise ProofError(f"positions[{i}].id: appears twice")
        ids.add(position.id)
        per_layer[position.layer] = per_layer.get(position.layer, 0) + 1
    if len({prize.name for prize in prizes}) != len(prizes):
        raise ProofError("prizes: a name appears twice")
    for i, prize in enumerate(prizes):
        if prize.quantity > per_layer.get(prize.layer, 0):
            raise ProofError(f"prizes[{i}].quantity: more than there are eligible positions")
    if sum(prize.quantity for prize in prizes) > MAX_WINNERS:
        raise ProofError(f"prizes: over {MAX_WINNERS} winners")


def _same(what: str, want: str, got: str) -> None:
    if want != got:
        raise ProofError(f"{what}: {want} was expected, not {got}")


def _compare_winners(want: Sequence[Winner], got: Sequence[Winner]) -> None:
    if len(want) != len(got):
        raise ProofError(f"winners: {len(want)} were expected, not {len(got)}")
    for i, (computed, listed) in enumerate(zip(want, got)):
        if computed != listed:
            raise ProofError(f"winners[{i}]: {computed} was expected, not {listed}")


# --- The algorithm (§1 and §3 to §7) ---


def _u32(n: int) -> bytes:
    return n.to_bytes(4, "big")


def _u64(n: int) -> bytes:
    return n.to_bytes(8, "big")


def _text(s: str) -> bytes:
    raw = s.encode("utf-8")
    return _u32(len(raw)) + raw


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _hmac(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")


def _hkdf(ikm: bytes, info: bytes) -> bytes:
    return _hmac(_hmac(_SALT, ikm), info + b"\x01")


def leaf(p: Position) -> bytes:
    return _sha256(b"\x00" + _text(p.id) + _u32(p.layer) + _u32(p.number) + _text(p.account))


def node(left: bytes, right: bytes) -> bytes:
    return _sha256(b"\x01" + left + right)


def seal(campaign: str, size: int, tree: bytes) -> bytes:
    return _sha256(b"\x02" + _text(campaign) + _u64(size) + tree)


def sealed_root(campaign: str, positions: Sequence[Position]) -> bytes:
    level = [leaf(p) for p in positions]
    while len(level) > 1:
        above = [node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
        level = above + level[len(above) * 2:]  # A last hash without a partner moves up unchanged.
    return seal(campaign, len(positions), level[0])


def prize_digest(prizes: Sequence[Prize]) -> bytes:
    return _sha256(b"\x03" + _u32(len(prizes)) + b"".join(_text(p.name) + _u32(p.layer) + _u32(p.quantity) for p in prizes))


def derive_draw_seed(seed: bytes, beacon: bytes, root: bytes, campaign: str, prizes: Sequence[Prize]) -> bytes:
    return _hkdf(seed + beacon + root, _text("draw") + _text(campaign) + prize_digest(prizes))


def integers(key: bytes, index: int) -> Iterator[int]:
    """Stream number index under a key, as 64-bit integers."""
    counter = index << 64
    while True:
        block = _hmac(key, counter.to_bytes(16, "big"))
        for at in range(0, 32, 8):
            yield int.from_bytes(block[at:at + 8], "big")
        counter += 1


def below(stream: Iterator[int], n: int) -> int:
    bound = (1 << 64) - (1 << 64) % n
    return next(value for value in stream if value < bound) % n


def sample(stream: Iterator[int], n: int, k: int) -> list[int]:
    # Entries that were never swapped stand for themselves, so a small sample of many takes little memory.
    swapped: dict[int, int] = {}
    chosen = []
    for i in range(k):
        j = i + below(stream, n - i)
        chosen.append(swapped.get(j, j))
        swapped[j] = swapped.pop(i, i)
    return chosen


def select_winners(key: bytes, positions: Sequence[Position], prizes: Sequence[Prize]) -> Iterator[Winner]:
    by_layer: dict[int, list[Position]] = {0: list(positions)}
    for position in positions:
        by_layer.setdefault(position.layer, []).append(position)
    for index, prize in enumerate(prizes):
        eligible = by_layer[prize.layer]
        for place in sample(integers(key, index), len(eligible), prize.quantity):
            yield Winner(prize.name, eligible[place])
