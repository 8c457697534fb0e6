// Verification of proofs as docs/design/fairdraw.md specifies it, in a page or a worker, from the document alone. It agrees with
// fairlead verify on every document without a beacon's round. The signature of such a round is a pairing on a curve that browsers
// do not know: everything else is checked, and the document is then called unchecked and not valid.
import { sha256, hmac, hkdf } from "./sha256.js";
import { read, Malformed } from "./strict.js";
import { unbase64, verifySeal } from "./seal.js";

const limit = { positions: 1_000_000, layer: 1_000_000, prizes: 10_000, winners: 1_000_000, beacon: 1024, key: 1024, siblings: 20, leaf: 65_535, index: Number.MAX_SAFE_INTEGER - 1, logSiblings: 53, checkpoint: 128 << 10 };
const utf8 = new TextEncoder();
const salt = utf8.encode("fairlead/fairdraw/v1");

// Wrong is thrown when a document is read well and does not say the truth.
export class Wrong extends Error {
  constructor(field, message) {
    super(message ?? `${field} is not what it must be`);
    this.field = field;
  }
}

export const hex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
export const unhex = (s) => Uint8Array.from({ length: s.length / 2 }, (_, i) => parseInt(s.slice(2 * i, 2 * i + 2), 16));

// The shapes of the documents: functions that check a value and give it back.

export const bad = (path, what) => {
  throw new Malformed(`${path}: ${what}`);
};
export const object = (fields, optional = []) => (v, path) => {
  if (!(v instanceof Map)) bad(path, "an object expected");
  const out = {};
  for (const [name, value] of v) {
    if (!Object.hasOwn(fields, name)) bad(path, `unknown field ${name}`);
    out[name] = fields[name](value, path ? `${path}.${name}` : name);
  }
  for (const name of Object.keys(fields)) if (!v.has(name) && !optional.includes(name)) bad(path, `${name} is missing`);
  return out;
};
export const array = (item, most) => (v, path) => {
  if (!Array.isArray(v)) bad(path, "a list expected");
  if (v.length > most) bad(path, "too many entries");
  return v.map((x, i) => item(x, `${path}[${i}]`));
};
const integer = (low, high) => (v, path) => {
  if (typeof v !== "number") bad(path, "a number expected");
  if (v < low || v > high) bad(path, "out of range");
  return v;
};
export const text = (v, path) => {
  if (typeof v !== "string") bad(path, "a text expected");
  const points = [...v];
  if (points.length < 1 || points.length > 200 || /[\u0000-\u001f\u007f-\u009f]/.test(v)) bad(path, "not 1 to 200 characters without control characters");
  return v;
};
export const digits = (low, high) => (v, path) => {
  if (typeof v !== "string" || !/^([0-9a-f]{2})*$/.test(v) || v.length < 2 * low || v.length > 2 * high) bad(path, "not the hexadecimal digits that it must be");
  return v;
};
const one = (...known) => (v, path) => {
  if (!known.includes(v)) bad(path, "a version that is not known");
  return v;
};

const hash = digits(32, 32);
const place = { id: text, layer: integer(1, limit.layer), number: integer(1, limit.layer) };
const position = object({ ...place, account: text });
const winner = (v, path) => {
  const w = object({ prize: text, layer: integer(1, limit.layer), position: object(place), account: text })(v, path);
  if (w.layer !== w.position.layer) bad(path, "its two layers differ");
  return w;
};
const round = object({
  signature: digits(1, limit.beacon), scheme: text, chain_hash: hash, public_key: digits(1, limit.key), period: integer(1, 2 ** 31),
  genesis_time: integer(1, 2 ** 40), genesis_seed: digits(1, limit.key), beacon_id: text, round: integer(1, Number.MAX_SAFE_INTEGER), previous_signature: digits(1, limit.beacon),
}, ["previous_signature"]);
const beacon = (v, path) => (v instanceof Map && v.size === 1 ? object({ signature: digits(1, limit.beacon) }) : round)(v, path);
const within = (high) => (v, path) => {
  if (typeof v !== "string" || v === "" || utf8.encode(v).length > high) bad(path, "not a text of the length that it must have");
  return v;
};
const base64 = (high) => (v, path) => {
  const raw = typeof v === "string" && v !== "" ? unbase64(v) : null;
  if (raw === null || raw.length > high) bad(path, "not base64");
  return v;
};
const inLog = object({ leaf: base64(limit.leaf), index: integer(0, limit.index), inclusion: array(hash, limit.logSiblings), checkpoint: within(limit.checkpoint) });
const proof = object({
  versions: object({ document: one(1, 2, 3), algorithm: one(1) }), campaign: text, commitment: hash, server_seed: hash, root: hash, draw_seed: hash, beacon, seal: inLog,
  positions: array(position, limit.positions),
  prizes: array(object({ name: text, layer: integer(0, limit.layer), quantity: integer(1, limit.winners) }), limit.prizes),
  winners: array(winner, limit.winners),
}, ["beacon", "seal"]);
const inclusion = object({
  versions: object({ document: one(1), algorithm: one(1) }), campaign: text, root: hash, position, index: integer(0, limit.positions - 1), size: integer(1, limit.positions),
  siblings: array(hash, limit.siblings),
});

