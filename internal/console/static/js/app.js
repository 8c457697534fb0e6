// The console: who is signed in, where one is, and what is shown there.
import { h, fill, text } from "./dom.js";
import { session } from "./api.js";
import { problem } from "./ui.js";
import { ago, clockTime } from "./format.js";
import { onBack, readAt, suspect, watchServer } from "./server.js";
import { search } from "./search.js";
import { mayNot, signedIn } from "./who.js";
import { choose, here, zone } from "./zone.js";

// The pages: a pattern, a module, and where they stand in the navigation.
const pages = [
  { path: "", module: "overview", nav: "Overview" },
  { group: "Services" },
  { path: "campaigns", module: "campaigns", nav: "Campaigns" },
  { path: "campaigns/:id", module: "campaign" },
  { path: "multidraws", module: "multidraws", nav: "Multi-draws" },
  { path: "multidraws/:id", module: "multidraw" },
  { path: "auctions", module: "auctions", nav: "Auctions" },
  { path: "auctions/:id", module: "auction" },
  { path: "publications", module: "publications", nav: "Publications" },
  { path: "publications/:id", module: "publication" },
  { path: "automations", module: "automations", nav: "Automations" },
  { path: "automations/:id", module: "automation" },
  { path: "targets", module: "targets", nav: "Targets" },
  { path: "targets/:id", module: "target" },
  { path: "subscriptions", module: "subscriptions", nav: "Subscriptions" },
  { path: "subscriptions/:id", module: "subscription" },
  { group: "Money" },
  { path: "accounts", module: "accounts", nav: "Accounts" },
  { path: "accounts/:id", module: "account" },
  { path: "transfers", module: "transfers", nav: "Transfers" },
  { path: "transfers/:id", module: "transfer" },
  { group: "Coordination" },
  { path: "locks", module: "locks", nav: "Locks" },
  { path: "sagas", module: "sagas", nav: "Sagas, in doubt" },
  { path: "sagas/:id", module: "saga" },
  { path: "idempotency", module: "idempotency", nav: "Idempotency keys" },
  { group: "Administration" },
  { path: "verify", module: "verify", nav: "Verify a proof" },
  { path: "keys", module: "keys", nav: "API keys" },
  { path: "audit", module: "audit", nav: "Audit log" },
  { path: "new/:kind", module: "new" },
];

const shell = document.getElementById("shell");
const gate = document.getElementById("gate");
const main = document.getElementById("main");
const nav = document.getElementById("nav");
const menu = document.getElementById("menu");

let me = null;
let leave = new AbortController();
let outdated = false; // the server has another version than this page

// load fetches a page's script. A browser may remember that it could not: only loading the console again helps then.
async function load(name) {
  let timer;
  try {
    return await Promise.race([import(`./pages/${name}.js`), new Promise((_, reject) => { timer = setTimeout(reject, 10_000); })]);
  } catch (e) {
    if (e) console.debug("script", e.message);
    suspect();
    const missing = new Error("The script of this page can't be fetched. The server is away, or has another version by now.");
    missing.code = "script_missing";
    throw missing;
  } finally {
    clearTimeout(timer);
  }
}

function match(path) {
  const parts = path.split("/");
  for (const page of pages) {
    if (page.path === undefined) continue;
    const pattern = page.path.split("/");
    if (pattern.length !== parts.length) continue;
    const params = {};
    if (pattern.every((p, i) => (p.startsWith(":") ? ((params[p.slice(1)] = decodeURIComponent(parts[i])), parts[i] !== "") : p === parts[i]))) return { page, params };
  }
  return null;
}

function drawNav(current) {
  const sections = [[]];
  for (const page of pages) {
    if (page.group) sections.push([page.group]);
    else if (page.nav) sections.at(-1).push(page);
  }
  const item = (page) => {
    const here = current === page.path || (page.path !== "" && current.startsWith(`${page.path}/`));
    return h("li", {}, h("a", { href: `/console/${page.path}`, "aria-current": here ? (current === page.path ? "page" : "true") : null }, page.nav));
  };
  fill(nav, sections.map((s) => (typeof s[0] === "string" ? [h("h2", {}, s[0]), h("ul", {}, s.slice(1).map(item))] : h("ul", {}, s.map(item)))),
    h("div", { class: "who" }, h("span", { class: "break" }, me?.name ?? ""), mayNot() && h("span", {}, mayNot()), zones(), h("button", { type: "button", class: "quiet", onclick: signOut }, "Sign out"), h("span", { class: "break" }, me?.version ?? "")));
}

// zones chooses the time zone of what is shown.
function zones() {
  return h("label", {}, "Times in", h("select", { name: "zone", onchange: (e) => { choose(e.target.value); show(); } },
    h("option", { value: "local", selected: !zone() }, here === "UTC" ? "Here (UTC)" : here), h("option", { value: "UTC", selected: Boolean(zone()) }, "UTC")));
}

