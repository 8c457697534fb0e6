// Any proof, from a file: nothing of it leaves the browser.
import { h, fill } from "../dom.js";
import { card, head } from "../ui.js";
import { show } from "../verify/viewer.js";

export default async function verify(ctx) {
  const result = h("div");
  const commitment = h("input", { name: "commitment", pattern: "[0-9a-f]{64}", autocomplete: "off", spellcheck: "false", placeholder: "64 hexadecimal digits" });
  const file = h("input", { name: "file", type: "file", accept: ".json,application/json", required: true });
  fill(ctx.root, head("Verify a proof", { note: "Recomputes a draw from its proof document, here. The file is not sent anywhere." }),
    card(null, h("form", { class: "filters", onsubmit: async (e) => {
      e.preventDefault();
      const bytes = new Uint8Array(await file.files[0].arrayBuffer());
      await show(result, bytes, { commitment: commitment.value.trim() || undefined, signal: ctx.signal });
    } }, h("label", { class: "wide" }, "Proof document", file), h("label", { class: "wide" }, "Commitment that was published (optional)", commitment), h("button", { type: "submit", class: "primary" }, "Verify")), result));
}
