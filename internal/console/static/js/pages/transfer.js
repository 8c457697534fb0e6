import { fill } from "../dom.js";
import { get } from "../api.js";
import { card, copy, facts, head, table, watch } from "../ui.js";
import { badge, money, when } from "../format.js";
import { account } from "../names.js";

export default async function transfer(ctx) {
  const t = await get(`/v1/transfers/${ctx.params.id}`, ctx.signal);
  ctx.title("Transfer");
  const legs = t.legs ?? [];
  const several = legs.length > 1; // From, to and amount are then those of one leg.
  fill(ctx.root, head(several ? `${legs.length} legs` : money(t.amount, t.currency), { crumb: ["Transfers", "/console/transfers"], badges: [badge(t.status)] }),
    card("Facts", facts([
      ["Kind", t.kind], ...several ? [] : [["From", account(t.from)], ["To", account(t.to)]], ["Reason", t.reason], ["Memo", t.memo], ["Reference", t.reference], ["When", when(t.created_at)], ["Id", copy(t.id)],
    ])),
    legs.length ? card("Legs", table([
      { name: "From", cell: (l) => account(l.from) }, { name: "To", cell: (l) => account(l.to) },
      { name: "Amount", num: true, cell: (l) => l.currency ? money(l.amount, l.currency) : String(l.amount) },
    ], legs, { caption: "Legs, in order" })) : null);
  watch(ctx, `/v1/transfers/${ctx.params.id}`, t);
}