async function show() {
  if (outdated) return location.reload();
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const path = location.pathname.replace(/^\/console\/?/, "").replace(/\/$/, "");
  nav.classList.remove("open");
  menu.setAttribute("aria-expanded", "false");
  const found = match(path);
  drawNav(path);
  const root = h("div", { class: "page" });
  const title = (t) => (document.title = t ? `${t} · Fairlead` : "Fairlead");
  title("");
  if (!found) {
    fill(main, fill(root, h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "/console/" }, "Overview"))));
    return;
  }
  title(found.page.nav ?? "");
  try {
    main.setAttribute("aria-busy", "true");
    const module = await load(found.page.module);
    if (signal.aborted) return;
    const query = new URLSearchParams(location.search);
    await module.default({ root, params: found.params, query, signal, title, me, reload: show, go, place: placer(query, signal) });
    if (signal.aborted) return;
    fill(main, root);
    tellRead(root, signal);
  } catch (e) {
    if (e.name === "AbortError" || signal.aborted) return;
    const again = e.code === "script_missing" ? () => location.reload() : show;
    fill(main, fill(root, h("h1", {}, e.status === 404 ? "There is no such thing" : "This page can't be shown"), problem(e), e.status !== 404 && h("div", { class: "actions" }, h("button", { type: "button", onclick: again }, "Load again"))));
    if (e.status !== 404) onBack(again, signal);
    if (!e.code) console.error(e);
  } finally {
    if (!signal.aborted) main.removeAttribute("aria-busy");
  }
}

// tellRead keeps saying beneath the heading when the page has last read something.
function tellRead(root, signal) {
  const line = h("p", { class: "read small soft" });
  const tell = () => {
    const at = readAt(signal);
    if (at) text(line, `Last read at ${clockTime(at)}, ${ago(at)} ago`);
  };
  root.querySelector(".page-head")?.append(line);
  tell();
  const timer = setInterval(tell, 1000);
  signal.addEventListener("abort", () => clearInterval(timer));
}

// placer writes what a page shows into the address: values by name, of which empty ones are left out. The browser’s way back undoes a step.
const placer = (query, signal) => (values, { step = true, state } = {}) => {
  if (signal.aborted) return;
  for (const [name, value] of Object.entries(values)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const search = query.size > 0 ? `?${query}` : "";
  if (location.search !== search) history[step ? "pushState" : "replaceState"]({ ...history.state, ...state }, "", location.pathname + search);
};

function go(path) {
  history.pushState(null, "", path);
  show();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

document.addEventListener("click", (e) => {
  const a = e.target.closest?.("a[href]");
  if (!a || e.defaultPrevented || e.button !== 0 || e.metaKey || e.ctrlKey || e.shiftKey || a.target || a.origin !== location.origin) return;
  if (!a.pathname.startsWith("/console/") || a.pathname.startsWith("/console/assets/") || a.getAttribute("href").startsWith("#")) return;
  e.preventDefault();
  go(a.href);
});
window.addEventListener("popstate", show);
window.addEventListener("fairlead:signed-out", () => { if (me) askKey("Your session has ended: it lasts 12 hours at most, and ends when its key is revoked. Sign in to return to this page."); });
menu.addEventListener("click", () => menu.setAttribute("aria-expanded", String(nav.classList.toggle("open"))));

function askKey(why) {
  me = null;
  leave.abort();
  fill(main);
  main.removeAttribute("aria-busy");
  shell.hidden = true;
  gate.hidden = false;
  document.title = "Sign in · Fairlead";
  const trouble = h("div");
  const key = h("input", { type: "password", name: "key", autocomplete: "current-password", required: true, spellcheck: "false" });
  const button = h("button", { type: "submit", class: "primary" }, "Sign in");
  fill(gate, h("main", { class: "card" }, h("form", { onsubmit: async (e) => {
    e.preventDefault();
    button.disabled = true;
    fill(trouble);
    try {
      await enter(await session.begin({ key: key.value }));
    } catch (error) {
      button.disabled = false;
      fill(trouble, problem(error.status === 401 ? { message: "Invalid or revoked key." } : error));
      key.select();
    }
  } },
    h("h1", {}, "Fairlead"),
    why && h("p", { class: "soft" }, why),
    h("label", {}, "Admin or reader key", key),
    trouble,
    button,
    h("p", { class: "small soft" }, "No key at hand? On the server, ", h("code", {}, "fairlead console"), " prints a link that signs in once."))));
  key.focus();
}

async function signOut() {
  try {
    await session.end();
  } finally {
    askKey("You are signed out.");
  }
}

async function enter(who) {
  leave.abort();
  me = who;
  signedIn(who);
  gate.hidden = true;
  fill(gate);
  shell.hidden = false;
  await show();
}

async function start() {
  const link = new URLSearchParams(location.hash.slice(1)).get("link");
  if (link) {
    // The secret is taken out of the address before anything else, so that it is neither bookmarked nor sent again.
    history.replaceState(null, "", location.pathname);
    try {
      await enter(await session.begin({ link }));
      return;
    } catch (e) {
      askKey(e.message);
      return;
    }
  }
  try {
    const who = await session.read();
    if (who) await enter(who);
    else askKey();
  } catch (e) {
    leave.abort();
    leave = new AbortController();
    gate.hidden = false;
    fill(gate, h("main", { class: "card" }, h("h1", {}, "Fairlead"), problem(e), h("p", { class: "soft" }, "The console opens as soon as the server answers.")));
    onBack(start, leave.signal);
  }
}

// A link that is opened where the console is open already changes nothing but the address.
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#link=")) start();
});
document.getElementById("unloaded").remove();
search(document.getElementById("find"), pages.filter((p) => p.nav).map((p) => [p.nav, `/console/${p.path}`]), go, () => !shell.hidden);
watchServer(async () => {
  const who = await session.read();
  if (me && !who) window.dispatchEvent(new Event("fairlead:signed-out"));
  outdated = Boolean(me && who && who.version !== me.version);
});
start();
