// Ages and countdowns that go on by themselves, whether the server answers or not.
import { h, text } from "./dom.js";
import { ago, clock } from "./format.js";
import { serverNow } from "./server.js";

const spellings = {
  age: (e) => ago(e.dateTime, serverNow()),
  left: (e) => {
    const ms = Date.parse(e.dateTime) - serverNow();
    return ms <= 0 ? "a moment" : ms < 10_000 ? `${Math.ceil(ms / 1000)} s` : clock(ms);
  },
};

const make = (kind) => (iso) => {
  const e = h("time", { datetime: iso, title: iso, "data-ticks": kind, class: "nowrap" });
  text(e, spellings[kind](e));
  return e;
};

// age spells how long ago a time was, left how long it is until a time.
export const age = make("age");
export const left = make("left");

setInterval(() => {
  for (const e of document.querySelectorAll("time[data-ticks]")) text(e, spellings[e.dataset.ticks](e));
}, 1000);
