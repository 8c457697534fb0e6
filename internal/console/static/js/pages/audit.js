import { h, fill } from "../dom.js";
import { card, head, list } from "../ui.js";
import { short, when } from "../format.js";
import { named, principal } from "../names.js";
import { query } from "../api.js";

export default async function audit(ctx) {
  fill(ctx.root, head("Audit log", { note: "Every administrative action, written in its own transaction. Narrow it by one of the three." }), card(null, list(ctx, {
    caption: "Audit log", none: "No action matches.",
    path: (f) => `/v1/admin/audit${query(f)}`,
    filters: [{ name: "action", label: "Action", placeholder: "campaign.cancel", clears: ["object", "principal"] }, { name: "object", label: "Object’s id", clears: ["action", "principal"] }, { name: "principal", label: "Principal", placeholder: "key:ID", clears: ["action", "object"] }],
    columns: [
      { name: "Action", lead: true, cell: (a) => h("code", {}, a.action) },
      { name: "Object", cell: (a) => named(a.object, a.action.split(".")[0]) },
      { name: "By", cell: (a) => principal(a.principal) },
      { name: "When", cell: (a) => when(a.at) },
      { name: "Request", cell: (a) => short(a.request_id) },
    ],
  }).element));
}
