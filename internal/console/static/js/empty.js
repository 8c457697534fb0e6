// What an empty list says: what would be in it, and how it gets there.
import { h } from "./dom.js";
import { copy } from "./ui.js";

// empty explains: says is a sentence; make is [label, path] of a page that makes one; curl is [path, body] of the request that does.
export function empty({ says, make, curl, docs = "/docs" }) {
  return h("div", { class: "empty explained" },
    h("p", {}, says),
    make && h("p", {}, h("a", { class: "button primary", href: make[1] }, make[0])),
    curl && h("p", { class: "small" }, make ? "Or by a request:" : "By a request:"),
    curl && copy(command(...curl), h("pre", { tabindex: 0 }, command(...curl))),
    h("p", { class: "small" }, h("a", { href: docs, target: "_blank", rel: "noopener" }, "All requests"), " are in the server’s own documentation."));
}

const command = (path, body) => [
  `curl ${location.origin}${path}`, `-H "Authorization: Bearer $FAIRLEAD_KEY"`, `-H "Idempotency-Key: $(uuidgen)"`, `-d '${JSON.stringify(body)}'`,
].join(" \\\n  ");
