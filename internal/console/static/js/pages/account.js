import { h, fill } from "../dom.js";
import { get, query } from "../api.js";
import { action, card, copy, facts, head, list, watch } from "../ui.js";
import { badge, money, short, when } from "../format.js";
import { account, named } from "../names.js";
import { balanceChart } from "../history.js";
import { readable } from "../errors.js";
import { end } from "../ledgers.js";

export default async function page(ctx) {
  const id = ctx.params.id;
  const path = encodeURIComponent(id);
  ctx.title(id);
  // The system's own accounts, such as a campaign's escrow, have no route of their own: their entry in the list is the same.
  const itself = `/v1/admin/accounts?limit=1&prefix=${path}`;
  const accounts = await get(itself, ctx.signal);
  const found = accounts.items.find((a) => a.id === id);
  if (!found && !id.includes("/")) await get(`/v1/accounts/${path}`, ctx.signal); // It says what is wrong.
  const a = found;
  watch(ctx, itself, accounts);
  const spell = (n) => money(n, a.currency);
  const [what, of] = id.split("/");
  fill(ctx.root, head(id, { crumb: ["Accounts", "/console/accounts"], note: what === "escrow" && of && ["What the buyers of ", named(of, "campaign"), " have paid, until the draw or a cancellation."] }),
    a ? h("div", { class: "tiles sums" },
      [["Available", spell(a.available)], ["Held", spell(a.held)], ["In all", spell(a.available + a.held)]].map(([what, value]) => h("div", { class: "tile" }, h("div", { class: "what" }, what), h("div", { class: "value" }, value))))
      : h("p", { class: "note" }, what === "transit" ? `This is the way between this ledger and ledger ${of}: money that comes from there leaves it, money that goes there arrives at it. It has entries and no balance.` : "This is the outside of the books: money that comes in leaves it, money that goes out returns to it. It has entries and no balance."),
    a && balanceChart(ctx, a, spell),
    a && card("Open holds", list(ctx, {
      caption: "Open holds", none: "Nothing is held.", limit: 20, prefix: "holds.", path: () => `/v1/admin/accounts/${path}/holds`,
      columns: [
        { name: "Amount", lead: true, cell: (x) => spell(x.amount) },
        { name: "Placed by", cell: (x) => owner(x.owner) },
        { name: "Expires", cell: (x) => when(x.expires_at) },
        { name: "Placed", cell: (x) => when(x.created_at) },
        { name: "Hold", cell: (x) => short(x.id) },
        { name: "Actions", act: true, cell: (x) => x.owner === "" && action("Release", { title: "Release the hold", verb: `Release ${spell(x.amount)} to ${id}`, keep: "Keep the hold", explain: `${spell(x.amount)} become available to ${id} again.`, path: `/v1/holds/${x.id}/release`, audit: { object: x.id }, done: ctx.reload }) },
      ],
    }).element),
    a && !id.includes("/") && card("Standing bids", list(ctx, {
      caption: "Standing bids", none: "It has no bid in an auction under way.", limit: 20, prefix: "bids.", path: () => `/v1/accounts/${path}/bids`,
      columns: [
        { name: "Auction", lead: true, cell: (b) => named(b.auction, "auction") },
        { name: "Amount", num: true, cell: (b) => spell(b.amount) },
        { name: "Round", num: true, cell: (b) => b.round },
        { name: "Rank", num: true, cell: (b) => b.rank },
        { name: "Place", cell: (b) => (b.winning ? badge("winning", "good") : "behind") },
        { name: "Round ends", cell: (b) => when(b.round_ends_at) },
      ],
    }).element),
    a && !id.includes("/") && card("Purchases, newest first", list(ctx, {
      caption: "Purchases", none: "It has bought no position of a campaign.", limit: 10, prefix: "purchases.", path: () => `/v1/accounts/${path}/purchases`,
      columns: [
        { name: "Campaign", lead: true, cell: (p) => named(p.campaign, "campaign") },
        { name: "Position", cell: (p) => `layer ${p.position.layer}, number ${p.position.number}` },
        { name: "Price", num: true, cell: (p) => spell(p.price) },
        { name: "Purchase", cell: (p) => short(p.id) },
        { name: "When", cell: (p) => when(p.at) },
      ],
    }).element),
    a && !id.includes("/") && card("Transfers between ledgers, newest first", list(ctx, {
      caption: "Transfers between ledgers", none: "It has no transfer to or from another ledger.", limit: 10, prefix: "sagas.", path: () => `/v1/admin/sagas${query({ account: id })}`,
      columns: [
        { name: "Amount", lead: true, cell: (s) => h("a", { href: `/console/sagas/${s.id}` }, money(s.transfer.amount, s.transfer.currency)) },
        { name: "From", cell: (s) => end(s.transfer.from) },
        { name: "To", cell: (s) => end(s.transfer.to) },
        { name: "Status", cell: (s) => h("span", {}, badge(s.status), s.stuck && [" ", badge("stuck", "bad")]) },
        { name: "Reason", cell: (s) => (s.reason || s.last_error ? readable(s.last_error || s.reason) : h("span", { class: "soft" }, "–")) },
        { name: "Begun", cell: (s) => when(s.created_at) },
      ],
    }).element),
    card("Entries, newest first", list(ctx, {
      caption: "Entries", none: "No money has moved yet.", limit: 20, path: () => `/v1/admin/accounts/${path}/entries`,
      columns: [
        { name: "Amount", num: true, lead: true, cell: (e) => h("span", { class: e.amount < 0 ? "soft" : null }, money(e.amount, e.currency, true)) },
        { name: "Balance", num: true, cell: (e) => (e.balance === null ? "–" : money(e.balance, e.currency)) },
        { name: "Kind", cell: (e) => h("span", { class: "nowrap" }, e.kind) },
        { name: "With", cell: (e) => account(e.counterparty) },
        { name: "Memo", cell: memo },
        { name: "Transfer", cell: (e) => h("a", { href: `/console/transfers/${e.transfer}` }, short(e.transfer)) },
        { name: "When", cell: (e) => when(e.at) },
      ],
    }).element),
    a && card("Facts", facts([["Currency", a.currency], ["Version", a.version], ["Made", when(a.created_at)], ["Id", copy(a.id)]])));
}

// memo is an entry's memo. The ledger itself writes that of a step of a transfer between ledgers, which names its saga.
function memo(e) {
  const [what, saga] = e.memo.split(" ");
  if (e.kind === "cross" && saga) return h("span", {}, what, " ", h("a", { href: `/console/sagas/${saga}` }, short(saga)));
  return e.memo || h("span", { class: "soft" }, "–");
}

function owner(text) {
  const [kind, id] = text.split(":");
  if (kind === "auction" && id) return named(id, "auction");
  return text || "a client";
}
