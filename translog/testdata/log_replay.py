"""Replays the leaves of a Fairlead log, as docs/design/log.md says.

A part of verify_log.py. A topic is a machine that takes one fact after the other and demands of each what the facts before it
leave to it.
"""

import bisect

from log_draws import draw_seed, draws, integers, sample
from log_leaves import (
    ALIAS, BYTES, CURRENCY, HASH, MAX_DATA, SIGNED, STRING, TEXT, Leaf, Topic, at_leaf, be, boolean, demand, duration, list_of, matching,
    micros, number, object_of, optional, parse, read, sha256, text,
)


class Log:
    """Takes leaves in order of their indexes, and replays all topics."""

    def __init__(self):
        self.topics, self.pieces, self.leaves = {}, [], 0

    def add(self, index, entry):
        """Takes a leaf, and returns its topic.

        A log may end between the facts of one transaction: whatever comes next must continue it.
        """
        leaf = Leaf(index, entry)
        self.leaves += 1
        label = "%s, seq %d, %s: " % (leaf.topic, leaf.seq, leaf.type)
        with at_leaf(index, label):
            topic = self.topics.get(leaf.topic) or KINDS[leaf.topic.split(":")[0]](leaf.topic)
            self.topics[leaf.topic] = topic
            topic.kind = leaf.type
            if self.pieces or leaf.parts:
                first = self.pieces[0] if self.pieces else leaf
                same = all(getattr(leaf, m) == getattr(first, m) for m in ("type", "topic", "seq", "at", "parts"))
                follows = leaf.part == len(self.pieces) + 1 and (not self.pieces or index == self.pieces[-1].index + 1)
                demand(same and follows, "it is not the next piece of the fact before")
                self.pieces.append(leaf)
                if leaf.part < leaf.parts:
                    return topic
                whole = "".join(piece.text for piece in self.pieces)
                demand(len(whole.encode()) > MAX_DATA, "its data would have fitted one leaf")
                leaf.data, self.pieces = parse(whole), []
            topic.take(leaf)
        return topic

    def report(self):
        counts, open_topics, notes = {}, 0, []
        for topic in self.topics.values():
            kind = topic.name.split(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
            open_topics += kind != "books" and not topic.ended
            notes += topic.notes
        bids = sum(t.bids for t in self.topics.values() if isinstance(t, Auction))
        return {"leaves": self.leaves, "topics": counts, "bids": bids, "under_way": open_topics, "unverified": notes}


# ---- Campaigns

BEACON = {
    "scheme": matching("bls-unchained-g1-rfc9380|pedersen-bls-chained"), "chain_hash": HASH, "public_key": BYTES,
    "period": number(1, 86400), "genesis_time": number(1, 253402300799), "genesis_seed": BYTES, "beacon_id": TEXT,
}
CAMPAIGN = {
    "name": TEXT, "draw": matching("instant|beacon"), "commitment": HASH, "currency": CURRENCY, "beneficiary": ALIAS,
    "layers": list_of(object_of({"positions": number(1), "price": number(1)}), 1),
    "prizes": list_of(object_of({"name": TEXT, "layer": number(), "quantity": number(1)})),
    "purchase_limit": optional(number(1)), "beacon": optional(object_of(BEACON)), "witnesses": number(),
}
SEAL = {"positions": number(1), "root": HASH, "round": optional(number(1, 2**53 - 1)), "due_at": optional(micros)}
ROUND = {"round": number(1), "signature": BYTES, "previous_signature": optional(BYTES)}
DRAW = {"server_seed": HASH, "draw_seed": HASH, "winners": list_of(list_of(number())), "beacon": optional(object_of(ROUND))}
PINNED = {
    "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971": "bls-unchained-g1-rfc9380",
    "8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce": "pedersen-bls-chained",
}


class Campaign(Topic):
    ORDER = {
        "campaign.created": [None], "campaign.published": ["campaign.created"], "campaign.sealed": ["campaign.published"],
        "campaign.drawn": ["campaign.sealed"], "campaign.cancelled": ["campaign.created", "campaign.published", "campaign.sealed"],
    }

    def __init__(self, name):
        super().__init__(name)
        self.state = None
        self.seal = None

    def decide(self, leaf):
        demand(leaf.type in self.ORDER, "campaigns have no such fact")
        demand(self.state in self.ORDER[leaf.type], "it cannot follow %s" % self.state)
        self.state = leaf.type
        self.ended = leaf.type in ("campaign.drawn", "campaign.cancelled")
        getattr(self, leaf.type.split(".")[1])(leaf)

    def created(self, leaf):
        self.made = made = read(leaf.data, CAMPAIGN)
        self.total = sum(layer["positions"] for layer in made["layers"])
        for prize in made["prizes"]:
            low, high = self.eligible(prize["layer"])
            demand(prize["quantity"] <= high - low, "more is to be won of %r than can win" % prize["name"])
        demand(len({p["name"] for p in made["prizes"]}) == len(made["prizes"]), "two prizes have one name")
        chain = made.get("beacon")
        demand((chain is not None) == (made["draw"] == "beacon"), "beacon is there if and only if draw says so")
        if chain:
            name = "" if chain["beacon_id"] == "default" else chain["beacon_id"]
            known = bytes.fromhex(chain["public_key"]) + bytes.fromhex(chain["genesis_seed"]) + name.encode()
            digest = sha256(be(chain["period"], 4) + be(chain["genesis_time"], 8) + known).hex()
            demand(digest == chain["chain_hash"], "chain_hash is not that of the chain")
            if PINNED.get(digest) != chain["scheme"]:
                self.notes.append("%s: its chain %s is none of fairdraw §10" % (self.name, digest))

    def eligible(self, layer):
        """Returns the range of ordinals of a layer's positions, or of all for 0."""
        sizes = [x["positions"] for x in self.made["layers"]]
        if layer == 0:
            return 0, self.total
        demand(layer <= len(sizes), "there is no layer %d" % layer)
        return sum(sizes[:layer - 1]), sum(sizes[:layer])

    def published(self, leaf):
        pass

    def cancelled(self, leaf):
        demand(self.seal is None or self.made["witnesses"] > 0, "a campaign without witnesses cannot be cancelled after its seal")

    def sealed(self, leaf):
        self.seal = seal = read(leaf.data, SEAL)
        demand(seal["positions"] == self.total, "not as many positions are sealed as there are")
        chain = self.made.get("beacon")
        demand(("round" in seal) == ("due_at" in seal) == (chain is not None), "a round is there if and only if draw says so")
        if chain:
            due = (chain["genesis_time"] + (seal["round"] - 1) * chain["period"]) * 10**6
            demand(due == seal["due_at"], "its round is due at another time")
            demand(due >= leaf.micros + chain["period"] * 10**6, "its round is due less than a period later")

    def drawn(self, leaf):
        draw = read(leaf.data, DRAW)
        seed, root, beacon = bytes.fromhex(draw["server_seed"]), bytes.fromhex(self.seal["root"]), b""
        demand(any(seed) and sha256(seed).hex() == self.made["commitment"], "its seed is not the committed one")
        chain = self.made.get("beacon")
        demand(("beacon" in draw) == (chain is not None), "a round is there if and only if draw says so")
        if chain:
            got = draw["beacon"]
            demand(got["round"] == self.seal["round"], "its round is not the sealed one")
            chained = chain["scheme"] == "pedersen-bls-chained"
            demand(("previous_signature" in got) == chained, "previous_signature is there if and only if the chain has it")
            beacon = bytes.fromhex(got["signature"])
            self.notes.append("%s: signature of round %d not verified" % (self.name, got["round"]))
        key = draw_seed(seed, beacon, root, self.id, self.made["prizes"])
        demand(key.hex() == draw["draw_seed"], "draw_seed does not follow")
        demand(len(draw["winners"]) == len(self.made["prizes"]), "winners are not for each prize")
        for i, (prize, winners) in enumerate(zip(self.made["prizes"], draw["winners"])):
            low, high = self.eligible(prize["layer"])
            right = [low + x for x in sample(integers(key, i), high - low, prize["quantity"])]
            demand(winners == right, "the winners of prize %d are %s, not %s" % (i, right, winners))


# ---- Auctions

ROUNDS = list_of(object_of({
    "round": number(1), "winners": number(1), "status": STRING, "duration": duration,
    "started_at": lambda v: v if v is None else micros(v), "ends_at": lambda v: v if v is None else micros(v),
    "extensions": number(), "cancelled": optional(boolean),
}))
AUCTION = {
    "title": STRING, "currency": CURRENCY, "seller": ALIAS, "min_bid": number(1), "min_increment": number(1),
    "rounds": list_of(object_of({"winners": number(1), "duration": number(1)}), 1),
    "window": number(), "extension": number(), "max_extensions": number(), "cooldown": number(), "unique_amounts": boolean,
}
AMOUNT = number(1, 2**53 - 1)
EVENTS = {
    "auction.started": {"rounds": ROUNDS}, "auction.completed": {"rounds": ROUNDS}, "auction.cancelled": {"rounds": ROUNDS},
    "bid.placed": {
        "account": ALIAS, "amount": AMOUNT, "previous_amount": number(), "round": number(1), "rank": number(1),
        "outbid": optional(list_of(object_of({"account": ALIAS, "amount": AMOUNT, "rank": number(1)}), 0, 1)),
        "min_winning_bid": optional(AMOUNT),
    },
    "round.extended": {"round": number(1), "ends_at": micros, "extensions": number(1)},
    "round.completed": {"round": number(1), "winners": list_of(object_of({"account": ALIAS, "amount": AMOUNT}))},
    "bid.carried_over": {"account": ALIAS, "amount": AMOUNT, "from_round": number(1), "to_round": number(1)},
    "round.started": {"round": number(1), "ends_at": micros, "winners": number(1)},
}


class Auction(Topic):
    """due are the events that the same transaction must still have, each with its type and data."""

    def __init__(self, name):
        super().__init__(name)
        self.state, self.current, self.bids, self.standing, self.due = None, None, 0, {}, []

    def take(self, leaf):
        if self.due:
            demand(leaf.micros == self.last, "%s of the fact before is missing" % self.due[0][0])
        super().take(leaf)

    def decide(self, leaf):
        if self.state is None:
            demand(leaf.type == "auction.created", "an auction begins with auction.created")
            self.made, self.state = read(leaf.data, AUCTION), "pending"
            self.rounds = [dict(r, round=i + 1, status="pending", started_at=None, ends_at=None, extensions=0)
                           for i, r in enumerate(self.made["rounds"])]
            return
        demand(leaf.type in EVENTS, "auctions have no such fact")
        data = read(leaf.data, EVENTS[leaf.type])
        if self.due:
            kind, right = self.due.pop(0)
            demand(leaf.type == kind, "%s must come here" % kind)
            self.same(data, right)
            self.ended = leaf.type == "auction.completed"
            return
        decide = {
            "auction.started": self.start, "auction.cancelled": self.cancel, "bid.placed": self.bid, "round.completed": self.close,
        }
        demand(leaf.type in decide, "nothing before has led to it")
        decide[leaf.type](leaf, data)

    @staticmethod
    def same(data, right):
        for name in right:
            demand(data.get(name) == right[name], "%s is %s, not %s" % (name, data.get(name), right[name]))

    def open(self, i, at):
        """Opens round i, and returns the event of it."""
        self.current = r = self.rounds[i]
        r.update(status="active", started_at=at, ends_at=at + r["duration"])
        return "round.started", {"round": i + 1, "ends_at": r["ends_at"], "winners": r["winners"]}

    def start(self, leaf, data):
        demand(self.state == "pending", "it has been started before")
        self.state, event = "active", self.open(0, leaf.micros)
        self.same(data, {"rounds": self.rounds})
        self.due = [event]

    def cancel(self, leaf, data):
        self.ended = True
        for got, r in zip(data["rounds"], self.rounds):
            if "cancelled" in got:
                demand(got.pop("cancelled") == (r["status"] != "completed"), "round %d does not say rightly whether it was cancelled" % r["round"])
        if self.current:
            self.current["status"] = "completed"
        self.same(data, {"rounds": self.rounds})

    def order(self):
        """Returns the standing bids, best first: higher ones, and earlier ones among equals."""
        return sorted(((-amount, seq, account) for account, (amount, seq, _) in self.standing.items()))

    def bid(self, leaf, data):
        r, account, amount, made = self.current, data["account"], data["amount"], self.made
        demand(self.state == "active" and r, "no round is open")
        demand(data["round"] == r["round"], "the open round is %d" % r["round"])
        demand(leaf.micros < r["ends_at"], "the round has ended")
        demand(account != made["seller"], "the seller bids")
        before, _, at = self.standing.get(account, (0, 0, None))
        demand(at is None or leaf.micros - at >= made["cooldown"], "the cooldown of its account is not over")
        demand(amount >= (before + made["min_increment"] if before else made["min_bid"]), "it is too low")
        taken = made["unique_amounts"] and any(a == amount for who, (a, _, _) in self.standing.items() if who != account)
        demand(not taken, "its amount is taken")
        places, old = r["winners"], self.order()
        self.standing[account] = (amount, leaf.seq, leaf.micros)
        self.bids += 1
        new = self.order()
        ranked = [who for _, _, who in new]
        right = {"previous_amount": before, "rank": ranked.index(account) + 1, "outbid": [], "min_winning_bid": None}
        for _, _, who in old[:places]:
            if who not in ranked[:places]:
                right["outbid"] = [{"account": who, "amount": self.standing[who][0], "rank": ranked.index(who) + 1}]
                right["min_winning_bid"] = -new[places - 1][0] + 1
        if "outbid" not in data:  # It follows from the leaves before; a leaf need not have it.
            del right["outbid"], right["min_winning_bid"]
        self.same(data, right)
        if r["ends_at"] - leaf.micros <= made["window"] and made["extension"] and r["extensions"] < made["max_extensions"]:
            r["extensions"] += 1
            r["ends_at"] += made["extension"]
            self.due = [("round.extended", {"round": r["round"], "ends_at": r["ends_at"], "extensions": r["extensions"]})]

    def close(self, leaf, data):
        r = self.current
        demand(self.state == "active" and r, "no round is open")
        demand(leaf.micros >= r["ends_at"], "the round has not ended")
        order = self.order()
        winners = [{"account": who, "amount": -amount} for amount, _, who in order[:r["winners"]]]
        self.same(data, {"round": r["round"], "winners": winners})
        r["status"] = "completed"
        for winner in winners:
            del self.standing[winner["account"]]
        if r["round"] == len(self.rounds):
            self.current = None
            self.due = [("auction.completed", {"rounds": self.rounds})]
            return
        self.due = [("bid.carried_over", {"account": who, "amount": -amount, "from_round": r["round"], "to_round": r["round"] + 1})
                    for amount, _, who in order[r["winners"]:]]
        self.due.append(self.open(r["round"], leaf.micros))


# ---- Multi-draws

MULTIDRAW = {
    "count": number(1, 20000000), "every": number(1), "commitment": HASH,
    "range": optional(object_of({"min": SIGNED, "max": SIGNED})),
    "prizes": optional(list_of(object_of({"id": STRING, "name": STRING, "weight": number(), "value": SIGNED}), 1)),
}
MULTIDRAW_END = {"status": matching("completed|rolled_back"), "completed": number(), "digest": HASH, "seed": optional(HASH)}


class Multidraw(Topic):
    def __init__(self, name):
        super().__init__(name)
        self.made = None

    def decide(self, leaf):
        if self.made is None:
            demand(leaf.type == "multidraw.committed", "a multi-draw begins with multidraw.committed")
            self.made = made = read(leaf.data, MULTIDRAW)
            demand(("range" in made) != ("prizes" in made), "it has not one of range and prizes")
            if "range" in made:
                demand(made["range"]["min"] <= made["range"]["max"], "its range is empty")
            else:
                demand(0 < sum(p["weight"] for p in made["prizes"]) < 2**63, "its weights sum to nothing, or to too much")
            return
        demand(leaf.type == "multidraw.ended", "multi-draws have no such fact here")
        self.ended = True
        self.end(read(leaf.data, MULTIDRAW_END))

    def end(self, end):
        made, all_made = self.made, end["completed"] == self.made["count"]
        demand(all_made or (end["status"] == "rolled_back" and end["completed"] < made["count"]), "draws are missing")
        demand(all_made == ("seed" in end), "the seed is there if and only if all draws were made")
        if not all_made:
            demand(end["completed"] % made["every"] == 0, "it does not end at a checkpoint")
            demand(end["completed"] or end["digest"] == self.digest(()), "the digest of no draws is another")
            self.notes.append("%s: rolled back, draws not drawn again" % self.name)
            return
        seed = bytes.fromhex(end["seed"])
        demand(sha256(seed).hex() == made["commitment"], "its seed is not the committed one")
        if "range" in made:
            n = made["range"]["max"] - made["range"]["min"] + 1
            last, values = n - 1, draws(seed, self.id, n, made["count"])
        else:
            sums = []
            for p in made["prizes"]:
                sums.append(p["weight"] + (sums[-1] if sums else 0))
            last = len(sums) - 1
            values = (bisect.bisect_right(sums, v) for v in draws(seed, self.id, sums[-1], made["count"]))
        width = next(w for w in (1, 2, 4, 8) if last < 256**w)
        demand(end["digest"] == self.digest(be(v, width) for v in values), "the digest of its draws is another")

    def digest(self, values):
        domain, made = b"fairlead/multidraw/v2", self.made
        parameters = domain + b"\x00" + be(made["count"], 8)
        if "range" in made:
            parameters += b"r" + be(made["range"]["min"], 8, True) + be(made["range"]["max"], 8, True)
        else:
            parameters += b"p" + be(len(made["prizes"]), 8)
            for p in made["prizes"]:
                parameters += text(p["id"], 8) + text(p["name"], 8) + be(p["weight"], 8) + be(p["value"], 8, True)
        digest = sha256(domain + b"\x01" + sha256(parameters) + text(self.id, 8))
        chunk = []
        for v in values:
            chunk.append(v)
            if len(chunk) == made["every"]:
                digest, chunk = sha256(digest + b"".join(chunk)), []
        if chunk:
            digest = sha256(digest + b"".join(chunk))
        return digest.hex()


# ---- The books

CLOSING = {
    "accounts": number(), "root": HASH,
    "currencies": list_of(object_of({"currency": CURRENCY, "available": number(), "held": number(), "outside": SIGNED, "transit": SIGNED})),
}


def check_books(closing):
    names = [c["currency"] for c in closing["currencies"]]
    demand(names == sorted(set(names)), "currencies are not in order, each once")
    for c in closing["currencies"]:
        demand(c["available"] + c["held"] == c["outside"] + c["transit"], "the books do not add up in %s" % c["currency"])
    demand(bool(closing["accounts"]) or (closing["root"] == sha256(b"").hex() and not names), "there are sums of no accounts")


def alias(topic, account, salt):
    return sha256("\n".join(["fairlead alias", topic, account, salt]).encode()).hex()[:32]


def books_leaf(name, currency, available, held, version):
    numbers = be(available, 8) + be(held, 8) + be(version, 8)
    return sha256(b"\x00" + text("fairlead books/v1") + text(name) + text(currency) + numbers)


class Books(Topic):
    def decide(self, leaf):
        demand(leaf.type == "books.closed", "the books have no such fact")
        check_books(read(leaf.data, CLOSING))


KINDS = {"campaign": Campaign, "auction": Auction, "multidraw": Multidraw, "books": Books}
