import { fromHex, toHex } from "./bytes.js";
import type { BeaconSignature } from "./beacon.js";
import { climb } from "./draw.js";
import { sha256 } from "./sha256.js";
import { fields, hash, integer, list, ProofError } from "./shape.js";

/** Where the seal of a draw is in a public log, docs/design/fairdraw.md, §9.1, with its members' own names. */
export interface LogSeal {
  /** The log's entry, in base64. */
  leaf: string;
  index: number;
  /** Hashes in hexadecimal from the entry up to the checkpoint's root. */
  inclusion: string[];
  /** A signed note. */
  checkpoint: string;
}

/** Who has seen a seal before its round was due. */
export interface Sighting {
  /** The log's name. */
  log: string;
  /** When the round was due, in Unix seconds. */
  due: number;
  /** How many signatures the checkpoint has, known or not. */
  signatures: number;
  /** The names of the given witnesses that have certainly signed before the round was due, the earliest first. */
  witnesses: string[];
  /** How long before the round the last of them had signed; null where none has. */
  secondsBefore: number | null;
}

/** Whose signatures count. */
export interface SealKeys {
  /** The verifier key of the log, as `/log/key` has it, from where you trust it. */
  log: string;
  /** The verifier keys of witnesses. */
  witnesses?: readonly string[] | undefined;
  /** How many of them must have signed in time; 1 where any is given. */
  quorum?: number | undefined;
}

interface Sealed {
  campaign: string;
  root: string;
  positions: readonly unknown[];
  beacon?: BeaconSignature;
  seal?: LogSeal;
}

const maxLeaf = 65_535;
const maxCheckpoint = 128 * 1024;
const maxSiblings = 53;
const lastDue = 253_402_300_799; // the last second of the year 9999

const checkpoints = /^([^\u0000-\u001f\u007f]+)\n([1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:— [^\u0000-\u0020\u007f+]+ [A-Za-z0-9+/=]+\n)+)$/;
const times = /^(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})\.\d{6}Z$/;
const utf8 = new TextEncoder();

export function readSeal(value: unknown): LogSeal {
  const f = fields(value, "seal", ["leaf", "index", "inclusion", "checkpoint"]);
  const { leaf, checkpoint } = f;
  const raw = typeof leaf === "string" && leaf !== "" ? fromBase64(leaf) : null;
  if (typeof leaf !== "string" || !raw || raw.length > maxLeaf) throw new ProofError(`seal.leaf is not 1 to ${maxLeaf} bytes in base64`);
  if (typeof checkpoint !== "string" || checkpoint === "" || utf8.encode(checkpoint).length > maxCheckpoint) {
    throw new ProofError(`seal.checkpoint is not 1 to ${maxCheckpoint} bytes`);
  }
  return {
    leaf,
    index: integer(f["index"], "seal.index", 0, Number.MAX_SAFE_INTEGER - 1),
    inclusion: list(f["inclusion"], "seal.inclusion", 0, maxSiblings).map((h, i) => hash(h, `seal.inclusion[${i}]`)),
    checkpoint,
  };
}

/** Verifies what needs no key: the log's entry is that of the draw, and it is under the checkpoint. */
export function checkSeal({ campaign, root, positions, beacon, seal }: Sealed): { log: string; due: number; signatures: string } {
  if (!beacon || !seal) throw new ProofError("the proof has no seal in a public log");
  const due = beacon.genesis_time + (beacon.round - 1) * beacon.period;
  if (due > lastDue) throw new ProofError("the seal's round is due after the year 9999");
  const leaf = fromBase64(seal.leaf) ?? new Uint8Array();
  const topic = `campaign:${campaign.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}`;
  const head = utf8.encode(`{"type":"campaign.sealed","topic":"${topic}","seq":2,"at":"`);
  const tail = utf8.encode(`","data":{"positions":${positions.length},"root":"${root}","round":${beacon.round},"due_at":"${second(due)}.000000Z"}}`);
  const at = String.fromCharCode(...leaf.subarray(head.length, head.length + "2006-01-02T15:04:05.000000Z".length));
  const time = times.exec(at);
  const right = leaf.length === head.length + at.length + tail.length && startsWith(leaf, head) && startsWith(leaf.subarray(head.length + at.length), tail);
  if (!time?.[1] || !right) throw new ProofError("seal.leaf does not say that this campaign was sealed with this root for this round");
  const exact = Date.parse(`${time[1]}Z`);
  if (Number.isNaN(exact) || second(exact / 1000) !== time[1]) throw new ProofError(`seal.leaf: ${at} is no time`);
  // Times of this form are in order as texts are.
  if (at > `${second(due - beacon.period)}.000000Z`) throw new ProofError(`seal.leaf: sealed at ${at}, less than a period before the round was due`);

  const [, log = "", size = "", root64 = "", signatures = ""] = checkpoints.exec(seal.checkpoint) ?? [];
  const top = fromBase64(root64);
  if (log === "" || !top || !Number.isSafeInteger(Number(size))) throw new ProofError("seal.checkpoint is not a signed checkpoint of a log");
  if (seal.index >= Number(size)) throw new ProofError(`seal.index is ${seal.index}, and the log has ${size} entries`);
  const found = climb(sha256(Uint8Array.of(0, ...leaf)), seal.index, Number(size), seal.inclusion.map(fromHex), "seal.inclusion");
  if (toHex(found) !== toHex(top)) throw new ProofError("seal.inclusion does not lead to the log's root");
  return { log, due, signatures };
}

