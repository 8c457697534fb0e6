// How things are spelled.
import { h } from "./dom.js";
import { zone } from "./zone.js";

const whole = new Intl.NumberFormat("en");
const known = new Set(Intl.supportedValuesOf ? Intl.supportedValuesOf("currency") : []);

export const count = (n) => whole.format(n);

// money spells minor units. A currency that the browser doesn't know has no known fraction, and is shown in units as they are.
export function money(amount, currency, sign = false) {
  const s = sign && amount > 0 ? "+" : "";
  if (!known.has(currency)) return `${s}${whole.format(amount)} ${currency ?? ""}`.trim();
  const digits = new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits;
  return `${s}${new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(amount / 10 ** digits)} ${currency}`;
}

const clockParts = { hour: "2-digit", minute: "2-digit", second: "2-digit" };
const dayParts = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };
const formats = new Map();

// spellTime formats a moment in the chosen zone.
export function spellTime(parts, at) {
  const timeZone = zone();
  const key = JSON.stringify([parts, timeZone]);
  if (!formats.has(key)) formats.set(key, new Intl.DateTimeFormat("en-GB", { ...parts, timeZone }));
  return formats.get(key).format(at);
}

// spell also names the zone, unless it is the browser's own.
const spell = (parts, at) => spellTime({ ...parts, timeZoneName: zone() && "short" }, at);

// when spells a time for a reader nearby: the clock of today, or day and clock; the exact one, in UTC, is in its title.
export function when(iso) {
  if (!iso) return h("span", { class: "soft" }, "–");
  const d = new Date(iso);
  const day = (at) => spell({ day: "numeric", month: "short", year: "numeric" }, at);
  const year = (at) => spell({ year: "numeric" }, at);
  const now = new Date();
  const parts = day(d) === day(now) ? clockParts : year(d) === year(now) ? dayParts : { ...dayParts, year: "numeric" };
  return h("time", { datetime: iso, title: iso, class: "nowrap" }, spell(parts, d));
}

// clockTime spells the clock of a moment, in seconds.
export const clockTime = (at) => spell(clockParts, at);

// ago spells how long ago a time was.
export function ago(iso, now = Date.now()) {
  const seconds = (now - new Date(iso).getTime()) / 1000;
  return seconds < 1 ? "0 s" : span(seconds);
}

// span spells a number of seconds.
export function span(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1e-3) return `${Math.round(s * 1e6)} µs`;
  if (s < 1) return `${(s * 1000).toFixed(s < 0.01 ? 1 : 0)} ms`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

// duration spells a Go duration without what is zero: 5m0s is 5 min.
export const duration = (s) => s.replace(/(?<=[hm])0s$/, "").replace(/(?<=h)0m$/, "").replace(/(?<=\d)(m?s|µs|m|h)/g, (unit) => ` ${unit === "m" ? "min" : unit} `).trim();

// clock spells what is left: 0:09.3 under ten seconds, 12:05, 1:02:09.
export function clock(ms) {
  const left = Math.max(0, ms);
  if (left < 10_000) return (Math.ceil(left / 100) / 10).toFixed(1);
  const s = Math.ceil(left / 1000);
  const two = (n) => String(n).padStart(2, "0");
  const m = Math.floor(s / 60);
  return m < 60 ? `${m}:${two(s % 60)}` : `${Math.floor(m / 60)}:${two(m % 60)}:${two(s % 60)}`;
}

const tones = {
  active: "live", running: "live", publishing: "live", open: "live", drawing: "warn", completed: "good", published: "good", captured: "good",
  failed: "bad", lost: "bad", refused: "warn", interrupted: "warn", compensated: "warn", pending: "", scheduled: "", cancelled: "",
};

// badge shows a status by word, shape and colour.
export function badge(status, tone) {
  return h("span", { class: `badge ${tone ?? tones[status] ?? ""}` }, String(status).replaceAll("_", " "));
}

// short abbreviates an id; the whole is in its title.
export const short = (id) => h("span", { class: "mono nowrap", title: id }, id.length > 13 ? `…${id.slice(-12)}` : id);

// share draws a part of a whole.
export function share(part, total) {
  const percent = total > 0 ? (100 * part) / total : 0;
  return h("span", { class: "meter", role: "img", "aria-label": `${Math.floor(percent)} percent` }, h("i", { "width%": percent }));
}
