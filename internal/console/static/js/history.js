// Charts of one thing over time: an account's balance, a campaign's sales.
import { get } from "./api.js";
import { card, every } from "./ui.js";
import { count } from "./format.js";
import { h, text } from "./dom.js";
import { plot } from "./plot.js";

const seconds = (iso) => Date.parse(iso) / 1000;

// balanceChart follows an account's balance over the last hour.
export function balanceChart(ctx, account, spell) {
  const chart = plot({
    label: `Balance of ${account.id} over the last hour`, spell: (v) => spell(Math.round(v)).replace(/ [A-Z0-9]+$/, ""), height: 180,
    series: [{ name: "available and held", colour: "--accent", style: "step", fill: true, spell }],
  });
  const note = h("p", { class: "small soft" });
  every(ctx, 10_000, async () => {
    const b = await get(`/v1/admin/accounts/${encodeURIComponent(account.id)}/balances`, ctx.signal);
    const points = [[b.from, b.opening], ...b.balances.map((x) => [x.at, x.balance]), [b.to, b.balances.at(-1)?.balance ?? b.opening]];
    chart.set([points.map(([at]) => seconds(at)), points.map(([, v]) => v)], { describe: `From ${spell(b.opening)} to ${spell(points.at(-1)[1])}` });
    text(note, b.balances.length >= 1000 ? "The newest 1,000 entries." : `${count(b.balances.length)} entr${b.balances.length === 1 ? "y" : "ies"} in the last hour.`);
  }, { shows: chart.element });
  return card("Balance over the last hour", chart.element, note);
}

// salesChart shows a campaign's sales over time and returns { element, sold(n, at) }, which takes further sales.
export async function salesChart(ctx, campaign) {
  const chart = plot({
    label: "Positions sold over time", spell: (v) => count(Math.round(v)), height: 180, from: 0, whole: true,
    series: [{ name: "sold", colour: "--accent", style: "step", fill: true }],
  });
  const s = await get(`/v1/admin/campaigns/${campaign.id}/sales`, ctx.signal);
  const sales = s.sales.map((x) => [seconds(x.at), x.sold]);
  const began = campaign.published_at ? seconds(campaign.published_at) : null;
  let waiting = 0;
  const draw = () => {
    waiting = 0;
    const points = sales.length > 0 && began !== null && began < sales[0][0] ? [[began, 0], ...sales] : sales;
    chart.set(points.length > 0 ? [points.map(([at]) => at), points.map(([, n]) => n)] : [[]], {
      empty: "Nothing is sold yet.", describe: points.length > 0 ? `${count(points.at(-1)[1])} of ${count(s.total)} sold` : "",
    });
  };
  draw();
  return {
    element: card("Sales over time", chart.element, s.sold > s.sales.length && h("p", { class: "small soft" }, `A sample of ${count(s.sales.length)} of ${count(s.sold)} sales.`)),
    sold(n, at) {
      if (n <= (sales.at(-1)?.[1] ?? 0)) return;
      sales.push([seconds(at), n]);
      waiting ||= setTimeout(draw, 1000);
    },
  };
}
