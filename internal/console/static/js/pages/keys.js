import { h, fill } from "../dom.js";
import { action, button, card, confirm, copy, head, list } from "../ui.js";
import { badge, when } from "../format.js";
import { sha256 } from "../verify/sha256.js";
import { hex } from "../verify/verify.js";

// make generates a secret here: the server learns its hash alone.
function make(role) {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const text = btoa(String.fromCharCode(...random)).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  return `fl_${role}_${text}`;
}

export default async function keys(ctx) {
  const shown = h("div");
  const create = (role, label) => button(label, () => {
    const secret = make(role);
    confirm({
      title: `New ${role} key`, verb: "Make the key", keep: "Make none", path: "/v1/keys", fields: [{ name: "name", label: "What it is for", required: true, placeholder: "checkout service" }],
      explain: { admin: "It may do everything, this console included.", service: "It may act for every account, and administer nothing.", reader: "It may read everything, this console included, and change nothing." }[role],
      body: (f) => ({ role, name: f.name, hash: hex(sha256(new TextEncoder().encode(secret))) }),
      audit: { action: "key.create" },
      done: (k) => {
        all.reload();
        fill(shown, h("div", { class: "note good stack" }, h("p", {}, `The key “${k.name}” is shown once, here and now:`), copy(secret)));
      },
    });
  });
  const all = list(ctx, {
    caption: "API keys", path: () => "/v1/admin/keys",
    columns: [
      { name: "Name", lead: true, cell: (k) => k.name },
      { name: "Role", cell: (k) => k.role },
      { name: "State", cell: (k) => (k.revoked_at ? badge("revoked", "") : badge("in force", "good")) },
      { name: "Made", cell: (k) => when(k.created_at) },
      { name: "Revoked", cell: (k) => when(k.revoked_at) },
      { name: "Actions", act: true, cell: (k) => !k.revoked_at && action("Revoke", { title: `Revoke ${k.name}`, verb: `Revoke ${k.name}`, keep: "Keep the key", explain: `${`key:${k.id}` === ctx.me.principal ? "This is the key that you are signed in with. " : ""}It is refused everywhere within 5 seconds, for good.`, danger: true, method: "DELETE", path: `/v1/keys/${k.id}`, audit: { object: k.id }, done: () => all.reload() }) },
    ],
  });
  fill(ctx.root, head("API keys", { actions: [create("service", "New service key"), create("reader", "New reader key"), create("admin", "New admin key")] }), shown, card(null, all.element));
}