// bytes joins what is to be hashed: texts with their length, numbers of four or eight bytes, and bytes as they are.
export function join(...parts) {
  let size = 0;
  for (const p of parts) size += p.length;
  const out = new Uint8Array(size);
  let at = 0;
  for (const p of parts) {
    out.set(p, at);
    at += p.length;
  }
  return out;
}
const u32 = (n) => Uint8Array.of(n >>> 24, n >>> 16, n >>> 8, n);
const u64 = (n) => join(u32(Math.floor(n / 2 ** 32)), u32(n >>> 0));
const said = (s) => {
  const b = utf8.encode(s);
  return join(u32(b.length), b);
};

const leaf = (p) => sha256(join([0], said(p.id), u32(p.layer), u32(p.number), said(p.account)));
const node = (left, right) => sha256(join([1], left, right));
const seal = (campaign, size, tree) => sha256(join([2], said(campaign), u64(size), tree));

// root seals the positions: level by level, a last one without a partner moves up as it is.
function root(campaign, positions, progress) {
  let level = new Uint8Array(positions.length * 32);
  positions.forEach((p, i) => {
    level.set(leaf(p), i * 32);
    if (i % 20_000 === 0) progress?.(i / positions.length);
  });
  const pair = new Uint8Array(65);
  pair[0] = 1;
  for (let n = positions.length; n > 1; n = (n + 1) >> 1) {
    for (let i = 0; i + 1 < n; i += 2) {
      pair.set(level.subarray(i * 32, i * 32 + 64), 1);
      level.set(sha256(pair), (i / 2) * 32);
    }
    if (n % 2 === 1) level.set(level.slice((n - 1) * 32, n * 32), ((n - 1) / 2) * 32);
  }
  return seal(campaign, positions.length, level.slice(0, 32));
}

function drawInfo(p) {
  const prizes = sha256(join([3], u32(p.prizes.length), ...p.prizes.map((x) => join(said(x.name), u32(x.layer), u32(x.quantity)))));
  return join(said("draw"), said(p.campaign), prizes);
}

// stream gives the integers of one index as pairs of 32 bits, high and low.
function stream(mac, index) {
  const counter = join(u64(index), u64(0));
  const view = new DataView(counter.buffer);
  let c = 0;
  let block = null;
  let at = 32;
  // below is an exactly uniform integer in [0, n), for n up to a million.
  return function below(n) {
    const left = 2 ** 32 % n;
    const over = (left * left) % n; // 2^64 modulo n: as many of the highest integers are passed over.
    for (;;) {
      if (at === 32) {
        view.setUint32(8, Math.floor(c / 2 ** 32));
        view.setUint32(12, c >>> 0);
        c++;
        block = new DataView(mac(counter).buffer);
        at = 0;
      }
      const high = block.getUint32(at);
      const low = block.getUint32(at + 4);
      at += 8;
      if (over > 0 && high === 0xffffffff && low >= 2 ** 32 - over) continue;
      return ((high % n) * left + low) % n;
    }
  };
}

