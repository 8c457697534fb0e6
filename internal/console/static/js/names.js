// Names beside ids. All ids that a page shows are asked for at once.
import { h, add } from "./dom.js";
import { get } from "./api.js";
import { short } from "./format.js";

const homes = { campaign: "campaigns", position: "campaigns", auction: "auctions", publication: "publications", multidraw: "multidraws", automation: "automations", subscription: "subscriptions", saga: "sagas", target: "targets", transfer: "transfers", account: "accounts", hold: "accounts" };

// home is the page of a thing; undefined where it has none.
export function home(kind, id) {
  if (homes[kind]) return `/console/${homes[kind]}/${encodeURIComponent(id)}`;
  return { key: "/console/keys", lock: "/console/locks" }[kind];
}

const most = 200; // ids that the server names at once
const known = new Map(); // id → { kind, title }, or null where nothing has the id
let asked = new Map(); // id → what waits for its name

function name(id, tell) {
  if (known.has(id)) return void (known.get(id) && tell(known.get(id)));
  if (asked.size === 0) setTimeout(ask);
  asked.set(id, [...(asked.get(id) ?? []), tell]);
}

async function ask() {
  const waiting = [...asked];
  asked = new Map();
  for (let i = 0; i < waiting.length; i += most) {
    const part = waiting.slice(i, i + most);
    let found;
    try {
      found = (await get(`/v1/admin/names?ids=${part.map(([id]) => id).join(",")}`)).items;
    } catch {
      continue; // The ids stand by themselves.
    }
    const byID = new Map(found.map((f) => [f.id, f]));
    for (const [id, tell] of part) {
      known.set(id, byID.get(id) ?? null);
      if (byID.has(id)) for (const t of tell) t(byID.get(id));
    }
  }
}

const form = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;

// named is an id with the name of what it is of, linked to its page. kind is known to some lists.
export function named(id, kind) {
  const element = h("span", { class: "named" });
  const spelled = form.test(id) ? short(id) : id;
  add(element, home(kind, id) ? h("a", { href: home(kind, id) }, spelled) : spelled);
  if (form.test(id)) {
    name(id, (found) => element.replaceChildren(
      home(found.kind, id) ? h("a", { href: home(found.kind, id) }, found.title) : document.createTextNode(found.title), " ", h("span", { class: "soft small" }, short(id))));
  }
  return element;
}

// principal is who did something: a key by its name.
export function principal(id) {
  const text = id.startsWith("key:") ? id.slice(4) : "";
  const link = h("a", { href: `/console/audit?principal=${encodeURIComponent(id)}` }, text ? short(id) : id);
  if (form.test(text)) name(text, (found) => link.replaceChildren(found.title, " ", h("span", { class: "soft small" }, short(id))));
  return link;
}

// account links to an account. The system's own have a name that ends in the id of what they are for.
export function account(id) {
  const [what, of] = [id.slice(0, id.indexOf("/")), id.slice(id.indexOf("/") + 1)];
  const link = h("a", { href: `/console/accounts/${encodeURIComponent(id)}`, title: id, class: id.length <= 14 ? "nowrap" : null }, id);
  if (what && form.test(of)) {
    link.replaceChildren(`${what} of `, short(of));
    name(of, (found) => link.replaceChildren(`${what} of ${found.title}`, " ", h("span", { class: "soft small" }, short(of))));
  }
  return link;
}
