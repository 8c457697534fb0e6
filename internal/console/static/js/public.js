// What both public pages do: look again every second or two, and tell a visitor which line is theirs.
import { h, fill } from "./dom.js";
import { get } from "./api.js";
import { away, onBack, watchServer } from "./server.js";

export const id = location.pathname.split("/")[3];

// run shows the page and keeps it true: draw(state) is called with each state that was read.
export async function run(kind, build) {
  const main = document.getElementById("main");
  const state = `/p/${kind}/${id}/state`;
  let draw;
  let period = 1000;
  let timer = 0;
  watchServer(() => get(state));
  const look = async () => {
    clearTimeout(timer);
    if (!document.hidden && !away()) {
      try {
        const s = await get(state);
        draw ??= build(main, s);
        period = draw(s) ? 1000 : 15_000;
        main.removeAttribute("aria-busy");
      } catch (e) {
        period = Math.min(period * 2, 30_000);
        if (!draw) {
          document.title = e.status === 404 ? "Nothing is here" : "Out of reach";
          fill(main, h("h1", {}, e.status === 404 ? "Nothing is here" : "Out of reach"), h("p", { class: "soft" }, e.status === 404 ? "There is no such page, or it is not open yet." : "The server can’t be reached. This page tries again by itself."));
          main.removeAttribute("aria-busy");
          if (e.status === 404) return;
        }
      }
    }
    timer = setTimeout(look, period);
  };
  onBack(look);
  await look();
}

// shortAlias is what is shown of an alias, which has 32 digits. isMine tells whether it is the visitor's, who has typed these 8 or all of them.
export const shortAlias = (alias) => alias.slice(0, 8);
export const isMine = (alias, typed) => (typed.length === 8 || typed.length === 32) && alias.startsWith(typed.toLowerCase());

// aliasField is where a visitor types it.
export const aliasField = (mine) => h("label", {}, "Your alias, to find yourself, by its first 8 digits or all 32: your account’s page in the shop, or GET /v1/accounts/ID/aliases, shows it", mine);

// remember keeps what the visitor has typed, in this tab alone.
export const remember = {
  get: (name) => {
    try {
      return sessionStorage.getItem(`${id}:${name}`) ?? "";
    } catch {
      return ""; // In a frame that may not store anything.
    }
  },
  set: (name, value) => {
    try {
      sessionStorage.setItem(`${id}:${name}`, value);
    } catch {
      // As above.
    }
  },
};
