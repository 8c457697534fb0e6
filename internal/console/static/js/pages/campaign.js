// A campaign: its triangle as it fills, its money, its draw, and the proof, verified here.
import { h, fill, text } from "../dom.js";
import { get, getBytes, query } from "../api.js";
import { action, card, copy, every, facts, head, list, problem, table, watch } from "../ui.js";
import { badge, count, money, share, short, when } from "../format.js";
import { triangle } from "../triangle.js";
import { follow } from "../live.js";
import { account } from "../names.js";
import { salesChart } from "../history.js";
import { show } from "../verify/viewer.js";
import { sealNote } from "../sealed.js";
import { trail } from "./trail.js";


export default async function campaign(ctx) {
  const base = `/v1/campaigns/${ctx.params.id}`;
  const [c, map] = await Promise.all([get(base, ctx.signal), get(`/v1/admin/campaigns/${ctx.params.id}/map`, ctx.signal)]);
  // The sales of a campaign that has ended may be archived.
  const stats = await get(`${base}/statistics`, ctx.signal).catch((e) => {
    if (e.status !== 404) throw e;
    return null;
  });
  const draw = c.status === "completed" ? await get(`${base}/draw`, ctx.signal) : null;
  ctx.title(c.name);
  const price = (p) => money(p, c.currency);
  const audit = { object: c.id };
  const actions = [];
  const act = (verb, label, explain, danger) => actions.push(action(label, { title: `${label}: ${c.name}`, explain, danger, ...words[verb], path: `${base}/${verb}`, audit, done: ctx.reload }));
  const words = {
    publish: { verb: "Open the sale", keep: "Keep the draft" }, draw: { verb: "Draw it now", keep: "Leave it undrawn" },
  };
  if (c.status === "pending") act("publish", "Open the sale", "Positions can be bought from then on. The prizes and the commitment are fixed.");
  if (c.status === "drawing") act("draw", "Recover the draw", "The campaign is sold out and was not drawn. This draws it now, once. If it was drawn in the meantime, you get that draw.");
  if (c.status === "pending" || c.status === "active") {
    // The dialog has the numbers of the moment, not those of when the page was opened.
    actions.push(action("Cancel", async () => {
      const { sold_positions: sold } = await get(base, ctx.signal);
      const { revenue } = await get(`${base}/statistics`, ctx.signal);
      return {
        title: `Cancel ${c.name}`, affects: sold, path: `${base}/cancel`, audit, done: ctx.reload,
        verb: sold > 0 ? `Cancel campaign and refund ${count(sold)} purchase${sold === 1 ? "" : "s"}, ${price(revenue)}` : "Cancel the campaign", keep: c.status === "active" ? "Keep selling" : "Keep the draft",
        explain: sold > 0 ? `Every buyer gets the money back: ${price(revenue)} for ${count(sold)} position${sold === 1 ? "" : "s"}, and more if more are sold until then. This can't be undone.` : "Nothing is sold. This can't be undone.",
      };
    }, { danger: true }));
  }
  if (c.status !== "pending") actions.push(h("a", { class: "button", href: `/p/campaigns/${c.id}`, target: "_blank", rel: "noopener" }, "Public page"));

  const drawing = triangle();
  drawing.draw(map, draw?.winners.map((w) => w.position) ?? []);
  const sold = h("span", {});
  const tellSold = () => text(sold, `${count(map.sold_positions)} of ${count(map.total_positions)} sold`);
  tellSold();
  const live = h("span", { class: "soft small", role: "status" });
  const revenue = h("span", {});
  const buyers = h("span", {});
  const tellSales = (s) => {
    text(revenue, price(s.revenue));
    text(buyers, s.buyers === 0 ? "none" : `${count(s.buyers)}, the largest with ${count(s.largest_buyer)}`);
  };
  if (stats) tellSales(stats);
  const layerTable = h("div", {});
  const layers = layerList(layerTable, price);
  layers(c);

  const sales = c.status === "pending" || !stats ? null : await salesChart(ctx, c);

  const b = c.beacon;
  const seal = b?.seen_by > 0 ? await get(`${base}/seal`, ctx.signal) : null;
  fill(ctx.root, head(c.name, { crumb: ["Campaigns", "/console/campaigns"], badges: [badge(c.status)], actions }),
    h("div", { class: "cols wide-left" },
      card(null, h("div", { class: "row spread" }, h("h2", {}, sold), live), drawing.element,
        h("p", { class: "legend" }, map.sold && h("span", { class: "sold" }, "sold"), map.sold && h("span", {}, "free"), draw && map.sold && h("span", { class: "won" }, "won"), !map.sold && `A layer is tinted by how much of it is sold: ${stats ? `${count(map.total_positions)} positions are too many for dots` : "its purchases are archived"}.`)),
      card("Facts", facts([
        ["Price", c.price === null ? "by layer" : price(c.price)],
        [c.status === "cancelled" ? "Refunded" : "Revenue", stats && revenue],
        ["Buyers", stats && buyers],
        ["Limit", c.purchase_limit === null ? "none" : `${count(c.purchase_limit)} an account`],
        ["Beneficiary", account(c.beneficiary)],
        ["Draw", c.beacon ? "by a public beacon" : c.draw],
        ["Made", when(c.created_at)],
        ["On sale", c.published_at && when(c.published_at)],
        ["Last sale", stats?.last_sale_at && when(stats.last_sale_at)],
        ["Purchases", !stats && "archived"],
        ["Drawn", c.completed_at && when(c.completed_at)],
        ["Cancelled", c.cancelled_at && when(c.cancelled_at)],
        ["Commitment", copy(c.commitment)],
        ["Id", copy(c.id)],
      ]))),
    sales?.element,
    b && card("The beacon", b.early && h("p", { class: "note warn" }, "The round was public before it was due by the database’s clock: somebody may have known it in advance."),
      b.root && sealNote({ due: b.status !== "waiting", witnesses: b.seen_by, required: c.witnesses, before: seal?.seconds_before ?? null }), facts([
      ["State", badge(b.status, { delayed: "bad", drawn: "good", waiting: "live" }[b.status])], ["Chain", b.chain], ["Round", b.round && count(b.round)], ["Due", b.due_at && when(b.due_at)], ["Sealed", b.sealed_at && when(b.sealed_at)],
      ["Witnesses required", c.witnesses || null], ["Seen", seal && when(seal.seen_at)], ["Entry in the public log", seal && h("a", { href: `${base}/seal` }, count(seal.index))],
      ["Failed attempts", b.attempts || null], ["The last came to", b.failure], ["Sealed root", b.root && copy(b.root)], ["Chain’s hash", copy(b.chain_hash)],
    ])),
    draw && proofCard(ctx, c, draw, base, !stats),
    h("div", { class: "cols" },
      card("Prizes", table([
        { name: "Prize", lead: true, cell: (p) => p.name },
        { name: "Layer", cell: (p) => (p.layer === null ? "any" : p.layer) },
        { name: "Winners", num: true, cell: (p) => count(p.quantity) },
      ], c.prizes, { caption: "Prizes" })),
      card("Layers", layerTable)),
    stats && card("Purchases, newest first", list(ctx, {
      caption: "Purchases", none: "No purchase matches.", limit: 10, path: (f) => `/v1/admin/campaigns/${c.id}/purchases${query(f)}`,
      empty: { says: "Nothing is sold yet.", curl: c.status === "active" && [`/v1/campaigns/${c.id}/purchases`, { account: "alice" }] },
      filters: [{ name: "account", label: "Account", placeholder: "alice" }],
      columns: [
        { name: "Account", lead: true, cell: (p) => account(p.account) },
        { name: "Position", cell: (p) => `layer ${p.position.layer}, number ${p.position.number}` },
        { name: "Price", num: true, cell: (p) => price(p.price) },
        { name: "Purchase", cell: (p) => short(p.id) },
      ],
    }).element),
    trail(ctx, c.id));

  watch(ctx, base, c, (d) => [d.status, d.beacon]);
  if (c.status === "active" || c.status === "drawing") {
    every(ctx, 5000, async () => {
      const [c, stats] = await Promise.all([get(base, ctx.signal), get(`${base}/statistics`, ctx.signal)]);
      tellSales(stats);
      layers(c);
    }, { later: true });
    // A sale's event has the number of the sale, so that the stream goes on exactly where the map ends.
    follow(`campaign:${c.id}`, {
      since: map.sold_positions, signal: ctx.signal, state: (s) => text(live, s === "live" ? "live" : "reconnecting…"),
      on: (e) => {
        if (e.type === "purchase.made") {
          drawing.sell(e.data.position.layer, e.data.position.number);
          tellSold();
          sales?.sold(e.seq, e.at);
        }
        if (e.type === "draw.completed") ctx.reload();
      },
    });
  }
}

