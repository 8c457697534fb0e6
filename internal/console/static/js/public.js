// What both public pages do: look again every second or two, and tell a visitor which line is theirs.
import { h, fill } from "./dom.js";
import { Problem } from "./api.js";

export const id = location.pathname.split("/")[3];

// state reads what the page shows.
export async function state(kind) {
  const response = await fetch(`/p/${kind}/${id}/state`, { redirect: "error", credentials: "omit" });
  if (!response.ok) throw new Problem(response.status, await response.json().catch(() => ({})));
  return response.json();
}

// run shows the page and keeps it true: draw(state) is called with each state that was read.
export async function run(kind, build) {
  const main = document.getElementById("main");
  let draw;
  let period = 1000;
  const look = async () => {
    if (!document.hidden) {
      try {
        const s = await state(kind);
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
    setTimeout(look, period);
  };
  await look();
}

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
