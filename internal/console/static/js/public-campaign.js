// The public page of a campaign: how far the sale is, who has won, and an entrant's own proof.
import { h, fill, text } from "./dom.js";
import { getBytes } from "./api.js";
import { card, copy, facts, table } from "./ui.js";
import { badge, count, when } from "./format.js";
import { triangle } from "./triangle.js";
import { verifyInclusion } from "./verify/verify.js";
import { show } from "./verify/viewer.js";
import { sealNote } from "./sealed.js";
import { aliasField, id, isMine, remember, run, shortAlias } from "./public.js";

const words = { active: "on sale", drawing: "sold out, being drawn", completed: "drawn", cancelled: "cancelled, everything is refunded" };

function build(main, first) {
  document.title = first.name;
  const sold = h("p", { class: "big", role: "status" });
  const status = h("span");
  const sealed = h("div");
  const drawing = triangle();
  const outcome = h("div", { class: "stack-small" });
  const mine = h("input", { name: "alias", autocomplete: "off", spellcheck: "false", value: remember.get("alias") });
  const position = h("input", { name: "position", autocomplete: "off", spellcheck: "false", placeholder: "the position’s id, from your purchase", pattern: "[0-9a-f\\-]{36}", required: true });
  const included = h("div", { role: "status" });
  const file = h("input", { name: "proof", type: "file", accept: ".json,application/json", required: true });
  const verdict = h("div");
  let last = first;

  mine.addEventListener("input", () => {
    remember.set("alias", mine.value.trim());
    winners(last);
  });

  function winners(s) {
    const me = mine.value.trim();
    const won = s.winners.some((w) => isMine(w.alias, me));
    fill(outcome, s.status !== "completed" ? h("p", { class: "soft" }, s.status === "cancelled" ? "There was no draw." : "The winners are drawn when the last position is sold.") : [
      me && h("p", { class: `note ${won ? "good" : ""}` }, won ? `You have won (${shortAlias(me)}).` : `You are ${shortAlias(me)}, and have not won this time.`),
      table([
        { name: "Prize", lead: true, cell: (w) => w.prize },
        { name: "Winner", cell: (w) => h("code", {}, shortAlias(w.alias)) },
        { name: "Position", cell: (w) => `layer ${w.position.layer}, number ${w.position.number}` },
      ], s.winners.slice(0, 200), { caption: "Winners", row: (w) => (isMine(w.alias, me) ? "me" : null) }),
    ]);
  }

  async function include(e) {
    e.preventDefault();
    try {
      const bytes = await getBytes(`/p/campaigns/${id}/positions/${encodeURIComponent(position.value.trim())}`);
      const p = JSON.parse(new TextDecoder().decode(bytes));
      fill(included, h("p", { class: "note good" }, `The server says: position ${p.position.layer}/${p.position.number} of ${shortAlias(p.position.alias)} was sealed, as number ${count(p.index + 1)} of ${count(p.size)} under the root. Its proof names the account, so it is its owner’s: GET /v1/campaigns/ID/proof/positions/POSITION. It can be verified below.`));
    } catch (error) {
      const missing = error.message.includes("archived") ? "This campaign’s sales are archived, so this page can’t find positions. The operator can still make the proof of the draw." : "There is no such position in this campaign.";
      fill(included, h("p", { class: "note" }, error.code === "not_drawn" ? "The positions are sealed when the last one is sold." : error.status === 404 ? missing : error.message));
    }
  }

  fill(main,
    h("header", { class: "public-head" }, status, h("h1", {}, first.name), sold, sealed),
    h("section", { class: "card", "aria-label": "Positions" }, drawing.element, h("p", { class: "legend" }, first.map.sold && [h("span", { class: "sold" }, "sold"), h("span", {}, "free"), h("span", { class: "won" }, "won")])),
    h("div", { class: "two" },
      card("Prizes", table([
        { name: "Prize", lead: true, cell: (p) => p.name },
        { name: "From", cell: (p) => (p.layer === null ? "any layer" : `layer ${p.layer}`) },
        { name: "Winners", num: true, cell: (p) => count(p.quantity) },
      ], first.prizes, { caption: "Prizes" })),
      h("section", { class: "card asks" }, h("h2", {}, "Winners"), aliasField(mine), outcome)),
    h("section", { class: "card asks" }, h("h2", {}, "Check it yourself"),
      h("p", { class: "soft" }, "The commitment was fixed before the first sale. The draw follows from the secret behind it and from the positions sold, with no choice left."),
      facts([["Commitment", copy(first.commitment)]]),
      h("form", { class: "line", onsubmit: include }, h("label", {}, "Was my position in the draw?", position), h("button", { type: "submit" }, "Check")), included,
      h("form", { class: "line", onsubmit: async (e) => {
        e.preventDefault();
        const bytes = new Uint8Array(await file.files[0].arrayBuffer());
        const v = verifyInclusion(bytes, last.root ?? undefined);
        if (!v.valid) return show(verdict, bytes, { commitment: first.commitment });
        fill(verdict, h("p", { class: "note good", "data-verdict": "valid" }, `Position ${v.document.position.layer}/${v.document.position.number} of ${v.document.position.account} was sealed: it is number ${count(v.document.index + 1)} of ${count(v.document.size)} under the root. Recomputed in this browser.`));
      } }, h("label", {}, "Do you have a proof, of the draw or of your position?", file), h("button", { type: "submit" }, "Verify")), verdict),
    h("footer", { class: "foot" }, h("span", {}, "On sale since ", when(first.published_at)), h("a", { href: "/p/check" }, "How you can check this draw"), h("span", {}, "Read-only. Accounts appear by alias.")));

  return (s) => {
    last = s;
    fill(status, badge(words[s.status] ?? s.status, { active: "live", completed: "good", drawing: "warn" }[s.status] ?? ""));
    text(sold, `${count(s.map.sold_positions)} of ${count(s.map.total_positions)} sold`);
    fill(sealed, s.seal && sealNote({ ...s.seal, before: s.seal.seconds_before }));
    drawing.draw(s.map, s.winners.map((w) => w.position));
    winners(s);
    return s.status === "active" || s.status === "drawing";
  };
}

run("campaigns", build);
