// What an operator makes by hand: accounts, campaigns, auctions, targets and publications.
import { h, fill } from "../dom.js";
import { get } from "../api.js";
import { card, copy, head } from "../ui.js";
import { money } from "../format.js";
import { makingForm } from "../forms.js";
import { here, zone } from "../zone.js";

const targets = async (signal) => (await get("/v1/targets?limit=200", signal)).items.map((t) => t.name);
const accounts = async (signal) => (await get("/v1/admin/accounts?limit=200", signal)).items.map((a) => a.id).filter((id) => !id.includes("/"));

const currency = { name: "currency", label: "Currency", required: true, value: "EUR", pattern: "[A-Z][A-Z0-9]{2,11}", title: "Upper-case letters and digits, such as EUR", codes: ["currency_mismatch"] };
const payee = (name, label, hint) => ({ name, label, required: true, suggest: accounts, codes: ["not_found"], hint });
// An amount is typed as the API has it, in minor units, and shown as money beneath.
const amount = (f) => ({ type: "whole", ...f, hint: (v, form) => (v ? `${money(v, form.currency ?? "")}, given in minor units` : f.hint ?? "In minor units, such as cents: 250 is 2.50.") });
const span = { pattern: "([0-9]+(\\.[0-9]+)?(ns|us|µs|ms|s|m|h))+|0", title: "A duration, such as 30m or 1.5s" };