// layerList returns what draws a campaign's layers into place: the first of them, or all if somebody has asked for them.
function layerList(place, price) {
  const columns = [
    { name: "Layer", lead: true, cell: (l) => `Layer ${l.layer}` },
    { name: "Sold", cell: (l) => h("span", { class: "nowrap" }, share(l.sold, l.positions), ` ${count(l.sold)} of ${count(l.positions)}`) },
    { name: "Price", num: true, cell: (l) => price(l.price) },
  ];
  const few = 12;
  let all = false;
  return function draw(c) {
    const most = all ? 1000 : c.layers.length <= few ? few : 5;
    fill(place, table(columns, c.layers.slice(0, most), { caption: "Layers" }),
      !all && c.layers.length > most && h("button", { type: "button", class: "quiet", onclick: () => { all = true; draw(c); } }, `Show all ${count(c.layers.length)} layers`));
  };
}

function proofCard(ctx, c, draw, base, archived) {
  const result = h("div", { id: "proof" });
  const button = h("button", { type: "button", class: "primary", onclick: async () => {
    button.disabled = true;
    try {
      await show(result, await getBytes(`${base}/proof`, ctx.signal), { commitment: c.commitment, signal: ctx.signal });
    } catch (e) {
      if (e.name !== "AbortError") fill(result, problem(e));
    }
    button.disabled = false;
  } }, "Verify in this browser");
  const shown = draw.winners.slice(0, 50);
  return h("section", { class: "card stack" },
    h("div", { class: "row spread" }, h("h2", {}, `The draw: ${count(draw.winners.length)} winner${draw.winners.length === 1 ? "" : "s"}`),
      !archived && h("div", { class: "actions" }, button, h("a", { class: "button", href: `${base}/proof`, download: `proof-${c.id}.json` }, "Download the proof"))),
    archived ? h("p", { class: "note" }, "The purchases are archived. The proof is made of their file, by ", h("code", {}, `fairlead archive proof ${c.id} --archives DIRECTORY`), ".") : result,
    table([
      { name: "Prize", lead: true, cell: (w) => w.prize },
      { name: "Account", cell: (w) => account(w.account) },
      { name: "Position", cell: (w) => `layer ${w.position.layer}, number ${w.position.number}` },
    ], shown, { caption: "Winners" }),
    draw.winners.length > shown.length && h("p", { class: "soft small" }, `The first ${shown.length}; the proof has all.`),
    facts([["Sealed root", copy(draw.root)]]));
}
