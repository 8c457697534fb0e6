// Accounts of this ledger and of others.
import { h } from "./dom.js";

// local is this server's own ledger.
export const local = "local";

// end names an account and its ledger. Other ledgers' accounts are on their own servers.
export const end = (e) => h("div", {}, e.ledger === local ? h("a", { href: `/console/accounts/${encodeURIComponent(e.account)}` }, e.account) : e.account, h("span", { class: "soft" }, e.ledger === local ? " in this ledger" : ` in ledger ${e.ledger}`));