// sample chooses k of n places: the first k swaps of a shuffle, of a list that is only kept where it was touched.
function sample(below, n, k) {
  const moved = new Map();
  const at = (i) => moved.get(i) ?? i;
  const out = new Array(k);
  for (let i = 0; i < k; i++) {
    const j = i + below(n - i);
    out[i] = at(j);
    moved.set(j, at(i));
    moved.delete(i);
  }
  return out;
}

function check(p) {
  if (/^0*$/.test(p.server_seed)) throw new Wrong("server_seed", "the server seed is nothing but zeros");
  if (p.positions.length < 1) throw new Wrong("positions", "there are no positions");
  const ids = new Set();
  const layers = new Map(); // layer → [first, behind]
  p.positions.forEach((x, i) => {
    const before = p.positions[i - 1];
    if (before && !(before.layer < x.layer || (before.layer === x.layer && before.number < x.number))) throw new Wrong(`positions[${i}]`, `position ${i} is out of order`);
    if (ids.has(x.id)) throw new Wrong(`positions[${i}].id`, `position ${i} has the id of another`);
    ids.add(x.id);
    if (!layers.has(x.layer)) layers.set(x.layer, [i, i]);
    layers.get(x.layer)[1] = i + 1;
  });
  const names = new Set();
  let quantity = 0;
  p.prizes.forEach((x, i) => {
    if (names.has(x.name)) throw new Wrong(`prizes[${i}].name`, `prize ${i} has the name of another`);
    names.add(x.name);
    const [first, behind] = x.layer === 0 ? [0, p.positions.length] : (layers.get(x.layer) ?? [0, 0]);
    if (x.quantity > behind - first) throw new Wrong(`prizes[${i}].quantity`, `prize ${i} has more winners than there are positions for it`);
    quantity += x.quantity;
  });
  if (quantity > limit.winners) throw new Wrong("prizes", "there are too many winners");
  return layers;
}

function draw(p, seed, layers) {
  const mac = hmac(seed);
  const out = [];
  p.prizes.forEach((prize, i) => {
    const [first, behind] = prize.layer === 0 ? [0, p.positions.length] : layers.get(prize.layer);
    for (const place of sample(stream(mac, i), behind - first, prize.quantity)) out.push({ prize: prize.name, position: p.positions[first + place] });
  });
  return out;
}

// browsersOwn makes the browser's own SHA-256, HKDF and HMAC agree with ours, where it has them: then two implementations by
// different people say the same.
async function browsersOwn(p, ikm, info, drawSeed) {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) return false;
  const same = (name, a, b) => {
    if (hex(new Uint8Array(a)) !== hex(b)) throw new Wrong(name, `the browser's own ${name} disagrees with the page's: trust neither`);
  };
  const seed = unhex(p.server_seed);
  same("SHA-256", await subtle.digest("SHA-256", seed), sha256(seed));
  const key = await subtle.importKey("raw", ikm, "HKDF", false, ["deriveBits"]);
  same("HKDF", await subtle.deriveBits({ name: "HKDF", hash: "SHA-256", salt, info }, key, 256), drawSeed);
  const first = new Uint8Array(16);
  const signing = await subtle.importKey("raw", drawSeed, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  same("HMAC", await subtle.sign("HMAC", signing, first), hmac(drawSeed)(first));
  return true;
}

const some = (list, noun) => `${list.length} ${noun}${list.length === 1 ? "" : "s"}`;