/**
 * Verifies who has seen the seal of a proof that {@link verifyProof} has returned, by Ed25519 of WebCrypto. It throws a {@link ProofError} where
 * the log has not signed the checkpoint, where a signature of a known key does not verify, and where too few witnesses have signed in time.
 */
export async function verifySeal(proof: Sealed, keys: SealKeys): Promise<Sighting> {
  const { log, due, signatures } = checkSeal(proof);
  const text = (proof.seal as LogSeal).checkpoint.split("\n\n", 1)[0] + "\n";
  const lines = signatures.split("\n").slice(0, -1);
  const wanted = [keyOf(keys.log, 1), ...new Set(keys.witnesses)].map((k) => (typeof k === "string" ? keyOf(k, 4) : k));
  let signed = false;
  const seen: { name: string; at: number }[] = [];
  for (const key of wanted) {
    // Of several signatures of one key, readers of notes look at the first.
    for (const line of lines) {
      const [, name, base64 = ""] = line.split(" ");
      const raw = fromBase64(base64);
      if (name !== key.name || !raw || toHex(raw.subarray(0, 4)) !== key.hash) continue;
      const cosigned = key.kind === 4;
      const at = cosigned && raw.length === 76 ? Number(new DataView(raw.buffer, 4, 8).getBigUint64(0)) : 0;
      const message = cosigned ? `cosignature/v1\ntime ${at}\n${text}` : text;
      const imported = await crypto.subtle.importKey("raw", key.bytes, "Ed25519", false, ["verify"]);
      const good = raw.length === (cosigned ? 76 : 68) && (await crypto.subtle.verify("Ed25519", imported, raw.slice(cosigned ? 12 : 4), utf8.encode(message)));
      if (!good || (cosigned && (at <= 0 || at > lastDue))) throw new ProofError(`the signature of ${name} on the checkpoint does not verify`);
      // Its time is cut to whole seconds, so it may have been made almost a second later.
      if (cosigned && at + 1 <= due) seen.push({ name, at });
      signed ||= !cosigned;
      break;
    }
  }
  if (!signed || log !== wanted[0]?.name) throw new ProofError(`the log ${wanted[0]?.name ?? ""} has not signed the checkpoint`);
  const quorum = keys.quorum ?? Math.min(1, keys.witnesses?.length ?? 0);
  if (seen.length < quorum) throw new ProofError(`${seen.length} witnesses have seen the seal before the round, of the ${quorum} that must have`);
  seen.sort((a, b) => a.at - b.at);
  const last = seen.at(-1);
  return { log, due, signatures: lines.length, witnesses: seen.map(({ name }) => name), secondsBefore: last ? due - last.at : null };
}

/** A verifier key: name, hash and key with its kind in front, as signed notes have them. */
function keyOf(vkey: string, kind: 1 | 4): { name: string; hash: string; kind: 1 | 4; bytes: Uint8Array<ArrayBuffer> } {
  const [, name = "", said = "", base64 = ""] = /^([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/=]+)$/.exec(vkey) ?? [];
  const raw = fromBase64(base64);
  if (!raw || raw.length !== 33 || raw[0] !== kind) throw new TypeError(`${vkey} is no key of a ${kind === 1 ? "log" : "witness"}`);
  const sum = toHex(sha256(Uint8Array.of(...utf8.encode(`${name}\n`), ...raw)).subarray(0, 4));
  if (sum !== said) throw new TypeError(`the hash in ${vkey} is not its own`);
  return { name, hash: sum, kind, bytes: raw.slice(1) };
}

const second = (at: number): string => new Date(at * 1000).toISOString().slice(0, 19);

function startsWith(bytes: Uint8Array, head: Uint8Array): boolean {
  return head.every((byte, i) => bytes[i] === byte);
}

/** The bytes of base64 that is written in the one way that there is, or null. */
function fromBase64(text: string): Uint8Array<ArrayBuffer> | null {
  try {
    const raw = atob(text);
    return btoa(raw) === text ? Uint8Array.from(raw, (c) => c.charCodeAt(0)) : null;
  } catch {
    return null;
  }
}
