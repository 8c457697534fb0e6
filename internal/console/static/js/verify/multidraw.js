// Verification of a multi-draw as docs/design/multidraw.md specifies it: every draw is made again from the seed, and the digest of all of
// them compared. What the draws came to is counted on the way.
import { hkdf, sha256 } from "./sha256.js";
import { aes256 } from "./aes.js";
import { read, Malformed } from "./strict.js";
import { array, bad, digits, hex, join, object, text, unhex, Wrong } from "./verify.js";

const tag = new TextEncoder().encode("fairlead/multidraw/v2");
const most = { count: 20_000_000n, every: 20_000n, prizes: 10_000, name: 200, id: 64, inline: 1000n };
const low = -(2n ** 63n);
const high = 2n ** 63n - 1n;
const bars = 50; // at most, in the histogram of a range

// bins says how a range of n values is counted: in how many bars, of how many values each.
export function bins(n) {
  const each = n <= BigInt(bars) ? 1n : (n + BigInt(bars) - 1n) / BigInt(bars);
  return { each, number: Number((n + each - 1n) / each) };
}

const utf8 = new TextEncoder();
const integer = (least, greatest) => (v, path) => {
  if (typeof v !== "bigint") bad(path, "an integer expected");
  if (v < least || v > greatest) bad(path, "out of range");
  return v;
};
const int = integer(low, high);
const any = (v, path) => (typeof v === "string" ? v : bad(path, "a text expected"));
const hash = digits(32, 32);
const document = object({
  kind: any, version: integer(2n, 2n), operation: text, commitment: hash, server_seed: hash, count: integer(1n, most.count), every: integer(1n, most.every),
  range: object({ min: int, max: int }), prizes: array(object({ id: any, name: any, weight: integer(0n, high), value: int }), most.prizes), digest: hash,
  results: array(int, Number(most.inline)), prize_results: array(any, Number(most.inline)),
}, ["range", "prizes", "results", "prize_results"]);

// isMultidraw tells a multi-draw's proof from that of a campaign.
export function isMultidraw(bytes) {
  try {
    return JSON.parse(new TextDecoder().decode(bytes)).kind === "multidraw";
  } catch {
    return false;
  }
}

function eight(n) {
  const out = new DataView(new ArrayBuffer(8));
  out.setBigInt64(0, BigInt.asIntN(64, BigInt(n)));
  return new Uint8Array(out.buffer);
}
const said = (s) => {
  const b = utf8.encode(s);
  return join(eight(b.length), b);
};

// check refuses parameters that nothing can be drawn from, and returns the number of values, or the sum of weights.
function check(p) {
  if (/^0*$/.test(p.server_seed)) throw new Wrong("server_seed", "the server seed is nothing but zeros");
  if ((p.range === undefined) === (p.prizes === undefined)) throw new Wrong("range", "a range or prizes are needed, and not both");
  if (p.range) {
    if (p.range.min > p.range.max) throw new Wrong("range", "the range is empty");
    return p.range.max - p.range.min + 1n;
  }
  const ids = new Set();
  let sum = 0n;
  p.prizes.forEach((x, i) => {
    const size = utf8.encode(x.id).length;
    if (size < 1 || size > most.id) throw new Wrong(`prizes[${i}].id`, "an id has 1 to 64 bytes");
    if ([...x.name].length > most.name) throw new Wrong(`prizes[${i}].name`, "a name has at most 200 characters");
    if (ids.has(x.id)) throw new Wrong(`prizes[${i}].id`, "two prizes have one id");
    ids.add(x.id);
    sum += x.weight;
  });
  if (sum < 1n || sum > high) throw new Wrong("prizes", "the weights sum up to nothing, or to too much");
  return sum;
}

// drawer returns the function of a draw's index to its value below n, which is a number where n is small.
function drawer(encrypt, n) {
  const out = new Int32Array(4);
  const first = (i) => {
    if (i % 2 === 0) encrypt(0, 0, Math.floor(i / 2 / 2 ** 32), (i / 2) >>> 0, out);
    return i % 2 === 0 ? 0 : 2;
  };
  // Draws come in order, but after another's further words its block is made again.
  const again = (i) => encrypt(0, 0, Math.floor(Math.floor(i / 2) / 2 ** 32), Math.floor(i / 2) >>> 0, out);
  const least = n === 2n ** 64n ? 0n : 2n ** 64n % n;
  const word = (at) => (BigInt(out[at] >>> 0) << 32n) | BigInt(out[at + 1] >>> 0);
  const usable = (w) => {
    const product = w * n;
    return BigInt.asUintN(64, product) >= least ? product >> 64n : null;
  };
  const further = (i) => {
    const next = i + 1;
    for (let l = 0; ; l++) {
      encrypt(Math.floor(next / 2 ** 32), next >>> 0, 0, l, out);
      const value = usable(word(0)) ?? usable(word(2));
      if (value === null) continue;
      again(i);
      return value;
    }
  };
  if (n > 2n ** 20n) {
    return (i) => {
      const at = first(i);
      return usable(word(at)) ?? further(i);
    };
  }
  const small = Number(n);
  const bound = Number(least);
  return (i) => {
    const at = first(i);
    const lower = (out[at + 1] >>> 0) * small; // Below 2^52, as the upper one is.
    const upper = (out[at] >>> 0) * small + Math.floor(lower / 2 ** 32);
    if (upper % 2 ** 32 === 0 && lower % 2 ** 32 < bound) return Number(further(i));
    return Math.floor(upper / 2 ** 32);
  };
}

