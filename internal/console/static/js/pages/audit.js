import { h, fill } from "../dom.js";
import { card, head, list } from "../ui.js";
import { short, when } from "../format.js";
import { query } from "../api.js";

const homes = { campaign: "campaigns", auction: "auctions", publication: "publications", multidraw: "multidraws", automation: "automations", saga: "sagas" };

export default async function audit(ctx) {
  const object = (a) => {
    const home = homes[a.action.split(".")[0]];
    return home ? h("a", { href: `/console/${home}/${a.object}` }, short(a.object)) : short(a.object);
  };
  fill(ctx.root, head("Audit log", { note: "Every administrative action, written in its own transaction. Narrow it by one of the three." }), card(null, list(ctx, {
    caption: "Audit log", none: "Nothing is written down like that.",
    path: (f) => `/v1/admin/audit${query(f)}`,
    filters: [{ name: "action", label: "Action", placeholder: "campaign.cancel" }, { name: "object", label: "Object’s id" }, { name: "principal", label: "Principal", placeholder: "key:ID" }],
    columns: [
      { name: "Action", lead: true, cell: (a) => h("code", {}, a.action) },
      { name: "Object", cell: object },
      { name: "By", cell: (a) => a.principal },
      { name: "When", cell: (a) => when(a.at) },
      { name: "Request", cell: (a) => short(a.request_id) },
    ],
  }).element));
}
