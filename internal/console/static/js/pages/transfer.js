import { fill } from "../dom.js";
import { get } from "../api.js";
import { card, copy, facts, head, watch } from "../ui.js";
import { badge, money, when } from "../format.js";
import { account } from "../names.js";

export default async function transfer(ctx) {
  const t = await get(`/v1/transfers/${ctx.params.id}`, ctx.signal);
  ctx.title("Transfer");
  fill(ctx.root, head(money(t.amount, t.currency), { crumb: ["Transfers", "/console/transfers"], badges: [badge(t.status)] }),
    card("Facts", facts([
      ["Kind", t.kind], ["From", account(t.from)], ["To", account(t.to)], ["Reason", t.reason], ["Memo", t.memo], ["Reference", t.reference], ["When", when(t.created_at)], ["Id", copy(t.id)],
    ])));
  watch(ctx, `/v1/transfers/${ctx.params.id}`, t);
}
