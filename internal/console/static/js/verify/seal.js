// Verification of a seal in a public log, as docs/design/fairdraw.md, section 9.1, specifies it. What needs a key, which a page can't know
// to trust, is left to fairlead verify: who has signed the checkpoint.
import { sha256 } from "./sha256.js";
import { Wrong, hex, join, unhex } from "./verify.js";

const utf8 = new TextEncoder();
const checkpoints = /^([^\x00-\x1f\x7f]+)\n([1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:— [^\x00-\x20\x7f+]+ [A-Za-z0-9+/=]+\n)+)$/;
const times = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\.\d{6}Z$/;
const lastDue = 253402300799; // the last second of the year 9999

// unbase64 gives the bytes of base64 that is written in the one way that there is, or null.
export function unbase64(s) {
  try {
    const raw = atob(s);
    return btoa(raw) === s ? Uint8Array.from(raw, (c) => c.charCodeAt(0)) : null;
  } catch {
    return null;
  }
}

const quoted = (s) => s.replaceAll("\\", "\\\\").replaceAll('"', '\\"');
const second = (s) => new Date(s * 1000).toISOString().slice(0, 19);

// verifySeal throws Wrong where the seal of a proof does not follow. It gives the log's name, the entry's index and the log's size, when the
// campaign was sealed, when the round was due, and how many signatures the checkpoint has.
export function verifySeal(p) {
  const { seal, beacon } = p;
  const due = beacon.genesis_time + (beacon.round - 1) * beacon.period;
  if (due > lastDue) throw new Wrong("seal.leaf", "the round is due after the year 9999");
  const leaf = unbase64(seal.leaf);
  const head = utf8.encode(`{"type":"campaign.sealed","topic":"campaign:${quoted(p.campaign)}","seq":2,"at":"`);
  const tail = utf8.encode(`","data":{"positions":${p.positions.length},"root":"${p.root}","round":${beacon.round},"due_at":"${second(due)}.000000Z"}}`);
  const at = String.fromCharCode(...leaf.slice(head.length, Math.max(head.length, leaf.length - tail.length)).slice(0, 100));
  const whole = join(head, Uint8Array.from(at, (c) => c.charCodeAt(0)), tail);
  const time = times.exec(at);
  if (!time || hex(whole) !== hex(leaf)) throw new Wrong("seal.leaf", "the log’s entry does not say that this campaign was sealed with this root for this round");
  const exact = Date.parse(`${time[1]}Z`);
  if (Number.isNaN(exact) || second(exact / 1000) !== time[1]) throw new Wrong("seal.leaf", `${at} is no time`);
  // Times of this form are in order as texts are.
  if (at > `${second(due - beacon.period)}.000000Z`) throw new Wrong("seal.leaf", `it was sealed at ${at}, less than a period before the round was due`);

  const found = checkpoints.exec(seal.checkpoint);
  const root = found && unbase64(found[3]);
  const size = found ? Number(found[2]) : 0;
  if (!root || !Number.isSafeInteger(size)) throw new Wrong("seal.checkpoint", "it is not a signed checkpoint of a log");
  if (seal.index >= size) throw new Wrong("seal.index", `the log has ${size} entries, and none of number ${seal.index}`);
  let h = sha256(join([0], leaf));
  let used = 0;
  for (let i = seal.index, w = size; w > 1; i = Math.floor(i / 2), w = Math.ceil(w / 2)) {
    if (i % 2 === 0 && i + 1 >= w) continue;
    if (used === seal.inclusion.length) throw new Wrong("seal.inclusion", "hashes are missing on the way to the log’s root");
    const sibling = unhex(seal.inclusion[used++]);
    h = i % 2 === 0 ? sha256(join([1], h, sibling)) : sha256(join([1], sibling, h));
  }
  if (used !== seal.inclusion.length) throw new Wrong("seal.inclusion", "there are more hashes than the way to the log’s root has");
  if (hex(h) !== hex(root)) throw new Wrong("seal.inclusion", "the entry does not lead to the log’s root");
  return { log: found[1], index: seal.index, size, sealedAt: at, dueAt: new Date(due * 1000).toISOString(), signatures: found[4].split("\n").length - 1 };
}