// browsersOwn makes the browser's own AES agree with ours, where it has one.
async function browsersOwn(key, encrypt) {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) return false;
  const own = await subtle.importKey("raw", key, "AES-CTR", false, ["encrypt"]);
  const theirs = new DataView(await subtle.encrypt({ name: "AES-CTR", counter: new Uint8Array(16), length: 64 }, own, new Uint8Array(64)));
  const out = new Int32Array(4);
  for (let i = 0; i < 16; i++) {
    if (i % 4 === 0) encrypt(0, 0, 0, i / 4, out);
    if (theirs.getInt32(4 * i) !== out[i % 4]) throw new Wrong("AES", "the browser's own AES disagrees with the page's: trust neither");
  }
  return true;
}

// verifyMultidraw checks a proof, given as bytes, as verify does that of a campaign. The answer's counts say how
// often each prize was drawn, or each bar of a range.
export async function verifyMultidraw(bytes, { commitment, step = () => {}, progress } = {}) {
  const say = (name, detail, ok = true) => step({ name, ok, detail });
  let p;
  try {
    p = document(read(bytes, { signed: true }), "");
    const n = check(p);
    const total = Number(p.count);
    say("It is a multi-draw’s proof", `${total} draws of ${p.range ? `${p.range.min} to ${p.range.max}` : `${p.prizes.length} prizes`}`);

    const seed = unhex(p.server_seed);
    if (hex(sha256(seed)) !== p.commitment) throw new Wrong("commitment", "the server seed is not the one that was committed to");
    say("The seed opens the commitment", `SHA-256(server seed) = ${p.commitment}`);

    const inline = p.count <= most.inline;
    for (const [name, here] of [["results", p.range], ["prize_results", p.prizes]]) {
      if ((p[name]?.length ?? 0) !== (inline && here ? total : 0)) throw new Wrong(name, `the number of ${name} is not that of the draws`);
    }
    const key = hkdf(tag, seed, said(p.operation));
    const encrypt = aes256(key);
    const own = await browsersOwn(key, encrypt);

    const largest = p.range ? n - 1n : BigInt(p.prizes.length - 1);
    const width = largest < 2n ** 8n ? 1 : largest < 2n ** 16n ? 2 : largest < 2n ** 32n ? 4 : 8;
    const { each, number } = bins(n);
    const counts = new Array(p.range ? number : p.prizes.length).fill(0);
    const small = n <= 2n ** 20n;
    const bar = small ? ((per) => (v) => Math.floor(v / per))(Number(each)) : (v) => Number(v / each);
    let sum = 0n;
    const upTo = p.prizes?.map((x) => (sum += x.weight));
    const edges = upTo && (small ? upTo.map(Number) : upTo);
    const place = (v) => {
      let a = 0;
      let b = edges.length - 1;
      while (a < b) {
        const middle = (a + b) >> 1;
        if (edges[middle] > v) b = middle;
        else a = middle + 1;
      }
      return a;
    };

    const parameters = sha256(p.range
      ? join(tag, [0], eight(p.count), utf8.encode("r"), eight(p.range.min), eight(p.range.max))
      : join(tag, [0], eight(p.count), utf8.encode("p"), eight(p.prizes.length), ...p.prizes.map((x) => join(said(x.id), said(x.name), eight(x.weight), eight(x.value)))));
    let digest = sha256(join(tag, [1], parameters, said(p.operation)));
    const draw = drawer(encrypt, n);
    const every = Number(p.every);
    const saved = new Uint8Array(32 + Math.min(every, total) * width);
    const view = new DataView(saved.buffer);
    for (let done = 0; done < total;) {
      const behind = Math.min(done + every, total);
      saved.set(digest);
      for (let at = 32; done < behind; done++, at += width) {
        const v = draw(done);
        const drawn = p.range ? v : place(v);
        counts[p.range ? bar(v) : drawn]++;
        if (width === 1) saved[at] = Number(drawn);
        else if (width === 2) view.setUint16(at, Number(drawn));
        else if (width === 4) view.setUint32(at, Number(drawn));
        else view.setBigUint64(at, BigInt(drawn));
        if (!inline) continue;
        const right = p.range ? p.range.min + BigInt(v) : p.prizes[drawn].id;
        const name = p.range ? "results" : "prize_results";
        if (p[name][done] !== right) throw new Wrong(`${name}[${done}]`, `draw ${done + 1} must be ${right}`);
      }
      digest = sha256(saved.subarray(0, 32 + (((done - 1) % every) + 1) * width));
      progress?.(done / total);
    }
    say("All draws are made again", `${total} of ${total}${own ? " – the browser’s own cryptography agrees" : ""}`);
    if (hex(digest) !== p.digest) throw new Wrong("digest", "the digest is not that of these draws");
    say("The digest is that of the draws", p.digest);
    if (commitment !== undefined) {
      if (commitment !== p.commitment) throw new Wrong("published commitment", "the commitment is not the one that was published");
      say("The commitment is the published one", commitment);
    }
    return { valid: true, unchecked: false, field: "", reason: "", proof: { commitment: p.commitment, winners: [] }, counts };
  } catch (e) {
    if (!(e instanceof Wrong) && !(e instanceof Malformed)) throw e;
    say(e instanceof Malformed ? "It is a multi-draw’s proof" : `First difference: ${e.field}`, e.message, false);
    return { valid: false, unchecked: false, field: e.field ?? "document", reason: e.message };
  }
}