const kinds = {
  account: {
    title: "New account", crumb: ["Accounts", "/console/accounts"], path: "/v1/accounts", verb: "Make the account", home: (a) => `/console/accounts/${encodeURIComponent(a.id)}`,
    fields: [
      { name: "id", label: "Id", required: true, most: 64, pattern: "[A-Za-z0-9._:@\\-]+", title: "Letters, digits and . _ : @ -", hint: "Up to 64 letters, digits and . _ : @ -, such as a user’s id of yours.", codes: ["account_exists"] },
      { ...currency, hint: "An account has one currency, for good." },
    ],
  },
  campaign: {
    title: "New campaign", crumb: ["Campaigns", "/console/campaigns"], path: "/v1/campaigns", verb: "Make the campaign", home: (c) => `/console/campaigns/${c.id}`,
    note: "It is a draft until you open its sale. Its positions are laid out as a triangle: layer 1 has one, and each further layer one more.",
    fields: [
      { name: "name", label: "Name", required: true, most: 200 },
      { name: "base_length", label: "Layers", type: "whole", required: true, says: ["the number of layers", "the number of positions", "exactly one"], hint: (n) => (n ? `${(n * (n + 1)) / 2} positions: the last layer has ${n}.` : "4 layers make 1 + 2 + 3 + 4 = 10 positions.") },
      currency,
      amount({ name: "price", label: "Price of a position", required: true, says: ["the total of all prices"] }),
      payee("beneficiary", "Paid to", "The account that gets the money when the campaign is drawn."),
      { name: "purchase_limit", label: "Positions an account may buy", type: "whole", hint: "No limit when empty." },
      { name: "draw", label: "Draw", type: "choice", value: "instant", options: [["instant", "At the last sale, by the seed"], ["beacon", "By a public beacon, after the last sale"]], codes: ["beacon_unavailable"], required: true },
      { name: "witnesses", label: "Witnesses of the seal", type: "whole", when: (v) => v.draw === "beacon", codes: ["witnesses_unavailable"], hint: "How many witnesses of the public log must have seen the seal before the round. None when empty." },
      { name: "prizes", label: "Prizes", add: "Add a prize", least: 1, says: ["the number of prizes", "prize names"], codes: ["too_many_prizes"], each: [
        { name: "name", label: "Prize", required: true, says: ["a prize's name"], most: 200 },
        { name: "quantity", label: "Winners", type: "whole", required: true, value: "1", says: ["a prize's quantity"] },
        { name: "layer", label: "Of layer", type: "whole", says: ["a prize's layer"], hint: "Any when empty." },
      ] },
    ],
  },
  auction: {
    title: "New auction", crumb: ["Auctions", "/console/auctions"], path: "/v1/auctions", verb: "Make the auction", home: (a) => `/console/auctions/${a.id}`,
    note: "Nobody can bid before you start it.",
    fields: [
      { name: "title", label: "Title", required: true, most: 500 },
      currency,
      payee("seller", "Seller", "The account that gets the winning bids. It cannot bid."),
      amount({ name: "min_bid", label: "Least bid", value: "1", required: true }),
      amount({ name: "min_increment", label: "Least raise", value: "1", required: true }),
      { name: "cooldown", label: "Pause between two bids of an account", value: "1s", ...span, hint: "Such as 1s; 0s is none." },
      { name: "unique_amounts", label: "No two active bids of the same amount", type: "check", value: true },
      { name: "rounds", label: "Rounds", add: "Add a round", least: 1, says: ["the number of rounds"], each: [
        { name: "winners", label: "Winners", type: "whole", required: true, value: "1", says: ["a round's winners"] },
        { name: "duration", label: "Lasts", required: true, value: "30m", ...span, says: ["a round's duration"] },
      ] },
      { name: "anti_snipe", label: "Late bids", note: "A bid in the last moments moves the end. Leave all three empty for an end that nothing moves.", of: [
        { name: "window", label: "In the last", ...span, placeholder: "1m", says: ["anti_snipe's window"] },
        { name: "extension", label: "By", ...span, placeholder: "30s", says: ["anti_snipe's extension"] },
        { name: "max_extensions", label: "Times at most", type: "whole", placeholder: "10", says: ["anti_snipe's max_extensions"] },
      ] },
    ],
  },
  target: {
    title: "New target", crumb: ["Targets", "/console/targets"], path: "/v1/targets", verb: "Make the target", home: (t) => `/console/targets/${t.id}`, secret: true,
    note: "Where publications are sent.",
    fields: [
      { name: "name", label: "Name", required: true, most: 200, codes: ["target_exists"] },
      { name: "kind", label: "Kind", type: "choice", value: "webhook", required: true, options: [["webhook", "A webhook: a signed POST"], ["deviantart", "DeviantArt"]] },
      { name: "url", label: "URL", placeholder: "https://example.com/hooks/fairlead", most: 2000, required: true, when: (v) => v.kind !== "deviantart", hint: "http or https. Addresses of private networks are refused unless the server allows them.", says: ["the URL"] },
      { name: "timeout", label: "Longest attempt", value: "30s", ...span, hint: "From 1s to 15m, uploads included." },
      { name: "config", label: "Credentials", when: (v) => v.kind === "deviantart", of: [
        { name: "client_id", label: "Client id", required: true, says: ["config's client_id"] }, { name: "client_secret", label: "Client secret", secret: true, required: true }, { name: "refresh_token", label: "Refresh token", secret: true, required: true },
      ] },
    ],
  },
  publication: {
    title: "New publication", crumb: ["Publications", "/console/publications"], path: "/v1/publications", verb: "Make the publication", home: (p) => `/console/publications/${p.id}`,
    fields: [
      { name: "target", label: "Target", required: true, suggest: targets, codes: ["not_found"] },
      { name: "publish_at", label: "Publish at", type: "time", hint: () => `In ${zone() ?? here}. A time in the past is now; without one it stays a draft.` },
      { name: "jitter", label: "Jitter", ...span, placeholder: "30s", hint: "A random part of this, up to 5m, is added to the time." },
      { name: "payload", label: "Payload", type: "json", required: true, value: '{\n  "title": ""\n}', hint: "Any JSON: a webhook gets it as it is." },
    ],
  },
};

export default async function make(ctx) {
  const kind = kinds[ctx.params.kind];
  if (!kind) return fill(ctx.root, head("There is no such form"));
  ctx.title(kind.title);
  const place = h("div");
  fill(ctx.root, head(kind.title, { crumb: kind.crumb, note: kind.note }), card(null, place));
  fill(place, makingForm(ctx, {
    ...kind,
    done: (thing) => {
      if (!kind.secret || !thing.secret) return ctx.go(kind.home(thing));
      fill(place, h("div", { class: "stack" },
        h("div", { class: "note good stack" }, h("p", {}, `${thing.name} is made. Its signing secret is shown once, here and now:`), copy(thing.secret)),
        h("p", {}, h("a", { href: kind.home(thing) }, "To the target"))));
    },
  }));
}