// verify checks a proof, given as bytes. commitment, when given, is the one published before the sale. step is told what was
// found, one at a time: { name, ok, detail }. The answer is { valid, unchecked, field, reason, proof }: unchecked where only the
// beacon's signature is in doubt, field and reason of the first difference.
export async function verify(bytes, { commitment, step = () => {}, progress } = {}) {
  let p;
  const say = async (name, detail, ok = true) => step({ name, ok, detail });
  try {
    p = proof(read(bytes), "");
    const named = p.beacon !== undefined && Object.hasOwn(p.beacon, "round");
    if (p.versions.document >= 2 !== named) bad("beacon", "not that of the document's version");
    if ((p.versions.document === 3) !== (p.seal !== undefined)) bad("seal", "not that of the document's version");
    await say("It is a proof document", `${some(p.positions, "position")}, ${some(p.prizes, "prize")}, ${some(p.winners, "winner")}`);

    const seed = unhex(p.server_seed);
    if (hex(sha256(seed)) !== p.commitment) throw new Wrong("commitment", "the server seed is not the one that was committed to");
    await say("The seed opens the commitment", `SHA-256(server seed) = ${p.commitment}`);
    const layers = check(p);

    const sealed = root(p.campaign, p.positions, progress);
    if (hex(sealed) !== p.root) throw new Wrong("root", "the sealed root is not that of these positions");
    await say("The sealed root is that of the positions", p.root);

    const ikm = join(seed, p.beacon ? unhex(p.beacon.signature) : [], sealed);
    const info = drawInfo(p);
    const drawSeed = hkdf(salt, ikm, info);
    if (hex(drawSeed) !== p.draw_seed) throw new Wrong("draw_seed", "the draw seed does not follow from seed, root and prizes");
    const own = await browsersOwn(p, ikm, info, drawSeed);
    await say("The draw seed follows from seed, root and prizes", `${p.draw_seed}${own ? " – the browser’s own cryptography agrees" : ""}`);

    const winners = draw(p, drawSeed, layers);
    if (winners.length !== p.winners.length) throw new Wrong("winners", `there are ${p.winners.length} winners, and must be ${winners.length}`);
    winners.forEach((w, i) => {
      const g = p.winners[i];
      if (w.prize !== g.prize || w.position.id !== g.position.id || w.position.layer !== g.position.layer || w.position.number !== g.position.number || w.position.account !== g.account) {
        throw new Wrong(`winners[${i}]`, `winner ${i + 1} must be ${w.position.account} with position ${w.position.layer}/${w.position.number} for ${w.prize}`);
      }
    });
    await say("The winners are the ones that were drawn", `${winners.length} of ${winners.length} recomputed`);

    if (p.seal) {
      const s = verifySeal(p);
      await say("The public log has the seal", `entry ${s.index} of ${s.size} in ${s.log}, sealed at ${s.sealedAt}, for a round due at ${s.dueAt}. ${s.signatures} signatures: fairlead verify checks whose`);
    }
    if (commitment !== undefined) {
      if (commitment !== p.commitment) throw new Wrong("published commitment", "the commitment is not the one that was published");
      await say("The commitment is the published one", commitment);
    }
    if (p.beacon) {
      const reason = "the beacon’s signature can’t be checked in a browser: use fairlead verify";
      await say("The beacon’s signature is genuine", reason, false);
      return { valid: false, unchecked: true, field: "beacon", reason, proof: p };
    }
    return { valid: true, unchecked: false, field: "", reason: "", proof: p };
  } catch (e) {
    if (!(e instanceof Wrong) && !(e instanceof Malformed)) throw e;
    await say(e instanceof Malformed ? "It is a proof document" : `First difference: ${e.field}`, e.message, false);
    return { valid: false, unchecked: false, field: e.field ?? "document", reason: e.message, proof: p };
  }
}

// verifyInclusion checks that a position is under a root that was sealed. root is the one that the reader has from elsewhere.
export function verifyInclusion(bytes, sealedRoot) {
  try {
    const d = inclusion(read(bytes), "");
    if (d.index >= d.size) throw new Wrong("index");
    let h = leaf(d.position);
    let used = 0;
    for (let i = d.index, w = d.size; w > 1; i >>= 1, w = (w + 1) >> 1) {
      if ((i ^ 1) >= w) continue;
      if (used === d.siblings.length) throw new Wrong("siblings", "hashes are missing on the way to the root");
      const s = unhex(d.siblings[used++]);
      h = i % 2 === 0 ? node(h, s) : node(s, h);
    }
    if (used !== d.siblings.length) throw new Wrong("siblings", "there are more hashes than the way to the root has");
    if (hex(seal(d.campaign, d.size, h)) !== d.root) throw new Wrong("root", "the position does not lead to the root");
    if (sealedRoot !== undefined && sealedRoot !== d.root) throw new Wrong("published root", "the root is not the campaign’s");
    return { valid: true, field: "", reason: "", document: d };
  } catch (e) {
    if (!(e instanceof Wrong) && !(e instanceof Malformed)) throw e;
    return { valid: false, field: e.field ?? "document", reason: e.message };
  }
}
