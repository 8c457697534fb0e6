// What is said of a campaign's seal, in the console and in public: whether witnesses of the public log have seen it before the round.
import { h } from "./dom.js";
import { count } from "./format.js";

// sealWords spells it. due tells whether the round's time is over, before are the seconds from the last witness's signature to that time.
function sealWords({ due, witnesses, required, before }) {
  const seen = `${count(witnesses)} witness${witnesses === 1 ? "" : "es"}`;
  if (due && before !== null && witnesses >= required) return `Sealed ${count(before)} s before the round. Seen by ${seen}.`;
  if (due) return required > 0 ? `Sealed, but seen by ${count(witnesses)} of ${count(required)} required witnesses before the round.` : "Sealed. No witness of the public log has seen that before the round.";
  return required > 0 ? `Sealed; seen by ${count(witnesses)} of ${count(required)} required witnesses.` : `Sealed; seen by ${witnesses === 0 ? "no witness yet" : seen}.`;
}

// sealNote is the sentence, with the place where everybody can look it up.
export const sealNote = (seal) => h("p", { class: "soft sealed" }, sealWords(seal), " ", h("a", { href: "/log/checkpoint", target: "_blank", rel: "noopener" }, "The log’s checkpoint"));
