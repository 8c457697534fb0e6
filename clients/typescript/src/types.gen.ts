// Made by scripts/generate.mjs from docs/openapi.json and docs/problems.md. Do not edit.

export interface Account {
  /** minor units free to spend */
  available: number;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  /** minor units set aside by open holds */
  held: number;
  id: string;
  /** grows with each change */
  version: number;
}

export interface AccountBid {
  amount: number;
  auction: string;
  /** at the time of reading */
  rank: number;
  /** the open one */
  round: number;
  /** RFC 3339, UTC, microseconds */
  round_ends_at: string;
  /** whether the bid would win if the round ended now */
  winning: boolean;
}

export interface AccountBidList {
  items: AccountBid[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface AccountEntry {
  /** signed minor units */
  amount: number;
  /** RFC 3339, UTC, microseconds */
  at: string;
  /** of the account, available and held, after the entry; null in the accounts that have none */
  balance: number | null;
  /** the transfer's other account */
  counterparty: string;
  currency: string;
  id: string;
  /** of the transfer */
  kind: string;
  memo: string;
  transfer: string;
}

export interface AccountEntryList {
  items: AccountEntry[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface AccountList {
  items: Account[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface AccountProof {
  account: string;
  /** how many the closing has */
  accounts: number;
  /** the account's in the books */
  alias: string;
  /** when the books were closed */
  at: string;
  available: number;
  /** the signed note under which the closing is */
  checkpoint: string;
  /** number of the closing of the books, from 0 */
  closing: number;
  currency: string;
  held: number;
  /** the closing in the log */
  leaf: LogLeaf;
  /** hashes in hex from the account up to that root */
  path: string[];
  /** of the account among those of the closing, from 0 */
  place: number;
  /** of the closing's accounts */
  root: string;
  /** proves the alias; it is shown to nobody else */
  salt: string;
  /** number of the account's last change before the closing; entries have it, too */
  version: number;
}

export interface Adoption {
  /** what the identifiers of its prepared transactions begin with */
  coordinator: string;
  /** those that had disowned the log; empty where there was nothing to adopt */
  ledgers: string[];
}

export interface Alias {
  /** first 32 digits of the SHA-256 of 'fairlead alias', the topic, the account and the salt, a line each */
  alias: string;
  /** 16 bytes in hex; it is shown to nobody else */
  salt: string;
}

export interface AntiSnipe {
  /** Go duration */
  extension: string;
  max_extensions: number;
  /** Go duration */
  window: string;
}

export interface AntiSnipeRequest {
  /** Go duration by which the end moves */
  extension: string;
  /** most extensions of a round */
  max_extensions: number;
  /** Go duration before a round's end in which a bid extends it */
  window: string;
}

export interface Attempt {
  /** RFC 3339, UTC, microseconds */
  ended_at: string | null;
  error: string | null;
  /** the worker's last sign of life while it ran; null before the first */
  heartbeat_at: string | null;
  lock_id: string;
  /** null while it runs; lost: its claim went stale; refused: its result came after that */
  result: "published" | "failed" | "refused" | "lost" | null;
  /** how much of the file had been sent then */
  sent_bytes: number | null;
  /** what it was doing then: looking (whether the target has the publication), uploading or publishing */
  stage: string | null;
  /** RFC 3339, UTC, microseconds */
  started_at: string;
  /** of the target's answer */
  status_code: number | null;
  /** of the file, where its length is known */
  total_bytes: number | null;
  /** the execution version of its claim */
  version: number;
}

export interface AttemptList {
  items: Attempt[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Auction {
  /** any zero: rounds are not extended */
  anti_snipe: AntiSnipe;
  /** Go duration */
  cooldown: string;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  /** 0 before the start */
  current_round: number;
  /** RFC 3339, UTC, microseconds */
  ended_at: string | null;
  id: string;
  /** minor units */
  min_bid: number;
  /** minor units */
  min_increment: number;
  rounds: Round[];
  seller: string;
  /** of the last event */
  seq: number;
  /** RFC 3339, UTC, microseconds */
  started_at: string | null;
  status: "pending" | "active" | "completed" | "cancelled";
  title: string;
  /** accepted bids, raises too */
  total_bids: number;
  unique_amounts: boolean;
}

export interface AuctionSummary {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  /** 0 before the start */
  current_round: number;
  id: string;
  seller: string;
  status: "pending" | "active" | "completed" | "cancelled";
  title: string;
  total_bids: number;
}

export interface AuctionSummaryList {
  items: AuctionSummary[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface AuctionWinner {
  account: string;
  amount: number;
  rank: number;
  round: number;
}

export interface AuctionWinnerList {
  items: AuctionWinner[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Audit {
  action: string;
  /** RFC 3339, UTC, microseconds */
  at: string;
  id: string;
  /** the id of what was changed */
  object: string;
  /** who did it: key:ID, or command line */
  principal: string;
  request_id: string;
}

export interface AuditList {
  items: Audit[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Automation {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  daily_quota: number | null;
  /** null for a rule with times */
  every: string | null;
  id: string;
  /** Go duration */
  jitter: string;
  name: string;
  /** when it fires next; null while it is not active */
  next_at: string | null;
  pick: "random" | "first" | "last";
  /** RFC 3339, UTC, microseconds */
  starts_at: string;
  status: "active" | "paused" | "cancelled";
  /** the target's name */
  target: string;
  time_zone: string;
  /** HH:MM:SS; empty for a rule with every */
  times: string[];
  /** empty for a rule with every */
  weekdays: string[];
}

export interface AutomationList {
  items: Automation[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface AutomationRequest {
  /** most drafts that it schedules in a day, 1 to 1000; no limit when absent */
  daily_quota?: number;
  /** Go duration from 1m to 8784h, in place of times */
  every?: string;
  /** Go duration up to 5m: a random part of it is added to the time */
  jitter?: string;
  name: string;
  /** which draft: a random one, the oldest, the newest; first when absent */
  pick?: "random" | "first" | "last";
  /** of a rule with every: when it first fires, and what the interval is counted from; now when absent, and then it first fires an interval later */
  starts_at?: string;
  /** the name of the target whose drafts are taken */
  target: string;
  /** IANA name, by whose clocks the times and the quota's days are; UTC when absent */
  time_zone?: string;
  /** times of the day, HH:MM or HH:MM:SS, up to 48 */
  times?: string[];
  /** mon to sun; every day when absent, of a rule with times */
  weekdays?: string[];
}

export interface Backlog {
  auctions_active: number;
  campaigns_active: number;
  campaigns_drawing: number;
  /** campaigns that are drawing, and whose draw should have been there 10 s ago */
  draws_delayed: number;
  locks_held: number;
  /** requests that wait */
  locks_waited: number;
  multidraws_interrupted: number;
  multidraws_running: number;
  /** the last sign of life of the oldest claim */
  oldest_claim: string | null;
  /** since when the oldest of them is drawing */
  oldest_drawing: string | null;
  /** RFC 3339, UTC, microseconds */
  oldest_due: string | null;
  publications_due: number;
  publications_failed: number;
  /** of those due, for longer than a minute, although their targets are neither paused nor slowed down */
  publications_late: number;
  publications_running: number;
  /** auctions' rounds that were over 10 s ago and are not closed */
  rounds_overdue: number;
  sagas_pending: number;
  /** of them, the stuck ones */
  sagas_stuck: number;
  transfers_pending: number;
}

export interface Balance {
  /** RFC 3339, UTC, microseconds */
  at: string;
  /** available and held, after the entry of that time */
  balance: number;
}

export interface Balances {
  /** oldest first */
  balances: Balance[];
  /** an hour before, or the oldest of the newest 1,000 entries where those are younger */
  from: string;
  /** the balance at the beginning, in minor units */
  opening: number;
  /** RFC 3339, UTC, microseconds */
  to: string;
}

export interface Batch {
  /** in the order of the commands */
  results: Result[];
}

export interface BatchRequest {
  commands: BatchedRequest[];
}

export interface BatchedRequest {
  /** what the route takes; absent where it takes no fields */
  body?: unknown;
  /** its Idempotency-Key */
  key: string;
  /** of a POST route: transfers, deposits, withdrawals, holds with capture and release, purchases, bids */
  path: string;
}

export interface Beacon {
  /** to get the round in vain since it was due */
  attempts: number;
  /** the chain's name */
  chain: string;
  /** hex */
  chain_hash: string;
  /** when the round is to appear */
  due_at: string | null;
  /** the round was public before it was due by the database's clock: somebody may have known it in advance */
  early: boolean;
  /** what the last attempt came to, in one word, such as not_published, timeout or bad_signature */
  failure: string | null;
  /** when round 1 was due, Unix seconds */
  genesis_time: number;
  /** seconds between two rounds */
  period: number;
  /** the chain's, in hex */
  public_key: string;
  /** hex root of the sealed positions; null before everything is sold */
  root: string | null;
  /** the one that decides; null before everything is sold */
  round: number | null;
  scheme: string;
  /** RFC 3339, UTC, microseconds */
  sealed_at: string | null;
  /** how many witnesses of the public log have cosigned the seal before the round was due */
  seen_by: number;
  /** delayed: the round is due and cannot be had; it is tried again until it can */
  status: "unsealed" | "waiting" | "delayed" | "drawn";
}

export interface Bid {
  account: string;
  amount: number;
  auction: string;
  /** of the account's bid before, 0 at first */
  previous_amount: number;
  /** right after this bid */
  rank: number;
  round: number;
  /** after an extension that this bid caused */
  round_ends_at: string;
  /** of its event bid.placed */
  seq: number;
}

export interface BidChart {
  /** oldest first, 600 at most */
  bids: BidMark[];
  /** starts and extensions of rounds, oldest first, the newest 400 */
  marks: RoundMark[];
  total_bids: number;
}

export interface BidMark {
  amount: number;
  /** RFC 3339, UTC, microseconds */
  at: string;
  round: number;
  seq: number;
}

export interface BidRequest {
  account: string;
  /** minor units, of the whole bid and not of the raise */
  amount: number;
}

export interface Bucket {
  /** of observations up to the bound */
  count: number;
  /** its upper bound; the last bucket has none, and is the count */
  le: number;
}

export interface Campaign {
  /** of a triangle, null with explicit layers */
  base_length: number | null;
  /** absent in instant mode */
  beacon?: Beacon;
  beneficiary: string;
  /** RFC 3339, UTC, microseconds */
  cancelled_at: string | null;
  /** hex SHA-256 of the server seed */
  commitment: string;
  /** RFC 3339, UTC, microseconds */
  completed_at: string | null;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  draw: "instant" | "beacon";
  id: string;
  layers: Layer[];
  name: string;
  /** minor units, of layers without a price of their own */
  price: number | null;
  prizes: Prize[];
  /** RFC 3339, UTC, microseconds */
  published_at: string | null;
  purchase_limit: number | null;
  sold_positions: number;
  status: "pending" | "active" | "drawing" | "completed" | "cancelled";
  total_positions: number;
  version: number;
  /** how many of the public log must have cosigned the seal before the beacon's round */
  witnesses: number;
}

export interface CampaignSummary {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  id: string;
  name: string;
  sold_positions: number;
  status: "pending" | "active" | "drawing" | "completed" | "cancelled";
  total_positions: number;
}

export interface CampaignSummaryList {
  items: CampaignSummary[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface CaptureRequest {
  /** minor units; without it all of the hold */
  amount?: number;
  to: string;
}

export interface CreateAccountRequest {
  currency: string;
  /** the caller's name for the account */
  id: string;
}

export interface CreateAuctionRequest {
  /** absent, or with any zero: rounds are not extended */
  anti_snipe?: AntiSnipeRequest;
  /** Go duration between the bids of one account, 1s when absent, 0s for none */
  cooldown?: string;
  currency: string;
  /** minor units, 1 when absent */
  min_bid?: number;
  /** least by which a raise exceeds the bid before it, 1 when absent */
  min_increment?: number;
  rounds: RoundRequest[];
  /** the account that winners pay */
  seller: string;
  title: string;
  /** whether no two active bids may have one amount, true when absent */
  unique_amounts?: boolean;
}

export interface CreateCampaignRequest {
  /** of a triangle: layer k has k positions */
  base_length?: number;
  /** the account that is paid at completion */
  beneficiary: string;
  currency: string;
  /** beacon: what is sold is sealed at sell-out, and a future round of a public beacon decides */
  draw?: "instant" | "beacon";
  /** explicit layers, instead of base_length */
  layers?: LayerRequest[];
  name: string;
  /** minor units; may be absent when every layer has its own */
  price?: number;
  prizes: PrizeRequest[];
  /** positions an account may buy */
  purchase_limit?: number;
  /** how many witnesses of the public log must have cosigned the seal before the beacon's round; in beacon mode only */
  witnesses?: number;
}

export interface CreateKeyRequest {
  /** lower-case hex SHA-256 of the secret */
  hash: string;
  name: string;
  role: "admin" | "service" | "reader";
}

export interface CreateMultidrawRequest {
  /** true: answer at once, with an operation that is running */
  async?: boolean;
  /** draws to be made */
  count: number;
  /** held until the operation is completed or rolled back */
  lock_key: string;
  /** prizes to draw from; instead of a range. The sum of weights is positive and fits 64 bits */
  prizes?: WeightedPrize[];
  /** integers to draw from; instead of prizes */
  range?: RangeRequest;
}

export interface CreateTargetRequest {
  config?: TargetConfig;
  kind: "webhook" | "deviantart";
  /** what publications call it */
  name: string;
  /** Go duration that a whole attempt may take, uploads included, 1s to 15m; 30s when absent */
  timeout?: string;
  /** http or https; where a webhook is posted to; for deviantart, where its API is, https://www.deviantart.com when absent */
  url?: string;
}

export interface CredentialsRequest {
  /** with the client's secret, or as before when both are absent */
  client_id?: string;
  client_secret?: string;
  /** of a new authorization; as before when absent */
  refresh_token?: string;
}

export interface CrossEnd {
  account: string;
  /** local, or the name that the server was given with --ledger */
  ledger: string;
}

export interface CrossLeg {
  /** for ever: a repeat is told the same */
  outcome: "done" | "refused";
  /** of a refusal, else empty */
  reason: string;
  /** the transfer that it made in this ledger */
  transfer: string | null;
}

export interface CrossLegRequest {
  /** minor units */
  amount: number;
  /** refuse the leg with this reason unless it was done already */
  cancel?: string;
  currency: string;
  /** the ledger is local where it is this server's */
  from: CrossEnd;
  /** the transfer that it is part of, at the server which makes it */
  saga: string;
  step: "debit" | "credit" | "transfer";
  /** the ledger is local where it is this server's */
  to: CrossEnd;
  /** undo the leg, which must have been done */
  undo?: boolean;
}

export interface CrossStep {
  account: string;
  ledger: string;
  /** transfer where both accounts are in one ledger */
  name: "debit" | "credit" | "transfer";
  /** of a refusal, else empty */
  reason: string;
  status: "pending" | "done" | "refused" | "compensated";
  /** the transfer of the step's ledger that it made */
  transfer: string | null;
  /** the one that undid it */
  undone: string | null;
}

export interface CrossTransfer {
  amount: number;
  /** how many in a row failed to get on */
  attempts: number;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  /** RFC 3339, UTC, microseconds */
  ended_at: string | null;
  from: CrossEnd;
  id: string;
  /** a two-phase transfer that is decided to commit, and not yet committed everywhere */
  in_doubt: boolean;
  mode: "saga" | "twophase";
  /** of a failure or compensation, else empty */
  reason: string;
  status: "pending" | "completed" | "failed" | "compensated";
  steps: CrossStep[];
  /** whether it has failed ten times in a row; the server goes on trying it */
  stuck: boolean;
  to: CrossEnd;
}

export interface CrossTransferList {
  items: CrossTransfer[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface CrossTransferRequest {
  /** minor units */
  amount: number;
  from: CrossEnd;
  /** saga: debit, then credit, compensated where that is refused; twophase: both or neither */
  mode: "saga" | "twophase";
  to: CrossEnd;
}

export interface CurrencyIntegrity {
  available: number | bigint;
  currency: string;
  deposits: number | bigint;
  /** deposits - withdrawals - available - held */
  difference: number | bigint;
  held: number | bigint;
  withdrawals: number | bigint;
}

export interface DatabaseBlocker {
  application: string;
  /** its process on the database's server, 0 for a prepared transaction */
  pid: number;
  state: string;
  /** the beginning of its last one, which may have ended */
  statement: string;
  /** null where it can't be seen */
  transaction_since: string | null;
}

export interface DatabaseWait {
  application: string;
  /** the sessions in the way, those that wait in front included */
  blockers: DatabaseBlocker[];
  /** what is waited for, in PostgreSQL's words */
  kind: string;
  mode: string;
  /** the session's process on the database's server */
  pid: number;
  /** the table, where the lock is one on a table or on a part of it */
  relation: string;
  /** RFC 3339, UTC, microseconds */
  since: string;
  /** the beginning of what waits */
  statement: string;
}

export interface DatabaseWaits {
  /** longest first, 200 at most */
  waits: DatabaseWait[];
}

export interface Deadlock {
  /** when it was found and broken */
  at: string;
  /** the owners, each waiting for the next and the last for the first; the request of the first was refused */
  cycle: string[];
  /** what each of them waited for */
  keys: string[];
}

export interface Deadlocks {
  /** newest first, 50 at most, since the process began; other processes break deadlocks too */
  deadlocks: Deadlock[];
}

export interface Doubt {
  /** by the clock of its database */
  age_ms: number;
  /** its name in pg_prepared_xacts */
  gid: string;
  /** in whose database it is prepared */
  ledger: string;
  /** RFC 3339, UTC, microseconds */
  prepared_at: string;
  /** why it is in doubt, or is committed without the log's word, else empty */
  reason: "" | "log_disowned" | "log_unproven" | "history_lost" | "too_young" | "participant_unreachable" | "sibling_committed";
  saga: string;
  /** of the saga, in which it was prepared */
  term: number;
  /** running: its saga is at work on it; in_doubt: nobody may end it yet, see reason; else what the resolver is about to do */
  verdict: "running" | "commit" | "rollback" | "in_doubt";
}

export interface Doubts {
  /** oldest first */
  items: Doubt[];
  /** ledgers whose databases could not be asked */
  unreachable: string[];
}

export interface Draw {
  campaign: string;
  /** RFC 3339, UTC, microseconds */
  completed_at: string;
  /** hex root of the sealed positions */
  root: string;
  winners: Winner[];
}

export interface DrawnResultList {
  items: unknown[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Entry {
  /** signed minor units */
  amount: number;
  /** RFC 3339, UTC, microseconds */
  at: string;
  id: string;
  memo: string;
  transfer: string;
}

export interface EntryList {
  items: Entry[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Firing {
  /** RFC 3339, UTC, microseconds */
  fired_at: string;
  outcome: "scheduled" | "no_draft" | "quota_reached";
  /** the draft that was scheduled */
  publication: string | null;
  /** the time of the rule; an automation fires once for each */
  scheduled_for: string;
  /** times of the rule before this one at which no server ran */
  skipped: number;
}

export interface FiringList {
  items: Firing[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Found {
  items: FoundThing[];
}

export interface FoundThing {
  /** of the thing; of a position, its campaign's, and of a hold, its account's */
  id: string;
  kind: "account" | "auction" | "automation" | "campaign" | "hold" | "key" | "lock" | "multidraw" | "position" | "publication" | "saga" | "target" | "transfer";
  /** empty where it has none */
  status: string;
  title: string;
}

export interface Health {
  reason?: "database_unreachable" | "read_only" | "commit_timeout" | "disk_full" | "schema" | "pool_exhausted" | "draining";
  status: "ok" | "unavailable";
  version: string;
}

export interface Histogram {
  buckets: Bucket[];
  count: number;
  sum: number;
}

export interface Hold {
  account: string;
  amount: number;
  captured: number;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** RFC 3339, UTC, microseconds */
  expires_at: string | null;
  id: string;
  status: "open" | "captured" | "released" | "expired";
}

export interface HoldRequest {
  account: string;
  /** minor units */
  amount: number;
  /** Go duration; without it the hold does not expire */
  expires_in?: string;
}

export interface InclusionDocument {
  campaign: string;
  /** place of the position in canonical order, from 0 */
  index: number;
  position: ProofPosition;
  /** 32 bytes in hex */
  root: string;
  /** hashes in hex, from the leaf upward */
  siblings: string[];
  /** number of positions */
  size: number;
  versions: ProofVersions;
}

export interface Integrity {
  /** transfers whose entries do not sum to zero */
  bad_transfers: number;
  /** RFC 3339, UTC, microseconds */
  checked_at: string;
  /** the last closing of the books. The entries since then are counted for this answer, the older ones were counted before. Equal to checked_at if all entries are counted for this answer */
  closed_at: string;
  currencies: CurrencyIntegrity[];
  /** sum of the currencies' absolute differences */
  difference: number | bigint;
  /** the first account that disagrees with its entries or holds */
  first_bad_account: string | null;
  /** when the last recount began. It counted all older entries. A later change by hand to a closed entry is found by the next recount. Equal to checked_at if all entries are counted for this answer */
  recounted_at: string;
  valid: boolean;
}

export interface Key {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  id: string;
  name: string;
  /** RFC 3339, UTC, microseconds */
  revoked_at: string | null;
  role: string;
}

export interface KeyList {
  items: Key[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface KeyRecord {
  /** the answer that is kept */
  body: unknown;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** of the request that ran; all others were answered with its result */
  execution: string;
  /** of the answer that is kept */
  status: number;
}

export interface LaneStats {
  /** commands a commit; their sum is the commands */
  batch: Histogram;
  /** seconds from a batch's start to its commit */
  commit: Histogram;
  /** commands that waited when a batch was last taken */
  queue: number;
  /** commands refused because their lane was full */
  refused: number;
  service: string;
  /** seconds that the oldest command of a batch had waited */
  wait: Histogram;
}

export interface Layer {
  /** from 1 */
  layer: number;
  positions: number;
  /** minor units */
  price: number;
  sold: number;
}

export interface LayerRequest {
  positions: number;
  price?: number;
}

export interface Leaderboard {
  items: Rank[];
  /** cursor of the next page, null on the last */
  next: string | null;
  /** 0 before the start */
  round: number;
}

export interface Leg {
  amount: number;
  /** absent where a failed transfer did not get as far */
  currency?: string;
  from: string;
  to: string;
}

export interface LegRequest {
  /** minor units */
  amount: number;
  from: string;
  to: string;
}

export interface Lock {
  /** when the lock ends unless it is renewed, by the database's clock */
  expires_at: string;
  id: string;
  owner: string;
  /** the fencing token of each key */
  tokens: Record<string, number>;
}

export interface LockEdge {
  /** the owner that waits */
  from: string;
  key: string;
  /** the owner that holds the key, or asked for it before */
  to: string;
}

export interface LockHolder {
  /** RFC 3339, UTC, microseconds */
  expires_at: string;
  /** RFC 3339, UTC, microseconds */
  granted_at: string;
  id: string;
  owner: string;
  /** the fencing token of each key */
  tokens: Record<string, number>;
}

export interface LockRequest {
  /** names of 1 to 200 characters, all to be locked or none */
  keys: string[];
  /** the line of work that asks; deadlocks are told by owners */
  owner: string;
  /** Go duration from 100ms to 24h: how long the lock lasts unless it is renewed */
  ttl: string;
  /** Go duration up to 10m: how long to wait in line, 0s when absent */
  wait?: string;
}

export interface LockWaiter {
  keys: string[];
  owner: string;
  /** RFC 3339, UTC, microseconds */
  since: string;
}

export interface Locks {
  /** who waits for whom: each request for who holds its keys, and for the 64 before it in the line of each */
  edges: LockEdge[];
  /** oldest first, 10,000 at most */
  holders: LockHolder[];
  /** in order of asking */
  waiters: LockWaiter[];
}

export interface LogLeaf {
  /** hashes in hex from the leaf up to the checkpoint's root */
  inclusion: string[];
  /** number of the entry in the log, from 0 */
  index: number;
  /** the entry's bytes in base64, a JSON document */
  leaf: string;
  /** type of the fact, as campaign.sealed or bid.placed */
  type: string;
}

export interface LogLeaves {
  /** the signed note under which all leaves of this page are */
  checkpoint: string;
  items: LogLeaf[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface MadeTarget {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  id: string;
  kind: string;
  name: string;
  /** signs deliveries as Standard Webhooks has it; shown this once; empty for a target that is sent nothing signed */
  secret: string;
  /** Go duration */
  timeout: string;
  url: string;
}

export interface Measurements {
  /** when the samples were taken, oldest first, those of an hour at most */
  at: string[];
  /** when the process began */
  began_at: string;
  /** time between two samples */
  every_seconds: number;
  /** the number of the last sample, counted from 1 since the process began, to ask for those after it */
  last: number;
  series: Series[];
  /** the name of the machine, and the process's number */
  server: string;
}

export interface MinWinningBid {
  /** minor units */
  amount: number;
  /** the least amount from there on that no standing bid has, with unique_amounts: what to bid now; else the same. null: there is none */
  free_amount: number | null;
}

export interface Movement {
  account: string;
  amount: number;
  /** after the movement */
  available: number;
  currency: string;
  /** the transfer's id */
  id: string;
  reference?: string;
}

export interface MovementRequest {
  account: string;
  /** minor units */
  amount: number;
  memo?: string;
  /** unique for ever: the same request with it again, under any key, moves nothing */
  reference?: string;
}

export interface Multidraw {
  /** RFC 3339, UTC, microseconds */
  completed_at: string | null;
  completed_count: number;
  id: string;
  /** RFC 3339, UTC, microseconds */
  last_update_time: string;
  lock_key: string;
  /** the prizes drawn so far, of operations of up to 1,000 draws of prizes: their ids, or where a query asks for objects, the prizes as in the list */
  prize_results?: unknown[];
  /** absent where integers are drawn */
  prizes?: WeightedPrize[];
  /** absent where prizes are drawn */
  range?: Range;
  /** the integers drawn so far, of operations of up to 1,000 draws of a range */
  results?: Array<number | bigint>;
  /** RFC 3339, UTC, microseconds */
  rolled_back_at: string | null;
  /** hex seed, null until all is drawn */
  seed: string | null;
  /** hex SHA-256 of the seed, from the start */
  seed_commitment: string;
  /** RFC 3339, UTC, microseconds */
  start_time: string;
  status: "running" | "completed" | "interrupted" | "rolled_back";
  total_count: number;
}

export interface MultidrawProofDocument {
  /** hex SHA-256 of the seed, as it was published at the start */
  commitment: string;
  count: number;
  /** of all draws */
  digest: string;
  /** draws between two checkpoints, over which the digest is made */
  every: number;
  kind: "multidraw";
  /** the multi-draw's id, from which the draws are derived, too */
  operation: string;
  /** of up to 1,000 draws */
  prize_results?: string[];
  prizes?: WeightedPrize[];
  range?: Range;
  /** of up to 1,000 draws */
  results?: Array<number | bigint>;
  server_seed: string;
  version: number;
}

export interface MultidrawSummary {
  completed_count: number;
  id: string;
  /** RFC 3339, UTC, microseconds */
  last_update_time: string;
  lock_key: string;
  seed_commitment: string;
  /** RFC 3339, UTC, microseconds */
  start_time: string;
  status: "running" | "completed" | "interrupted" | "rolled_back";
  total_count: number;
}

export interface MultidrawSummaryList {
  items: MultidrawSummary[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export type NoFields = Record<string, never>;

export interface OpenHold {
  account: string;
  amount: number;
  captured: number;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** RFC 3339, UTC, microseconds */
  expires_at: string | null;
  id: string;
  /** the part of the system that placed the hold, such as auction:ID; empty where a client did */
  owner: string;
  status: "open";
}

export interface OpenHoldList {
  items: OpenHold[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Overview {
  /** when it was measured */
  at: string;
  /** of the whole system; counts end at 1,000 */
  backlog: Backlog;
  /** of them, with a status of 500 or more */
  failures: number;
  /** of this process */
  lanes: LaneStats[];
  /** seconds from a request's header to the end of its answer, without streams of events and requests for locks with a wait */
  latency: Histogram;
  /** answered by this process */
  requests: number;
  /** auctions and campaigns that this process works on in turns with others, which costs both; up to 20 */
  shared_targets: Shared[];
  /** live subscribers of this process */
  streams: number;
  version: string;
}

export interface Pace {
  /** least time between two claims; 0s: none */
  interval: string;
  /** nothing is claimed before */
  next_send_at: string | null;
  /** the circuit breaker was opened until then */
  open_until: string | null;
  /** answers 429 in a row, those to the same publication in a row counted once */
  refusals: number;
  /** open: the circuit breaker is; half_open: one publication will tell */
  state: "free" | "slowed" | "open" | "half_open";
}

export interface Place {
  id: string;
  /** from 1 */
  layer: number;
  /** within the layer, from 1 */
  number: number;
}

export interface PlacedBid {
  account: string;
  amount: number;
  /** RFC 3339, UTC, microseconds */
  at: string;
  previous_amount: number;
  round: number;
  seq: number;
}

export interface PlacedBidList {
  items: PlacedBid[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Position {
  /** null while available */
  account: string | null;
  id: string;
  layer: number;
  number: number;
  status: "available" | "sold";
}

export interface PositionList {
  items: Position[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Prize {
  /** null: positions of all layers can win it */
  layer: number | null;
  name: string;
  quantity: number;
}

export interface PrizeRequest {
  /** absent: positions of all layers can win it */
  layer?: number;
  name: string;
  quantity: number;
}

export interface Problem {
  /** stable name for programs */
  code: string;
  /** the owners that wait for each other, in waiting order, the asking one first, with deadlock */
  cycle?: string[];
  /** this occurrence, for a person */
  detail: string;
  /** the leg, from 0, for which a transfer with legs was refused */
  leg?: number;
  /** what became of the effect: not_applied where it is certain that neither this request nor one before it had one; unknown where this one, or an earlier one, may have been applied, which the same key tells later. Of a request with the same key that is under way at the same time it says nothing */
  outcome: "not_applied" | "applied" | "unknown";
  request_id: string;
  /** whole seconds to wait, with cooldown and rate_limited */
  retry_after?: number;
  /** whether the same request may succeed later */
  retryable: boolean;
  /** HTTP status */
  status: number;
  /** what happened, the same for every occurrence */
  title: string;
  /** the id of the failed transfer, with insufficient_funds, or of the one that has the reference, with reference_taken */
  transfer?: string;
  /** URI reference of the problem's description */
  type: string;
}

export interface ProofBeacon {
  /** the chain's name */
  beacon_id: string;
  /** hex */
  chain_hash: string;
  /** hex */
  genesis_seed: string;
  /** when round 1 was due, Unix seconds */
  genesis_time: number;
  /** seconds between two rounds */
  period: number;
  /** in hex, of chains that sign it too */
  previous_signature?: string;
  /** the chain's, in hex */
  public_key: string;
  /** the one that was named at sell-out */
  round: number;
  /** drand's name of the way of signing */
  scheme: string;
  /** in hex */
  signature: string;
}

export interface ProofDocument {
  /** absent in instant mode */
  beacon?: ProofBeacon;
  campaign: string;
  /** hex SHA-256 of the server seed */
  commitment: string;
  /** key of the random streams, 32 bytes in hex */
  draw_seed: string;
  positions: ProofPosition[];
  prizes: ProofPrize[];
  /** of the sealed positions, 32 bytes in hex */
  root: string;
  /** where the seal is in the public log; absent unless witnesses have seen it before the beacon's round */
  seal?: ProofSeal;
  /** 32 bytes in hex */
  server_seed: string;
  versions: ProofVersions;
  winners: Winner[];
}

export interface ProofPosition {
  account: string;
  id: string;
  layer: number;
  number: number;
}

export interface ProofPrize {
  /** 0: any */
  layer: number;
  name: string;
  quantity: number;
}

export interface ProofSeal {
  /** a signed note, cosigned by witnesses before the round was due */
  checkpoint: string;
  /** hashes in hex from the leaf up to the checkpoint's root */
  inclusion: string[];
  /** number of the entry in the log, from 0 */
  index: number;
  /** the entry's bytes in base64 */
  leaf: string;
}

export interface ProofVersions {
  algorithm: number;
  document: number;
}

export interface PublicAuction {
  anti_snipe: AntiSnipe;
  chart: BidChart;
  currency: string;
  current_round: number;
  id: string;
  /** the best 100 standing bids */
  leaderboard: PublicRank[];
  min_increment: number;
  /** the least new bid that would now win; null when no round is open */
  min_winning_bid: number | null;
  /** the server's time */
  now: string;
  rounds: Round[];
  /** of the last event */
  seq: number;
  status: "active" | "completed" | "cancelled";
  title: string;
  total_bids: number;
  /** of rounds that ended, the first 200 */
  winners: PublicWon[];
}

export interface PublicCampaign {
  /** hex SHA-256 of the server seed */
  commitment: string;
  /** RFC 3339, UTC, microseconds */
  completed_at: string | null;
  currency: string;
  id: string;
  map: SaleMap;
  name: string;
  /** the server's time */
  now: string;
  prizes: Prize[];
  /** RFC 3339, UTC, microseconds */
  published_at: string | null;
  /** hex root of the sealed positions; null before the draw */
  root: string | null;
  /** null before everything is sold, and where the draw is instant */
  seal: PublicSeal | null;
  status: "active" | "drawing" | "completed" | "cancelled";
  /** empty before the draw */
  winners: PublicWinner[];
}

export interface PublicPlace {
  /** of the account that bought it */
  alias: string;
  id: string;
  layer: number;
  number: number;
}

export interface PublicPosition {
  campaign: string;
  /** place of the position in canonical order, from 0 */
  index: number;
  position: PublicPlace;
  /** of the sealed positions, 32 bytes in hex */
  root: string;
  /** number of positions */
  size: number;
}

export interface PublicRank {
  /** of the bidder's account, who finds it at /v1/accounts/{id}/aliases */
  alias: string;
  amount: number;
  rank: number;
  winning: boolean;
}

export interface PublicSeal {
  /** whether that is over, or the draw is made */
  due: boolean;
  /** when the round is due */
  due_at: string;
  /** how many witnesses of the public log must have seen the seal before */
  required: number;
  /** of the beacon, which decides */
  round: number;
  /** whole seconds from seen_at to due_at */
  seconds_before: number | null;
  /** when the last of them had; null while none has */
  seen_at: string | null;
  /** how many have */
  witnesses: number;
}

export interface PublicWinner {
  /** of the winner's account, who finds it at /v1/accounts/{id}/aliases */
  alias: string;
  position: WinnerSpot;
  prize: string;
}

export interface PublicWon {
  alias: string;
  amount: number;
  rank: number;
  round: number;
}

export interface Publication {
  /** with the jitter */
  actual_publish_at: string | null;
  attempts: number;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** the attempt under way; absent in lists and answers to commands, and while there is none */
  current_attempt?: Attempt;
  /** of the claim in force */
  execution_lock_id: string | null;
  /** of the claim in force: its last sign of life */
  execution_locked_at: string | null;
  /** grows with each claim */
  execution_version: number;
  /** its id at the target */
  external_id: string | null;
  /** also the webhook-id of its deliveries */
  id: string;
  /** Go duration */
  jitter: string;
  last_error: string | null;
  /** while scheduled */
  next_attempt_at: string | null;
  /** any JSON value */
  payload?: unknown;
  /** the time that was asked for; null in a draft */
  publish_at: string | null;
  /** RFC 3339, UTC, microseconds */
  published_at: string | null;
  status: "draft" | "scheduled" | "publishing" | "published" | "failed" | "cancelled";
  /** the target's name */
  target: string;
}

export interface PublicationList {
  items: Publication[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface PublicationRequest {
  /** Go duration up to 5m: a random part of it is added to the time */
  jitter?: string;
  /** any JSON value */
  payload: unknown;
  /** RFC 3339; past: at once; absent: a draft */
  publish_at?: string;
  /** the target's name */
  target: string;
}

export interface Purchase {
  account: string;
  /** RFC 3339, UTC, microseconds */
  at: string;
  campaign: string;
  id: string;
  position: Place;
  /** minor units */
  price: number;
}

export interface PurchaseList {
  items: Purchase[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface PurchaseRequest {
  account: string;
  /** absent: a position of any layer */
  layer?: number;
}

export interface Range {
  max: number | bigint;
  min: number | bigint;
}

export interface RangeRequest {
  /** included */
  max: number | bigint;
  /** included */
  min: number | bigint;
}

export interface Rank {
  account: string;
  amount: number;
  /** from 1 */
  rank: number;
  /** whether the bid would win if the round ended now, or has won */
  winning: boolean;
}

export interface RenewLockRequest {
  /** Go duration from 100ms to 24h, as before when absent */
  ttl?: string;
}

export interface ReplayRequest {
  /** the number of the event before the first that is delivered */
  after: number;
  /** one of the subscription's, or of a kind that it follows */
  topic: string;
}

export interface Result {
  /** what the route answers, a document or a problem */
  body: unknown;
  /** whether it is an earlier request's answer */
  replayed: boolean;
  status: number;
}

export interface RotateRequest {
  /** Go duration up to 720h for which the old secret signs too; 24h when absent */
  overlap?: string;
}

export interface Round {
  /** the auction was cancelled before the round was closed: it has no winners, whatever its status is */
  cancelled: boolean;
  /** without extensions */
  duration: string;
  /** moved by extensions */
  ends_at: string | null;
  extensions: number;
  /** from 1 */
  round: number;
  /** RFC 3339, UTC, microseconds */
  started_at: string | null;
  status: "pending" | "active" | "completed";
  /** places */
  winners: number;
}

export interface RoundMark {
  /** RFC 3339, UTC, microseconds */
  at: string;
  /** the event's */
  data: unknown;
  seq: number;
  type: "round.started" | "round.extended";
}

export interface RoundRequest {
  /** Go duration from 1ms to 8784h, whole microseconds */
  duration: string;
  winners: number;
}

export interface Saga {
  /** how many in a row failed to get on */
  attempts: number;
  /** whether an operator has given it up */
  cancelled: boolean;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** when what is not done is given up */
  deadline_at: string | null;
  /** RFC 3339, UTC, microseconds */
  ended_at: string | null;
  id: string;
  /** whether it is decided to commit, and not yet known to be committed everywhere */
  in_doubt: boolean;
  /** of the last of them; one that has failed, or was compensated, always has one; else empty */
  last_error: string;
  /** of its definition */
  name: string;
  /** when it is tried next; null while it runs, and when it has ended */
  next_at: string | null;
  protocol: "saga" | "twophase";
  /** of a failure or compensation, else empty */
  reason: string;
  status: "pending" | "completed" | "failed" | "compensated";
  steps: SagaStep[];
  /** whether it has failed ten times in a row; the server goes on trying it */
  stuck: boolean;
  /** grows with each process that takes it over */
  term: number;
  /** the money that it moves; absent for an operation of another kind */
  transfer?: SagaTransfer;
}

export interface SagaList {
  items: Saga[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface SagaStep {
  /** how often it, or its compensation, was tried; an attempt whose process died may be missing */
  attempts: number;
  /** of the last attempt, empty where that did not fail */
  error: string;
  name: string;
  /** of a refusal, else empty */
  reason: string;
  /** what the step made, such as the id of a transfer, else empty */
  result: string;
  status: "pending" | "done" | "refused" | "compensated";
  /** what its compensation made, else empty */
  undone: string;
}

export interface SagaTransfer {
  /** minor units */
  amount: number;
  currency: string;
  from: CrossEnd;
  to: CrossEnd;
}

export interface SaleMap {
  campaign: string;
  layers: Layer[];
  /** a bit a position in campaign order, the first in the highest bit, base64; null in campaigns of over 20,000, and where the purchases are archived */
  sold: string | null;
  sold_positions: number;
  status: string;
  total_positions: number;
}

export interface SaleMark {
  /** RFC 3339, UTC, microseconds */
  at: string;
  /** how many were sold with this one */
  sold: number;
}

export interface Sales {
  /** oldest first, 300 at most, the first and the last among them; none where they are archived */
  sales: SaleMark[];
  sold: number;
  total: number;
}

export interface ScheduleRequest {
  /** Go duration up to 5m; absent: the one that it has */
  jitter?: string;
  /** RFC 3339; past: at once */
  publish_at: string;
}

export interface Seal {
  campaign: string;
  /** the signed note that witnesses have cosigned before the round was due */
  checkpoint: string;
  /** when the round is due */
  due_at: string;
  /** hashes in hex from the leaf up to the checkpoint's root */
  inclusion: string[];
  /** number of the entry in the log, from 0 */
  index: number;
  /** verifier key that the log signed it with; /log/key has another one if it was renewed since */
  key: string;
  /** the entry's bytes in base64, a JSON document with the root, the round and when it is due */
  leaf: string;
  /** whole seconds from seen_at to due_at */
  seconds_before: number;
  /** when the last of them did, by its clock */
  seen_at: string;
  /** how many witnesses have cosigned it in time */
  witnesses: number;
}

export interface Series {
  /** what was measured: requests, failures, commands and locks contended a second; p50 and p99 of latency, commit and lock wait in seconds; locks waiting; refused CODE and attempts RESULT TARGET a second, by problem code and target id */
  name: string;
  /** one for each sample, null where nothing was measured */
  values: Array<number | null>;
}

export interface Shared {
  /** by other processes, as this one finds them */
  changes_per_second: number;
  /** auction: or campaign: and its id */
  target: string;
}

export interface Statistics {
  /** distinct accounts */
  buyers: number;
  campaign: string;
  /** RFC 3339, UTC, microseconds */
  first_sale_at: string | null;
  /** most positions of one account */
  largest_buyer: number;
  /** RFC 3339, UTC, microseconds */
  last_sale_at: string | null;
  layers: Layer[];
  /** prices of everything sold, minor units, refunded or not */
  revenue: number;
  sold_positions: number;
  /** 0 to 1 */
  sold_share: number;
  status: string;
  total_positions: number;
}

export interface Subscription {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  envelope: "plain" | "cloudevents";
  id: string;
  name: string;
  /** nothing is sent while it is not null */
  paused_at: string | null;
  /** refused: the target refused events for good, ten times in a row */
  paused_reason: "request" | "refused" | null;
  /** answers in a row by which the target refused an event for good; ten pause the subscription */
  refusals: number;
  /** the target's name */
  target: string;
  topics: string[];
  /** empty: events of all types are delivered */
  types: string[];
}

export interface SubscriptionList {
  items: Subscription[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface SubscriptionRequest {
  /** plain, when absent: the message as the live stream has it; cloudevents: CloudEvents 1.0, structured JSON */
  envelope?: "plain" | "cloudevents";
  /** now, when absent: with the events that are to come; start: with those that there are already */
  from?: "now" | "start";
  name: string;
  /** the name of the webhook that events are delivered to */
  target: string;
  /** 1 to 100 of auction:ID, campaign:ID and multidraw:ID; with * for the id, all of the kind, those to come included */
  topics: string[];
  /** types of events that are delivered, as the live stream names them; all when absent. countdown and bid.outbid are for the live stream alone */
  types?: string[];
}

export interface Target {
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  /** how the target fares; absent in the answers of commands */
  health?: TargetHealth;
  id: string;
  kind: string;
  name: string;
  /** the key before the last rotation signs too until then */
  overlap_until: string | null;
  /** how the target is slowed down after it answered 429 */
  pace: Pace;
  /** nothing is claimed while it is not null */
  paused_at: string | null;
  /** auth_expired: give the target new credentials */
  paused_reason: "request" | "auth_expired" | null;
  /** Go duration */
  timeout: string;
  url: string;
}

export interface TargetConfig {
  /** deviantart: of the client that the account's owner has authorized */
  client_id?: string;
  /** deviantart */
  client_secret?: string;
  /** deviantart: of that authorization, for the scopes stash, publish, browse and user */
  refresh_token?: string;
  /** another place for the target's timeout, from 100ms */
  timeout?: string;
}

export interface TargetError {
  /** RFC 3339, UTC, microseconds */
  at: string;
  /** address: the address is not one that this server sends to */
  cause: "dns" | "refused" | "network" | "tls" | "timeout" | "status" | "address" | "other";
  message: string;
  publication: string;
  /** of the target's answer; null without one */
  status_code: number | null;
}

export interface TargetHealth {
  /** absent where there was none; up to a second older than the last */
  last_error?: TargetError;
  /** null where there was none; up to a second older than the last */
  last_success_at: string | null;
  /** failing: the last attempt failed; idle: no attempt has ended yet */
  state: "paused" | "circuit_open" | "slowed" | "failing" | "delivering" | "idle";
}

export interface TargetList {
  items: Target[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface TopicError {
  /** expired: the event is not kept any more */
  cause: "dns" | "refused" | "network" | "tls" | "timeout" | "status" | "address" | "other" | "expired";
  message: string;
  /** of the target's answer; null without one */
  status_code: number | null;
}

export interface TopicProgress {
  /** failed ones of the next event */
  attempts: number;
  /** when an event of the topic was last delivered */
  delivered_at: string | null;
  /** number of the topic's last event */
  head: number;
  /** events after seq */
  lag: number;
  /** why the next event was not delivered; null where nothing failed */
  last_error: TopicError | null;
  /** nothing is sent before */
  retry_at: string | null;
  /** number of the last event that was delivered, or passed over for its type */
  seq: number;
  /** stopped: the next event is not kept any more; replay the topic after a later number */
  state: "stopped" | "retrying" | "behind" | "current";
  topic: string;
}

export interface TopicProgressList {
  items: TopicProgress[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface Transfer {
  amount: number;
  /** null unless completed */
  completed_at: string | null;
  /** RFC 3339, UTC, microseconds */
  created_at: string;
  currency: string;
  /** with legs, the first leg's, as to, amount and currency are; of a transfer that failed, the refused leg's */
  from: string;
  id: string;
  /** transfer, deposit, withdrawal, capture (of a hold), purchase, payout, refund, or cross (to or from another ledger) */
  kind: string;
  /** of a transfer that was asked for by legs */
  legs?: Leg[];
  memo: string;
  /** of a failure, else empty */
  reason: string;
  reference?: string;
  status: "pending" | "completed" | "failed";
  to: string;
}

export interface TransferList {
  items: Transfer[];
  /** cursor of the next page, null on the last */
  next: string | null;
}

export interface TransferRequest {
  /** minor units */
  amount?: number;
  /** absent with legs, else required, as to and amount are */
  from?: string;
  /** in place of from, to and amount: all of them are done in order, or none */
  legs?: LegRequest[];
  memo?: string;
  /** unique for ever: the same request with it again, under any key, moves nothing */
  reference?: string;
  to?: string;
}

export interface WeightedPrize {
  /** unique among the prizes */
  id: string;
  name: string;
  /** the caller's; 0 when absent */
  value?: number | bigint;
  /** the prize is won with probability weight / sum of weights; with weight 0, never */
  weight: number | bigint;
}

export interface Winner {
  account: string;
  /** of the position */
  layer: number;
  position: WinnerSpot;
  prize: string;
}

export interface WinnerSpot {
  id: string;
  layer: number;
  number: number;
}

/** The stable names of all problems. A newer server may have more. */
export type ProblemCode =
  | "account_exists"
  | "admin_key_needed"
  | "amount_taken"
  | "automation_exists"
  | "bad_request"
  | "bad_transition"
  | "balance_overflow"
  | "beacon_pending"
  | "beacon_unavailable"
  | "bid_too_low"
  | "capture_too_large"
  | "cooldown"
  | "coordinator_active"
  | "corrupt_state"
  | "cross_origin"
  | "currency_mismatch"
  | "deadlock"
  | "events_expired"
  | "forbidden"
  | "foreign_host"
  | "headers_too_large"
  | "hold_closed"
  | "hold_owned"
  | "idempotency_key_required"
  | "idempotency_key_reused"
  | "insufficient_funds"
  | "internal_error"
  | "key_exists"
  | "last_admin"
  | "ledger_unreachable"
  | "link_used"
  | "lock_held"
  | "lock_lost"
  | "method_not_allowed"
  | "not_active"
  | "not_counted"
  | "not_drawn"
  | "not_found"
  | "not_sealed"
  | "not_sold_out"
  | "outcome_unknown"
  | "overloaded"
  | "own_auction"
  | "payload_too_large"
  | "purchase_limit"
  | "rate_limited"
  | "reference_taken"
  | "replay_out_of_range"
  | "row_locked"
  | "same_account"
  | "shutting_down"
  | "sold_out"
  | "subscription_exists"
  | "target_exists"
  | "too_many_prizes"
  | "too_many_streams"
  | "too_many_subscriptions"
  | "two_phase_unavailable"
  | "unauthorized"
  | "unavailable"
  | "unknown_seq"
  | "unwitnessed"
  | "upgrade_required"
  | "webhook_required"
  | "witnesses_unavailable"
  | "wrong_kind";

/** What each route that speaks JSON takes and answers. */
export interface Routes {
  GET: {
    /** Is the process alive */
    "/healthz": { answer: Health };
    /** This document */
    "/openapi.json": { answer: Record<string, unknown> };
    /** Read what an auction's public page shows */
    "/p/auctions/{id}/state": { path: { id: string }; answer: PublicAuction };
    /** Read that a position was sealed, and by which alias it was bought */
    "/p/campaigns/{id}/positions/{position}": { path: { id: string; position: string }; answer: PublicPosition };
    /** Read what a campaign's public page shows */
    "/p/campaigns/{id}/state": { path: { id: string }; answer: PublicCampaign };
    /** Are commands served */
    "/readyz": { answer: Health };
    /** Read an account */
    "/v1/accounts/{id}": { path: { id: string }; answer: Account };
    /** Read what public pages call an account */
    "/v1/accounts/{id}/aliases": { path: { id: string }; query?: { topic?: string }; answer: Alias };
    /** List an account's standing bids in auctions under way, oldest auction first */
    "/v1/accounts/{id}/bids": { path: { id: string }; query?: { limit?: number; after?: string }; answer: AccountBidList };
    /** List an account's entries, oldest first */
    "/v1/accounts/{id}/entries": { path: { id: string }; query?: { limit?: number; after?: string }; answer: EntryList };
    /** List an account's open holds, newest first */
    "/v1/accounts/{id}/holds": { path: { id: string }; query?: { limit?: number; after?: string }; answer: OpenHoldList };
    /** Prove an account's balance by the public log */
    "/v1/accounts/{id}/proof": { path: { id: string }; query?: { at?: string }; answer: AccountProof };
    /** List an account's purchases in all campaigns, newest first */
    "/v1/accounts/{id}/purchases": { path: { id: string }; query?: { limit?: number; after?: string }; answer: PurchaseList };
    /** List accounts by id */
    "/v1/admin/accounts": { query?: { limit?: number; after?: string; prefix?: string }; answer: AccountList };
    /** Read an account's balance over the last hour */
    "/v1/admin/accounts/{id}/balances": { path: { id: string }; answer: Balances };
    /** List an account's entries with their balances, newest first */
    "/v1/admin/accounts/{id}/entries": { path: { id: string }; query?: { limit?: number; after?: string }; answer: AccountEntryList };
    /** List an account's open holds, newest first */
    "/v1/admin/accounts/{id}/holds": { path: { id: string }; query?: { limit?: number; after?: string }; answer: OpenHoldList };
    /** List auctions, newest first */
    "/v1/admin/auctions": { query?: { limit?: number; after?: string; status?: string }; answer: AuctionSummaryList };
    /** List bids, newest first */
    "/v1/admin/auctions/{id}/bids": { path: { id: string }; query?: { limit?: number; after?: string; account?: string }; answer: PlacedBidList };
    /** Read bids and rounds for a chart: every bid, or an even sample of many */
    "/v1/admin/auctions/{id}/chart": { path: { id: string }; answer: BidChart };
    /** List administrative actions, newest first */
    "/v1/admin/audit": { query?: { limit?: number; after?: string; action?: string; object?: string; principal?: string }; answer: AuditList };
    /** List automations, newest first */
    "/v1/admin/automations": { query?: { limit?: number; after?: string }; answer: AutomationList };
    /** List what an automation has fired, newest first */
    "/v1/admin/automations/{id}/firings": { path: { id: string }; query?: { limit?: number; after?: string }; answer: FiringList };
    /** List campaigns, newest first */
    "/v1/admin/campaigns": { query?: { limit?: number; after?: string; status?: string }; answer: CampaignSummaryList };
    /** Read which positions are sold */
    "/v1/admin/campaigns/{id}/map": { path: { id: string }; answer: SaleMap };
    /** List a campaign's purchases, newest first */
    "/v1/admin/campaigns/{id}/purchases": { path: { id: string }; query?: { limit?: number; after?: string; account?: string }; answer: PurchaseList };
    /** Read a campaign's sales over time: every one, or an even sample of many */
    "/v1/admin/campaigns/{id}/sales": { path: { id: string }; answer: Sales };
    /** See which sessions of the database wait for PostgreSQL's own locks, and for whom */
    "/v1/admin/database-waits": { answer: DatabaseWaits };
    /** Read which deadlocks this process has broken, newest first */
    "/v1/admin/deadlocks": { answer: Deadlocks };
    /** Read what is kept under an idempotency key */
    "/v1/admin/idempotency": { query?: { key?: string; method?: string; path?: string; principal?: string }; answer: KeyRecord };
    /** List API keys, newest first */
    "/v1/admin/keys": { query?: { limit?: number; after?: string }; answer: KeyList };
    /** Read what this process measured over the last hour */
    "/v1/admin/measurements": { query?: { since?: string }; answer: Measurements };
    /** List multi-draws, newest first */
    "/v1/admin/multidraws": { query?: { limit?: number; after?: string }; answer: MultidrawSummaryList };
    /** Read the names of things by their ids */
    "/v1/admin/names": { query?: { ids?: string }; answer: Found };
    /** Read what this process measured, and what waits in the whole system */
    "/v1/admin/overview": { answer: Overview };
    /** List publications, newest first */
    "/v1/admin/publications": { query?: { limit?: number; after?: string; status?: string; target?: string; error?: string; cause?: string }; answer: PublicationList };
    /** List a publication's attempts, newest first */
    "/v1/admin/publications/{id}/attempts": { path: { id: string }; query?: { limit?: number; after?: string }; answer: AttemptList };
    /** List operations of several steps, newest first */
    "/v1/admin/sagas": { query?: { limit?: number; after?: string; account?: string; name?: string; status?: string; stuck?: boolean }; answer: SagaList };
    /** Find things by id, reference or name */
    "/v1/admin/search": { query?: { q?: string }; answer: Found };
    /** List targets, newest first */
    "/v1/admin/targets": { query?: { limit?: number; after?: string }; answer: TargetList };
    /** List transfers, newest first */
    "/v1/admin/transfers": { query?: { limit?: number; after?: string; status?: string }; answer: TransferList };
    /** List auctions, oldest first */
    "/v1/auctions": { query?: { limit?: number; after?: string }; answer: AuctionSummaryList };
    /** Read an auction */
    "/v1/auctions/{id}": { path: { id: string }; answer: Auction };
    /** List accepted bids in order */
    "/v1/auctions/{id}/bids": { path: { id: string }; query?: { limit?: number; after?: string }; answer: PlacedBidList };
    /** List standing bids by rank: of the open round, or of the last one after the end */
    "/v1/auctions/{id}/leaderboard": { path: { id: string }; query?: { limit?: number; after?: string }; answer: Leaderboard };
    /** List an auction's leaves in the public log */
    "/v1/auctions/{id}/log": { path: { id: string }; query?: { limit?: number; after?: string }; answer: LogLeaves };
    /** Read the least new bid that would now win */
    "/v1/auctions/{id}/min-winning-bid": { path: { id: string }; answer: MinWinningBid };
    /** List winners by round and rank */
    "/v1/auctions/{id}/winners": { path: { id: string }; query?: { limit?: number; after?: string }; answer: AuctionWinnerList };
    /** List automations, oldest first */
    "/v1/automations": { query?: { limit?: number; after?: string }; answer: AutomationList };
    /** Read an automation, and when it fires next */
    "/v1/automations/{id}": { path: { id: string }; answer: Automation };
    /** List what an automation has fired, in order */
    "/v1/automations/{id}/firings": { path: { id: string }; query?: { limit?: number; after?: string }; answer: FiringList };
    /** List campaigns, oldest first */
    "/v1/campaigns": { query?: { limit?: number; after?: string }; answer: CampaignSummaryList };
    /** Read a campaign */
    "/v1/campaigns/{id}": { path: { id: string }; answer: Campaign };
    /** Read the draw */
    "/v1/campaigns/{id}/draw": { path: { id: string }; answer: Draw };
    /** List a campaign's leaves in the public log */
    "/v1/campaigns/{id}/log": { path: { id: string }; query?: { limit?: number; after?: string }; answer: LogLeaves };
    /** List positions by layer and number */
    "/v1/campaigns/{id}/positions": { path: { id: string }; query?: { limit?: number; after?: string }; answer: PositionList };
    /** Read the document that fairlead verify checks */
    "/v1/campaigns/{id}/proof": { path: { id: string }; answer: ProofDocument };
    /** Read the proof that a position was sealed */
    "/v1/campaigns/{id}/proof/positions/{position}": { path: { id: string; position: string }; answer: InclusionDocument };
    /** List purchases in the order of sale; to a user, its own */
    "/v1/campaigns/{id}/purchases": { path: { id: string }; query?: { limit?: number; after?: string }; answer: PurchaseList };
    /** Prove that witnesses have seen a campaign's seal before its round */
    "/v1/campaigns/{id}/seal": { path: { id: string }; answer: Seal };
    /** Read what the sales add up to */
    "/v1/campaigns/{id}/statistics": { path: { id: string }; answer: Statistics };
    /** List transfers between ledgers, oldest first */
    "/v1/cross-transfers": { query?: { limit?: number; after?: string; stuck?: boolean }; answer: CrossTransferList };
    /** Read a transfer between ledgers */
    "/v1/cross-transfers/{id}": { path: { id: string }; answer: CrossTransfer };
    /** Read a hold */
    "/v1/holds/{id}": { path: { id: string }; answer: Hold };
    /** List the prepared transactions of this coordinator's in every ledger's database */
    "/v1/in-doubt": { answer: Doubts };
    /** Check all balances against the entries */
    "/v1/integrity": { answer: Integrity };
    /** List API keys, oldest first */
    "/v1/keys": { query?: { limit?: number; after?: string }; answer: KeyList };
    /** See who holds, who waits, and for whom */
    "/v1/locks": { answer: Locks };
    /** List multi-draws, oldest first */
    "/v1/multidraws": { query?: { limit?: number; after?: string }; answer: MultidrawSummaryList };
    /** Read a multi-draw */
    "/v1/multidraws/{id}": { path: { id: string }; query?: { prize_results?: string }; answer: Multidraw };
    /** List a multi-draw's leaves in the public log */
    "/v1/multidraws/{id}/log": { path: { id: string }; query?: { limit?: number; after?: string }; answer: LogLeaves };
    /** Read the document that fairlead verify checks */
    "/v1/multidraws/{id}/proof": { path: { id: string }; answer: MultidrawProofDocument };
    /** List the draws so far, in order: integers, or prizes */
    "/v1/multidraws/{id}/results": { path: { id: string }; query?: { limit?: number; after?: string; prize_results?: string }; answer: DrawnResultList };
    /** List publications, oldest first */
    "/v1/publications": { query?: { limit?: number; after?: string; status?: string }; answer: PublicationList };
    /** Read a publication with its payload */
    "/v1/publications/{id}": { path: { id: string }; answer: Publication };
    /** List a publication's attempts in order */
    "/v1/publications/{id}/attempts": { path: { id: string }; query?: { limit?: number; after?: string }; answer: AttemptList };
    /** List operations of several steps, oldest first */
    "/v1/sagas": { query?: { limit?: number; after?: string; name?: string; status?: string; stuck?: boolean }; answer: SagaList };
    /** Read an operation of several steps */
    "/v1/sagas/{id}": { path: { id: string }; answer: Saga };
    /** List subscriptions, oldest first */
    "/v1/subscriptions": { query?: { limit?: number; after?: string }; answer: SubscriptionList };
    /** Read a subscription */
    "/v1/subscriptions/{id}": { path: { id: string }; answer: Subscription };
    /** List the topics that a subscription has come to, and how far */
    "/v1/subscriptions/{id}/topics": { path: { id: string }; query?: { limit?: number; after?: string }; answer: TopicProgressList };
    /** List targets, oldest first */
    "/v1/targets": { query?: { limit?: number; after?: string }; answer: TargetList };
    /** Read a target, and how it is slowed down */
    "/v1/targets/{id}": { path: { id: string }; answer: Target };
    /** Find the deposit, withdrawal or transfer that has completed with a reference */
    "/v1/transfers": { query?: { limit?: number; after?: string; reference?: string }; answer: TransferList };
    /** Read a transfer */
    "/v1/transfers/{id}": { path: { id: string }; answer: Transfer };
  };
  POST: {
    /** Open an account */
    "/v1/accounts": { body: CreateAccountRequest; answer: Account };
    /** Make an auction, pending */
    "/v1/auctions": { body: CreateAuctionRequest; answer: Auction };
    /** Bid, or raise the account's bid */
    "/v1/auctions/{id}/bids": { path: { id: string }; body: BidRequest; answer: Bid };
    /** End an auction, with every hold released */
    "/v1/auctions/{id}/cancel": { path: { id: string }; answer: Auction };
    /** Open the first round */
    "/v1/auctions/{id}/start": { path: { id: string }; answer: Auction };
    /** Make an automation: a rule that schedules drafts of a target */
    "/v1/automations": { body: AutomationRequest; answer: Automation };
    /** End an automation for good */
    "/v1/automations/{id}/cancel": { path: { id: string }; answer: Automation };
    /** Keep an automation from firing */
    "/v1/automations/{id}/pause": { path: { id: string }; answer: Automation };
    /** Let a paused automation fire again, from its next time on */
    "/v1/automations/{id}/resume": { path: { id: string }; answer: Automation };
    /** Make a campaign, pending */
    "/v1/campaigns": { body: CreateCampaignRequest; answer: Campaign };
    /** End a campaign that was not drawn, with refunds */
    "/v1/campaigns/{id}/cancel": { path: { id: string }; answer: Campaign };
    /** Ask for the draw: the same one for ever */
    "/v1/campaigns/{id}/draw": { path: { id: string }; answer: Draw };
    /** Open the sale */
    "/v1/campaigns/{id}/publish": { path: { id: string }; answer: Campaign };
    /** Buy a random free position */
    "/v1/campaigns/{id}/purchases": { path: { id: string }; body: PurchaseRequest; answer: Purchase };
    /** Execute up to 4,096 commands, each under its own key */
    "/v1/commands": { body: BatchRequest; answer: Batch };
    /** Execute, once, this ledger's leg of another server's transfer */
    "/v1/cross-legs": { body: CrossLegRequest; answer: CrossLeg };
    /** Move money between accounts of different ledgers */
    "/v1/cross-transfers": { body: CrossTransferRequest; answer: CrossTransfer };
    /** Give a pending transfer up: legs that are not done are cancelled, those that are done are undone */
    "/v1/cross-transfers/{id}/compensate": { path: { id: string }; answer: CrossTransfer };
    /** Let a pending transfer be tried at once */
    "/v1/cross-transfers/{id}/retry": { path: { id: string }; answer: CrossTransfer };
    /** Bring money in from the outside */
    "/v1/deposits": { body: MovementRequest; answer: Movement };
    /** Set money aside */
    "/v1/holds": { body: HoldRequest; answer: Hold };
    /** Pay from a hold; what is not captured is released */
    "/v1/holds/{id}/capture": { path: { id: string }; body: CaptureRequest; answer: Hold };
    /** Give a hold's money back */
    "/v1/holds/{id}/release": { path: { id: string }; answer: Hold };
    /** Let this log, which is a copy or was restored, end the coordinator's prepared transactions from now on */
    "/v1/in-doubt/adopt": { answer: Adoption };
    /** Register an API key by the hash of its secret */
    "/v1/keys": { body: CreateKeyRequest; answer: Key };
    /** Lock all of the keys or none, waiting in line if asked to */
    "/v1/locks": { body: LockRequest; answer: Lock };
    /** Renew a lock that is still held */
    "/v1/locks/{id}/renew": { path: { id: string }; body: RenewLockRequest; answer: Lock };
    /** Draw many times; 202 instead of 201 while the operation is running */
    "/v1/multidraws": { body: CreateMultidrawRequest; answer: Multidraw };
    /** Go on with an interrupted multi-draw, in the background */
    "/v1/multidraws/{id}/resume": { path: { id: string }; answer: Multidraw };
    /** End an interrupted or completed multi-draw; its draws stay readable */
    "/v1/multidraws/{id}/rollback": { path: { id: string }; answer: Multidraw };
    /** Make a publication: scheduled, or a draft without a time */
    "/v1/publications": { body: PublicationRequest; answer: Publication };
    /** Cancel a draft or a scheduled publication */
    "/v1/publications/{id}/cancel": { path: { id: string }; answer: Publication };
    /** Publish a draft or a scheduled publication now */
    "/v1/publications/{id}/publish": { path: { id: string }; answer: Publication };
    /** Attempt a failed publication anew */
    "/v1/publications/{id}/retry": { path: { id: string }; answer: Publication };
    /** Give a draft its time, or a scheduled publication another one */
    "/v1/publications/{id}/schedule": { path: { id: string }; body: ScheduleRequest; answer: Publication };
    /** Give a pending operation up: steps that are not done are cancelled, those that are done are undone */
    "/v1/sagas/{id}/compensate": { path: { id: string }; answer: Saga };
    /** Let a pending operation be tried at once */
    "/v1/sagas/{id}/retry": { path: { id: string }; answer: Saga };
    /** Subscribe a webhook to the events of topics */
    "/v1/subscriptions": { body: SubscriptionRequest; answer: Subscription };
    /** Keep a subscription's events back */
    "/v1/subscriptions/{id}/pause": { path: { id: string }; answer: Subscription };
    /** Deliver a topic's events after a number, again or for the first time */
    "/v1/subscriptions/{id}/replay": { path: { id: string }; body: ReplayRequest; answer: Subscription };
    /** Let a paused subscription's events go */
    "/v1/subscriptions/{id}/resume": { path: { id: string }; answer: Subscription };
    /** Make a target; its signing secret is shown this once */
    "/v1/targets": { body: CreateTargetRequest; answer: MadeTarget };
    /** Give a target new credentials, and resume it */
    "/v1/targets/{id}/credentials": { path: { id: string }; body: CredentialsRequest; answer: Target };
    /** Keep a target's publications back */
    "/v1/targets/{id}/pause": { path: { id: string }; answer: Target };
    /** Let a paused target's publications go */
    "/v1/targets/{id}/resume": { path: { id: string }; answer: Target };
    /** Replace a webhook's signing secret; the old one signs too for a while */
    "/v1/targets/{id}/secret": { path: { id: string }; body: RotateRequest; answer: MadeTarget };
    /** Move money between accounts */
    "/v1/transfers": { body: TransferRequest; answer: Transfer };
    /** Take money to the outside */
    "/v1/withdrawals": { body: MovementRequest; answer: Movement };
  };
  DELETE: {
    /** Revoke an API key; in force everywhere within 5 s */
    "/v1/keys/{id}": { path: { id: string }; answer: Key };
    /** Release a lock that is still held */
    "/v1/locks/{id}": { path: { id: string }; answer: undefined };
    /** End a subscription for good */
    "/v1/subscriptions/{id}": { path: { id: string }; answer: Subscription };
  };
}
