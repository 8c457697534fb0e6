"""What the server takes and answers.

Made by generate.py from docs/openapi.json: do not edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

__all__ = [
    "Account",
    "AccountBid",
    "AccountEntry",
    "AccountProof",
    "Adoption",
    "Alias",
    "AntiSnipe",
    "AntiSnipeRequest",
    "Attempt",
    "Auction",
    "AuctionSummary",
    "AuctionWinner",
    "Audit",
    "Automation",
    "Backlog",
    "Balance",
    "Balances",
    "Beacon",
    "Bid",
    "BidChart",
    "BidMark",
    "Bucket",
    "Campaign",
    "CampaignSummary",
    "CrossEnd",
    "CrossLeg",
    "CrossStep",
    "CrossTransfer",
    "CurrencyIntegrity",
    "DatabaseBlocker",
    "DatabaseWait",
    "DatabaseWaits",
    "Deadlock",
    "Deadlocks",
    "Doubt",
    "Doubts",
    "Draw",
    "Entry",
    "Firing",
    "Found",
    "FoundThing",
    "Health",
    "Histogram",
    "Hold",
    "Integrity",
    "Key",
    "KeyRecord",
    "LaneStats",
    "Layer",
    "LayerRequest",
    "Leg",
    "LegRequest",
    "Lock",
    "LockEdge",
    "LockHolder",
    "LockWaiter",
    "Locks",
    "LogLeaf",
    "MadeTarget",
    "Measurements",
    "MinWinningBid",
    "Movement",
    "Multidraw",
    "MultidrawSummary",
    "OpenHold",
    "Overview",
    "Pace",
    "Place",
    "PlacedBid",
    "Position",
    "Prize",
    "PrizeRequest",
    "PublicAuction",
    "PublicCampaign",
    "PublicPlace",
    "PublicPosition",
    "PublicRank",
    "PublicSeal",
    "PublicWinner",
    "PublicWon",
    "Publication",
    "Purchase",
    "Range",
    "RangeRequest",
    "Rank",
    "Round",
    "RoundMark",
    "RoundRequest",
    "Saga",
    "SagaStep",
    "SagaTransfer",
    "SaleMap",
    "SaleMark",
    "Sales",
    "Seal",
    "Series",
    "Shared",
    "Statistics",
    "Subscription",
    "Target",
    "TargetConfig",
    "TargetError",
    "TargetHealth",
    "TopicError",
    "TopicProgress",
    "Transfer",
    "WeightedPrize",
    "Winner",
    "WinnerSpot",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    #: minor units free to spend
    available: int
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    #: minor units set aside by open holds
    held: int
    id: str
    #: grows with each change
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountBid:
    amount: int
    auction: str
    #: at the time of reading
    rank: int
    #: the open one
    round: int
    #: RFC 3339, UTC, microseconds
    round_ends_at: datetime
    #: whether the bid would win if the round ended now
    winning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountEntry:
    #: signed minor units
    amount: int
    #: RFC 3339, UTC, microseconds
    at: datetime
    #: of the account, available and held, after the entry; null in the accounts that have none
    balance: int | None
    #: the transfer's other account
    counterparty: str
    currency: str
    id: str
    #: of the transfer
    kind: str
    memo: str
    transfer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountProof:
    account: str
    #: how many the closing has
    accounts: int
    #: the account's in the books
    alias: str
    #: when the books were closed
    at: datetime
    available: int
    #: the signed note under which the closing is
    checkpoint: str
    #: number of the closing of the books, from 0
    closing: int
    currency: str
    held: int
    #: the closing in the log
    leaf: LogLeaf
    #: hashes in hex from the account up to that root
    path: list[str]
    #: of the account among those of the closing, from 0
    place: int
    #: of the closing's accounts
    root: str
    #: proves the alias; it is shown to nobody else
    salt: str
    #: number of the account's last change before the closing; entries have it, too
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    #: what the identifiers of its prepared transactions begin with
    coordinator: str
    #: those that had disowned the log; empty where there was nothing to adopt
    ledgers: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alias:
    #: first 32 digits of the SHA-256 of 'fairlead alias', the topic, the account and the salt, a line each
    alias: str
    #: 16 bytes in hex; it is shown to nobody else
    salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiSnipe:
    #: Go duration
    extension: str
    max_extensions: int
    #: Go duration
    window: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AntiSnipeRequest:
    #: Go duration by which the end moves
    extension: str | timedelta
    #: most extensions of a round
    max_extensions: int
    #: Go duration before a round's end in which a bid extends it
    window: str | timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    #: RFC 3339, UTC, microseconds
    ended_at: datetime | None
    error: str | None
    #: the worker's last sign of life while it ran; null before the first
    heartbeat_at: datetime | None
    lock_id: str
    #: null while it runs; lost: its claim went stale; refused: its result came after that
    result: str | None
    #: how much of the file had been sent then
    sent_bytes: int | None
    #: what it was doing then: looking (whether the target has the publication), uploading or publishing
    stage: str | None
    #: RFC 3339, UTC, microseconds
    started_at: datetime
    #: of the target's answer
    status_code: int | None
    #: of the file, where its length is known
    total_bytes: int | None
    #: the execution version of its claim
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Auction:
    #: any zero: rounds are not extended
    anti_snipe: AntiSnipe
    #: Go duration
    cooldown: str
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    #: 0 before the start
    current_round: int
    #: RFC 3339, UTC, microseconds
    ended_at: datetime | None
    id: str
    #: minor units
    min_bid: int
    #: minor units
    min_increment: int
    rounds: list[Round]
    seller: str
    #: of the last event
    seq: int
    #: RFC 3339, UTC, microseconds
    started_at: datetime | None
    status: str
    title: str
    #: accepted bids, raises too
    total_bids: int
    unique_amounts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionSummary:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    #: 0 before the start
    current_round: int
    id: str
    seller: str
    status: str
    title: str
    total_bids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuctionWinner:
    account: str
    amount: int
    rank: int
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    action: str
    #: RFC 3339, UTC, microseconds
    at: datetime
    id: str
    #: the id of what was changed
    object: str
    #: who did it: key:ID, or command line
    principal: str
    request_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Automation:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    daily_quota: int | None
    #: null for a rule with times
    every: str | None
    id: str
    #: Go duration
    jitter: str
    name: str
    #: when it fires next; null while it is not active
    next_at: datetime | None
    pick: str
    #: RFC 3339, UTC, microseconds
    starts_at: datetime
    status: str
    #: the target's name
    target: str
    time_zone: str
    #: HH:MM:SS; empty for a rule with every
    times: list[str]
    #: empty for a rule with every
    weekdays: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    auctions_active: int
    campaigns_active: int
    campaigns_drawing: int
    #: campaigns that are drawing, and whose draw should have been there 10 s ago
    draws_delayed: int
    locks_held: int
    #: requests that wait
    locks_waited: int
    multidraws_interrupted: int
    multidraws_running: int
    #: the last sign of life of the oldest claim
    oldest_claim: datetime | None
    #: since when the oldest of them is drawing
    oldest_drawing: datetime | None
    #: RFC 3339, UTC, microseconds
    oldest_due: datetime | None
    publications_due: int
    publications_failed: int
    #: of those due, for longer than a minute, although their targets are neither paused nor slowed down
    publications_late: int
    publications_running: int
    #: auctions' rounds that were over 10 s ago and are not closed
    rounds_overdue: int
    sagas_pending: int
    #: of them, the stuck ones
    sagas_stuck: int
    transfers_pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    #: RFC 3339, UTC, microseconds
    at: datetime
    #: available and held, after the entry of that time
    balance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Balances:
    #: oldest first
    balances: list[Balance]
    #: an hour before, or the oldest of the newest 1,000 entries where those are younger
    from_: datetime
    #: the balance at the beginning, in minor units
    opening: int
    #: RFC 3339, UTC, microseconds
    to: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Beacon:
    #: to get the round in vain since it was due
    attempts: int
    #: the chain's name
    chain: str
    #: hex
    chain_hash: str
    #: when the round is to appear
    due_at: datetime | None
    #: the round was public before it was due by the database's clock: somebody may have known it in advance
    early: bool
    #: what the last attempt came to, in one word, such as not_published, timeout or bad_signature
    failure: str | None
    #: when round 1 was due, Unix seconds
    genesis_time: int
    #: seconds between two rounds
    period: int
    #: the chain's, in hex
    public_key: str
    #: hex root of the sealed positions; null before everything is sold
    root: str | None
    #: the one that decides; null before everything is sold
    round: int | None
    scheme: str
    #: RFC 3339, UTC, microseconds
    sealed_at: datetime | None
    #: how many witnesses of the public log have cosigned the seal before the round was due
    seen_by: int
    #: delayed: the round is due and cannot be had; it is tried again until it can
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    account: str
    amount: int
    auction: str
    #: of the account's bid before, 0 at first
    previous_amount: int
    #: right after this bid
    rank: int
    round: int
    #: after an extension that this bid caused
    round_ends_at: datetime
    #: of its event bid.placed
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BidChart:
    #: oldest first, 600 at most
    bids: list[BidMark]
    #: starts and extensions of rounds, oldest first, the newest 400
    marks: list[RoundMark]
    total_bids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BidMark:
    amount: int
    #: RFC 3339, UTC, microseconds
    at: datetime
    round: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    #: of observations up to the bound
    count: int
    #: its upper bound; the last bucket has none, and is the count
    le: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    #: of a triangle, null with explicit layers
    base_length: int | None
    beneficiary: str
    #: RFC 3339, UTC, microseconds
    cancelled_at: datetime | None
    #: hex SHA-256 of the server seed
    commitment: str
    #: RFC 3339, UTC, microseconds
    completed_at: datetime | None
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    draw: str
    id: str
    layers: list[Layer]
    name: str
    #: minor units, of layers without a price of their own
    price: int | None
    prizes: list[Prize]
    #: RFC 3339, UTC, microseconds
    published_at: datetime | None
    purchase_limit: int | None
    sold_positions: int
    status: str
    total_positions: int
    version: int
    #: how many of the public log must have cosigned the seal before the beacon's round
    witnesses: int
    #: absent in instant mode
    beacon: Beacon | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSummary:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    id: str
    name: str
    sold_positions: int
    status: str
    total_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossEnd:
    account: str
    #: local, or the name that the server was given with --ledger
    ledger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossLeg:
    #: for ever: a repeat is told the same
    outcome: str
    #: of a refusal, else empty
    reason: str
    #: the transfer that it made in this ledger
    transfer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossStep:
    account: str
    ledger: str
    #: transfer where both accounts are in one ledger
    name: str
    #: of a refusal, else empty
    reason: str
    status: str
    #: the transfer of the step's ledger that it made
    transfer: str | None
    #: the one that undid it
    undone: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossTransfer:
    amount: int
    #: how many in a row failed to get on
    attempts: int
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    #: RFC 3339, UTC, microseconds
    ended_at: datetime | None
    from_: CrossEnd
    id: str
    #: a two-phase transfer that is decided to commit, and not yet committed everywhere
    in_doubt: bool
    mode: str
    #: of a failure or compensation, else empty
    reason: str
    status: str
    steps: list[CrossStep]
    #: whether it has failed ten times in a row; the server goes on trying it
    stuck: bool
    to: CrossEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrencyIntegrity:
    available: int
    currency: str
    deposits: int
    #: deposits - withdrawals - available - held
    difference: int
    held: int
    withdrawals: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseBlocker:
    application: str
    #: its process on the database's server, 0 for a prepared transaction
    pid: int
    state: str
    #: the beginning of its last one, which may have ended
    statement: str
    #: null where it can't be seen
    transaction_since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseWait:
    application: str
    #: the sessions in the way, those that wait in front included
    blockers: list[DatabaseBlocker]
    #: what is waited for, in PostgreSQL's words
    kind: str
    mode: str
    #: the session's process on the database's server
    pid: int
    #: the table, where the lock is one on a table or on a part of it
    relation: str
    #: RFC 3339, UTC, microseconds
    since: datetime
    #: the beginning of what waits
    statement: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseWaits:
    #: longest first, 200 at most
    waits: list[DatabaseWait]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlock:
    #: when it was found and broken
    at: datetime
    #: the owners, each waiting for the next and the last for the first; the request of the first was refused
    cycle: list[str]
    #: what each of them waited for
    keys: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlocks:
    #: newest first, 50 at most, since the process began; other processes break deadlocks too
    deadlocks: list[Deadlock]


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    #: by the clock of its database
    age_ms: int
    #: its name in pg_prepared_xacts
    gid: str
    #: in whose database it is prepared
    ledger: str
    #: RFC 3339, UTC, microseconds
    prepared_at: datetime
    #: why it is in doubt, or is committed without the log's word, else empty
    reason: str
    saga: str
    #: of the saga, in which it was prepared
    term: int
    #: running: its saga is at work on it; in_doubt: nobody may end it yet, see reason; else what the resolver is about
    #: to do
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    #: oldest first
    items: list[Doubt]
    #: ledgers whose databases could not be asked
    unreachable: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    campaign: str
    #: RFC 3339, UTC, microseconds
    completed_at: datetime
    #: hex root of the sealed positions
    root: str
    winners: list[Winner]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    #: signed minor units
    amount: int
    #: RFC 3339, UTC, microseconds
    at: datetime
    id: str
    memo: str
    transfer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    #: RFC 3339, UTC, microseconds
    fired_at: datetime
    outcome: str
    #: the draft that was scheduled
    publication: str | None
    #: the time of the rule; an automation fires once for each
    scheduled_for: datetime
    #: times of the rule before this one at which no server ran
    skipped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    items: list[FoundThing]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundThing:
    #: of the thing; of a position, its campaign's, and of a hold, its account's
    id: str
    kind: str
    #: empty where it has none
    status: str
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    status: str
    version: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    buckets: list[Bucket]
    count: int
    sum: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    account: str
    amount: int
    captured: int
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    #: RFC 3339, UTC, microseconds
    expires_at: datetime | None
    id: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Integrity:
    #: transfers whose entries do not sum to zero
    bad_transfers: int
    #: RFC 3339, UTC, microseconds
    checked_at: datetime
    #: the last closing of the books. The entries since then are counted for this answer, the older ones were counted
    #: before. Equal to checked_at if all entries are counted for this answer
    closed_at: datetime
    currencies: list[CurrencyIntegrity]
    #: sum of the currencies' absolute differences
    difference: int
    #: the first account that disagrees with its entries or holds
    first_bad_account: str | None
    #: when the last recount began. It counted all older entries. A later change by hand to a closed entry is found by
    #: the next recount. Equal to checked_at if all entries are counted for this answer
    recounted_at: datetime
    valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    id: str
    name: str
    #: RFC 3339, UTC, microseconds
    revoked_at: datetime | None
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecord:
    #: the answer that is kept
    body: Any
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    #: of the request that ran; all others were answered with its result
    execution: str
    #: of the answer that is kept
    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneStats:
    #: commands a commit; their sum is the commands
    batch: Histogram
    #: seconds from a batch's start to its commit
    commit: Histogram
    #: commands that waited when a batch was last taken
    queue: float
    #: commands refused because their lane was full
    refused: float
    service: str
    #: seconds that the oldest command of a batch had waited
    wait: Histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    #: from 1
    layer: int
    positions: int
    #: minor units
    price: int
    sold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRequest:
    positions: int
    price: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    amount: int
    from_: str
    to: str
    #: absent where a failed transfer did not get as far
    currency: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LegRequest:
    #: minor units
    amount: int
    from_: str
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    #: when the lock ends unless it is renewed, by the database's clock
    expires_at: datetime
    id: str
    owner: str
    #: the fencing token of each key
    tokens: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockEdge:
    #: the owner that waits
    from_: str
    key: str
    #: the owner that holds the key, or asked for it before
    to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LockHolder:
    #: RFC 3339, UTC, microseconds
    expires_at: datetime
    #: RFC 3339, UTC, microseconds
    granted_at: datetime
    id: str
    owner: str
    #: the fencing token of each key
    tokens: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class LockWaiter:
    keys: list[str]
    owner: str
    #: RFC 3339, UTC, microseconds
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Locks:
    #: who waits for whom: each request for who holds its keys, and for the 64 before it in the line of each
    edges: list[LockEdge]
    #: oldest first, 10,000 at most
    holders: list[LockHolder]
    #: in order of asking
    waiters: list[LockWaiter]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLeaf:
    #: hashes in hex from the leaf up to the checkpoint's root
    inclusion: list[str]
    #: number of the entry in the log, from 0
    index: int
    #: the entry's bytes in base64, a JSON document
    leaf: str
    #: type of the fact, as campaign.sealed or bid.placed
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTarget:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    id: str
    kind: str
    name: str
    #: signs deliveries as Standard Webhooks has it; shown this once; empty for a target that is sent nothing signed
    secret: str
    #: Go duration
    timeout: str
    url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    #: when the samples were taken, oldest first, those of an hour at most
    at: list[datetime]
    #: when the process began
    began_at: datetime
    #: time between two samples
    every_seconds: int
    #: the number of the last sample, counted from 1 since the process began, to ask for those after it
    last: int
    series: list[Series]
    #: the name of the machine, and the process's number
    server: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MinWinningBid:
    #: minor units
    amount: int
    #: the least amount from there on that no standing bid has, with unique_amounts: what to bid now; else the same.
    #: null: there is none
    free_amount: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    account: str
    amount: int
    #: after the movement
    available: int
    currency: str
    #: the transfer's id
    id: str
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Multidraw:
    #: RFC 3339, UTC, microseconds
    completed_at: datetime | None
    completed_count: int
    id: str
    #: RFC 3339, UTC, microseconds
    last_update_time: datetime
    lock_key: str
    #: RFC 3339, UTC, microseconds
    rolled_back_at: datetime | None
    #: hex seed, null until all is drawn
    seed: str | None
    #: hex SHA-256 of the seed, from the start
    seed_commitment: str
    #: RFC 3339, UTC, microseconds
    start_time: datetime
    status: str
    total_count: int
    #: the prizes drawn so far, of operations of up to 1,000 draws of prizes: their ids, or where a query asks for
    #: objects, the prizes as in the list
    prize_results: list[Any] | None = None
    #: absent where integers are drawn
    prizes: list[WeightedPrize] | None = None
    #: absent where prizes are drawn
    range: Range | None = None
    #: the integers drawn so far, of operations of up to 1,000 draws of a range
    results: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MultidrawSummary:
    completed_count: int
    id: str
    #: RFC 3339, UTC, microseconds
    last_update_time: datetime
    lock_key: str
    seed_commitment: str
    #: RFC 3339, UTC, microseconds
    start_time: datetime
    status: str
    total_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenHold:
    account: str
    amount: int
    captured: int
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    #: RFC 3339, UTC, microseconds
    expires_at: datetime | None
    id: str
    #: the part of the system that placed the hold, such as auction:ID; empty where a client did
    owner: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    #: when it was measured
    at: datetime
    #: of the whole system; counts end at 1,000
    backlog: Backlog
    #: of them, with a status of 500 or more
    failures: float
    #: of this process
    lanes: list[LaneStats]
    #: seconds from a request's header to the end of its answer, without streams of events and requests for locks with a
    #: wait
    latency: Histogram
    #: answered by this process
    requests: float
    #: auctions and campaigns that this process works on in turns with others, which costs both; up to 20
    shared_targets: list[Shared]
    #: live subscribers of this process
    streams: float
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    #: least time between two claims; 0s: none
    interval: str
    #: nothing is claimed before
    next_send_at: datetime | None
    #: the circuit breaker was opened until then
    open_until: datetime | None
    #: answers 429 in a row, those to the same publication in a row counted once
    refusals: int
    #: open: the circuit breaker is; half_open: one publication will tell
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    id: str
    #: from 1
    layer: int
    #: within the layer, from 1
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedBid:
    account: str
    amount: int
    #: RFC 3339, UTC, microseconds
    at: datetime
    previous_amount: int
    round: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    #: null while available
    account: str | None
    id: str
    layer: int
    number: int
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prize:
    #: null: positions of all layers can win it
    layer: int | None
    name: str
    quantity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrizeRequest:
    name: str
    quantity: int
    #: absent: positions of all layers can win it
    layer: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicAuction:
    anti_snipe: AntiSnipe
    chart: BidChart
    currency: str
    current_round: int
    id: str
    #: the best 100 standing bids
    leaderboard: list[PublicRank]
    min_increment: int
    #: the least new bid that would now win; null when no round is open
    min_winning_bid: int | None
    #: the server's time
    now: datetime
    rounds: list[Round]
    #: of the last event
    seq: int
    status: str
    title: str
    total_bids: int
    #: of rounds that ended, the first 200
    winners: list[PublicWon]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicCampaign:
    #: hex SHA-256 of the server seed
    commitment: str
    #: RFC 3339, UTC, microseconds
    completed_at: datetime | None
    currency: str
    id: str
    map: SaleMap
    name: str
    #: the server's time
    now: datetime
    prizes: list[Prize]
    #: RFC 3339, UTC, microseconds
    published_at: datetime | None
    #: hex root of the sealed positions; null before the draw
    root: str | None
    #: null before everything is sold, and where the draw is instant
    seal: PublicSeal | None
    status: str
    #: empty before the draw
    winners: list[PublicWinner]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPlace:
    #: of the account that bought it
    alias: str
    id: str
    layer: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicPosition:
    campaign: str
    #: place of the position in canonical order, from 0
    index: int
    position: PublicPlace
    #: of the sealed positions, 32 bytes in hex
    root: str
    #: number of positions
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicRank:
    #: of the bidder's account, who finds it at /v1/accounts/{id}/aliases
    alias: str
    amount: int
    rank: int
    winning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicSeal:
    #: whether that is over, or the draw is made
    due: bool
    #: when the round is due
    due_at: datetime
    #: how many witnesses of the public log must have seen the seal before
    required: int
    #: of the beacon, which decides
    round: int
    #: whole seconds from seen_at to due_at
    seconds_before: int | None
    #: when the last of them had; null while none has
    seen_at: datetime | None
    #: how many have
    witnesses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicWinner:
    #: of the winner's account, who finds it at /v1/accounts/{id}/aliases
    alias: str
    position: WinnerSpot
    prize: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicWon:
    alias: str
    amount: int
    rank: int
    round: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    #: with the jitter
    actual_publish_at: datetime | None
    attempts: int
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    #: of the claim in force
    execution_lock_id: str | None
    #: of the claim in force: its last sign of life
    execution_locked_at: datetime | None
    #: grows with each claim
    execution_version: int
    #: its id at the target
    external_id: str | None
    #: also the webhook-id of its deliveries
    id: str
    #: Go duration
    jitter: str
    last_error: str | None
    #: while scheduled
    next_attempt_at: datetime | None
    #: the time that was asked for; null in a draft
    publish_at: datetime | None
    #: RFC 3339, UTC, microseconds
    published_at: datetime | None
    status: str
    #: the target's name
    target: str
    #: the attempt under way; absent in lists and answers to commands, and while there is none
    current_attempt: Attempt | None = None
    #: any JSON value
    payload: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    account: str
    #: RFC 3339, UTC, microseconds
    at: datetime
    campaign: str
    id: str
    position: Place
    #: minor units
    price: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    max: int
    min: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRequest:
    #: included
    max: int
    #: included
    min: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    account: str
    amount: int
    #: from 1
    rank: int
    #: whether the bid would win if the round ended now, or has won
    winning: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    #: the auction was cancelled before the round was closed: it has no winners, whatever its status is
    cancelled: bool
    #: without extensions
    duration: str
    #: moved by extensions
    ends_at: datetime | None
    extensions: int
    #: from 1
    round: int
    #: RFC 3339, UTC, microseconds
    started_at: datetime | None
    status: str
    #: places
    winners: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMark:
    #: RFC 3339, UTC, microseconds
    at: datetime
    #: the event's
    data: Any
    seq: int
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRequest:
    #: Go duration from 1ms to 8784h, whole microseconds
    duration: str | timedelta
    winners: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saga:
    #: how many in a row failed to get on
    attempts: int
    #: whether an operator has given it up
    cancelled: bool
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    #: when what is not done is given up
    deadline_at: datetime | None
    #: RFC 3339, UTC, microseconds
    ended_at: datetime | None
    id: str
    #: whether it is decided to commit, and not yet known to be committed everywhere
    in_doubt: bool
    #: of the last of them; one that has failed, or was compensated, always has one; else empty
    last_error: str
    #: of its definition
    name: str
    #: when it is tried next; null while it runs, and when it has ended
    next_at: datetime | None
    protocol: str
    #: of a failure or compensation, else empty
    reason: str
    status: str
    steps: list[SagaStep]
    #: whether it has failed ten times in a row; the server goes on trying it
    stuck: bool
    #: grows with each process that takes it over
    term: int
    #: the money that it moves; absent for an operation of another kind
    transfer: SagaTransfer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaStep:
    #: how often it, or its compensation, was tried; an attempt whose process died may be missing
    attempts: int
    #: of the last attempt, empty where that did not fail
    error: str
    name: str
    #: of a refusal, else empty
    reason: str
    #: what the step made, such as the id of a transfer, else empty
    result: str
    status: str
    #: what its compensation made, else empty
    undone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SagaTransfer:
    #: minor units
    amount: int
    currency: str
    from_: CrossEnd
    to: CrossEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleMap:
    campaign: str
    layers: list[Layer]
    #: a bit a position in campaign order, the first in the highest bit, base64; null in campaigns of over 20,000, and
    #: where the purchases are archived
    sold: str | None
    sold_positions: int
    status: str
    total_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleMark:
    #: RFC 3339, UTC, microseconds
    at: datetime
    #: how many were sold with this one
    sold: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sales:
    #: oldest first, 300 at most, the first and the last among them; none where they are archived
    sales: list[SaleMark]
    sold: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    campaign: str
    #: the signed note that witnesses have cosigned before the round was due
    checkpoint: str
    #: when the round is due
    due_at: datetime
    #: hashes in hex from the leaf up to the checkpoint's root
    inclusion: list[str]
    #: number of the entry in the log, from 0
    index: int
    #: verifier key that the log signed it with; /log/key has another one if it was renewed since
    key: str
    #: the entry's bytes in base64, a JSON document with the root, the round and when it is due
    leaf: str
    #: whole seconds from seen_at to due_at
    seconds_before: int
    #: when the last of them did, by its clock
    seen_at: datetime
    #: how many witnesses have cosigned it in time
    witnesses: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    #: what was measured: requests, failures, commands and locks contended a second; p50 and p99 of latency, commit and
    #: lock wait in seconds; locks waiting; refused CODE and attempts RESULT TARGET a second, by problem code and target
    #: id
    name: str
    #: one for each sample, null where nothing was measured
    values: list[float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    #: by other processes, as this one finds them
    changes_per_second: float
    #: auction: or campaign: and its id
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    #: distinct accounts
    buyers: int
    campaign: str
    #: RFC 3339, UTC, microseconds
    first_sale_at: datetime | None
    #: most positions of one account
    largest_buyer: int
    #: RFC 3339, UTC, microseconds
    last_sale_at: datetime | None
    layers: list[Layer]
    #: prices of everything sold, minor units, refunded or not
    revenue: int
    sold_positions: int
    #: 0 to 1
    sold_share: float
    status: str
    total_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    envelope: str
    id: str
    name: str
    #: nothing is sent while it is not null
    paused_at: datetime | None
    #: refused: the target refused events for good, ten times in a row
    paused_reason: str | None
    #: answers in a row by which the target refused an event for good; ten pause the subscription
    refusals: int
    #: the target's name
    target: str
    topics: list[str]
    #: empty: events of all types are delivered
    types: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    id: str
    kind: str
    name: str
    #: the key before the last rotation signs too until then
    overlap_until: datetime | None
    #: how the target is slowed down after it answered 429
    pace: Pace
    #: nothing is claimed while it is not null
    paused_at: datetime | None
    #: auth_expired: give the target new credentials
    paused_reason: str | None
    #: Go duration
    timeout: str
    url: str
    #: how the target fares; absent in the answers of commands
    health: TargetHealth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    #: deviantart: of the client that the account's owner has authorized
    client_id: str | None = None
    #: deviantart
    client_secret: str | None = None
    #: deviantart: of that authorization, for the scopes stash, publish, browse and user
    refresh_token: str | None = None
    #: another place for the target's timeout, from 100ms
    timeout: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetError:
    #: RFC 3339, UTC, microseconds
    at: datetime
    #: address: the address is not one that this server sends to
    cause: str
    message: str
    publication: str
    #: of the target's answer; null without one
    status_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetHealth:
    #: null where there was none; up to a second older than the last
    last_success_at: datetime | None
    #: failing: the last attempt failed; idle: no attempt has ended yet
    state: str
    #: absent where there was none; up to a second older than the last
    last_error: TargetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicError:
    #: expired: the event is not kept any more
    cause: str
    message: str
    #: of the target's answer; null without one
    status_code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    #: failed ones of the next event
    attempts: int
    #: when an event of the topic was last delivered
    delivered_at: datetime | None
    #: number of the topic's last event
    head: int
    #: events after seq
    lag: int
    #: why the next event was not delivered; null where nothing failed
    last_error: TopicError | None
    #: nothing is sent before
    retry_at: datetime | None
    #: number of the last event that was delivered, or passed over for its type
    seq: int
    #: stopped: the next event is not kept any more; replay the topic after a later number
    state: str
    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    amount: int
    #: null unless completed
    completed_at: datetime | None
    #: RFC 3339, UTC, microseconds
    created_at: datetime
    currency: str
    #: with legs, the first leg's, as to, amount and currency are; of a transfer that failed, the refused leg's
    from_: str
    id: str
    #: transfer, deposit, withdrawal, capture (of a hold), purchase, payout, refund, or cross (to or from another
    #: ledger)
    kind: str
    memo: str
    #: of a failure, else empty
    reason: str
    status: str
    to: str
    #: of a transfer that was asked for by legs
    legs: list[Leg] | None = None
    reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedPrize:
    #: unique among the prizes
    id: str
    name: str
    #: the prize is won with probability weight / sum of weights; with weight 0, never
    weight: int
    #: the caller's; 0 when absent
    value: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    account: str
    #: of the position
    layer: int
    position: WinnerSpot
    prize: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerSpot:
    id: str
    layer: int
    number: int
