// What administrators did to one thing.
import { h } from "../dom.js";
import { card, list } from "../ui.js";
import { when } from "../format.js";
import { principal } from "../names.js";

export function trail(ctx, object) {
  return card("What was done to it", list(ctx, {
    caption: "Audit log of this object", none: "No administrative action is recorded.", limit: 10, prefix: "trail.",
    path: () => `/v1/admin/audit?object=${encodeURIComponent(object)}`,
    columns: [
      { name: "Action", lead: true, cell: (a) => h("code", {}, a.action) },
      { name: "By", cell: (a) => principal(a.principal) },
      { name: "When", cell: (a) => when(a.at) },
    ],
  }).element);
}
