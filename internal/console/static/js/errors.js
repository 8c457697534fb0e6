// What went wrong in a step, in words for somebody who did not write it.
import { h } from "./dom.js";

const reasons = {
  insufficient_funds: "The account has too little money.",
  account_not_found: "There is no such account in this ledger.",
  currency_mismatch: "The two accounts have different currencies.",
  balance_overflow: "The balance would be too large.",
  cancelled: "An operator gave it up.",
  deadline_exceeded: "It took too long, and was given up.",
  two_phase_unavailable: "A ledger’s database takes no prepared transactions.",
};

const failures = [
  [/connection refused/i, "The ledger’s server refuses connections. Does it run?"],
  [/no such host|server misbehaving|could not be resolved/i, "The name of the ledger’s server can’t be resolved (DNS)."],
  [/x509|certificate|tls:/i, "No secure connection can be made with the ledger’s server (TLS)."],
  [/deadline exceeded|timeout|timed out|in time/i, "The ledger did not answer in time."],
  [/\b401\b|unauthorized/i, "The ledger’s server does not accept the key that it is given."],
  [/\b403\b|forbidden/i, "The ledger’s server does not permit this with the key that it is given."],
  [/another (database )?session|row_locked|is locked/i, "Another database session has locked a row that it needs."],
  [/connection reset|broken pipe|EOF|could not be reached/i, "The connection to the ledger broke."],
];

// readable spells an error: a sentence, and the text itself for those who want it. A text that is not known is shown as it is.
export function readable(text) {
  const known = reasons[text.replace(/^(saga: )?step \S+ was refused: /, "")] ?? failures.find(([pattern]) => pattern.test(text))?.[1];
  if (!known) return h("span", { class: "break" }, text.replace(/^saga: /, ""));
  return h("span", { class: "lines" }, known, h("details", { class: "small soft" }, h("summary", {}, "As logged"), h("code", { class: "break" }, text)));
}
