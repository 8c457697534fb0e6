import { h, fill } from "../dom.js";
import { head, card, list, making } from "../ui.js";
import { badge, count, short, when } from "../format.js";
import { get, query } from "../api.js";
import { causes } from "./targets.js";

const s = (n) => (n === 1 ? "publication" : "publications");

export default async function publications(ctx) {
  const targets = async (signal) => (await get("/v1/targets?limit=200", signal)).items.map((t) => t.name);
  fill(ctx.root, head("Publications", { actions: [making("New publication", "publication")] }), card(null, list(ctx, {
    caption: "Publications", none: "No publication matches.",
    empty: {
      says: "A publication is sent to its target at its time, and tried again where that fails. There is none yet.", make: ["New publication", "/console/new/publication"],
      curl: ["/v1/publications", { target: "newsroom", publish_at: new Date().toISOString(), payload: { title: "Hello" } }],
    },
    path: (f) => `/v1/admin/publications${query(f)}`,
    filters: [
      { name: "status", label: "Status", options: ["draft", "scheduled", "publishing", "published", "failed", "cancelled"], clears: ["error", "cause"] }, { name: "target", label: "Target", suggest: targets },
      { name: "error", label: "Last error", placeholder: "the target answered 404", clears: ["status", "cause"] },
      { name: "cause", label: "Cause of the failure", options: Object.keys(causes), words: causes, clears: ["status", "error"] },
    ],
    select: {
      label: (p) => `…${p.id.slice(-12)} to ${p.target}`,
      actions: [
        { label: "Retry", can: (p) => p.status === "failed", title: (n) => `Retry ${count(n)} ${s(n)}`, keep: "Leave them failed", explain: "Each is due at once, with a full set of attempts.", path: (p) => `/v1/publications/${p.id}/retry` },
        { label: "Cancel", danger: true, can: (p) => p.status === "draft" || p.status === "scheduled", title: (n) => `Cancel ${count(n)} ${s(n)}`, keep: "Keep them", explain: "They are never sent. This can’t be undone.", path: (p) => `/v1/publications/${p.id}/cancel` },
      ],
    },
    columns: [
      { name: "Publication", lead: true, cell: (p) => h("a", { href: `/console/publications/${p.id}` }, short(p.id)) },
      { name: "Target", cell: (p) => h("a", { href: `/console/publications${query({ target: p.target })}` }, p.target) },
      { name: "Status", cell: (p) => badge(p.status) },
      { name: "Attempts", num: true, cell: (p) => p.attempts },
      { name: "Due", cell: (p) => when(p.next_attempt_at ?? p.actual_publish_at) },
      { name: "Last error", cell: (p) => (p.status === "failed" && p.last_error ? h("a", { href: `/console/publications${query({ error: p.last_error })}`, title: "All with this error" }, p.last_error) : p.last_error ?? h("span", { class: "soft" }, "–")) },
    ],
  }).element));
}
