// Whether the server answers. A request that gets no answer, or a slow one, causes a probe; the probe alone decides that the server is
// away, says so in a banner, and goes on until the server is back. While it is away, pages ask for nothing.
import { h, fill, text } from "./dom.js";
import { ago, clockTime } from "./format.js";

const slow = 4000; // ms without an answer after which the server is probed
const longest = 15_000; // ms between two probes

const state = { away: null, answered: Date.now(), skew: 0, probing: false, pause: 0, timer: 0, next: 0 };
const reads = new WeakMap(); // the last time a page has read something, by the page's signal
const events = new EventTarget();
let probe = null;

// away tells why the server is away: { why, since }, or null.
export const away = () => state.away;

// serverNow is the server's clock, as far as its answers tell.
export const serverNow = () => Date.now() + state.skew;

// readAt is when a page has last read something, by the browser's clock.
export const readAt = (signal) => reads.get(signal);

// onBack calls f each time the server answers again.
export const onBack = (f, signal) => events.addEventListener("back", f, { signal });

// answered notes an answer with data.
export function answered(response, signal) {
  state.answered = Date.now();
  const date = Date.parse(response.headers.get("Date") ?? "");
  const skew = date + 500 - Date.now(); // The header is in whole seconds.
  if (date) state.skew = Math.abs(skew) > 2000 ? skew : 0;
  if (signal) reads.set(signal, state.answered);
  if (state.away && !state.probing) retry();
}

// patiently awaits an answer; when that takes long, the server is probed.
export async function patiently(promise) {
  const timer = setTimeout(suspect, slow);
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
  }
}

// suspect probes the server, unless that is under way.
export function suspect() {
  if (!state.away && probe) retry();
}

async function retry() {
  if (state.probing) return;
  clearTimeout(state.timer);
  state.probing = true;
  draw();
  try {
    await probe().catch((e) => {
      if (!(e.status < 500)) throw e; // A refusal is an answer, too.
    });
    if (state.away) {
      state.away = null;
      state.pause = 0;
      setTimeout(() => events.dispatchEvent(new Event("back")));
    }
  } catch (e) {
    const why = e.code === "unreachable" ? e.message : `The server answers, but it can't work: ${e.message}`;
    state.away = { why, since: state.away?.since ?? Date.now() };
    state.pause = Math.min(longest, Math.max(1000, state.pause * 2));
    const pause = state.pause * (0.8 + 0.4 * Math.random());
    state.next = Date.now() + pause;
    state.timer = setTimeout(retry, pause);
  } finally {
    state.probing = false;
    draw();
  }
}

const banner = document.getElementById("away");
const why = h("strong", { role: "alert" });
const known = h("span");
const next = h("span", { class: "small" });
const button = h("button", { type: "button", onclick: retry }, "Retry");

function draw() {
  document.body.classList.toggle("server-away", state.away !== null);
  banner.hidden = state.away === null;
  if (!state.away) return text(why, "");
  if (!why.isConnected) fill(banner, h("p", {}, why, " ", known, " ", next), button);
  text(why, state.away.why);
  text(known, `Its last answer was at ${clockTime(state.answered)}, ${ago(state.answered)} ago; what is shown is from then.`);
  text(next, state.probing ? "Trying…" : `Next try in ${Math.max(0, Math.ceil((state.next - Date.now()) / 1000))} s.`);
  button.disabled = state.probing;
}

// watchServer begins: check asks the server for something, and throws if that fails.
export function watchServer(check) {
  probe = check;
  setInterval(() => state.away && draw(), 1000);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && state.away) retry(); });
  addEventListener("online", () => { if (state.away) retry(); });
}
