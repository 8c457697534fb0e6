import { decodeStrictly } from "../json.js";
import { type BeaconSignature, readBeacon } from "./beacon.js";
import type { Position, Prize } from "./draw.js";
import { type LogSeal, readSeal } from "./seal.js";
import { fields, hash, hex, integer, list, ProofError, text } from "./shape.js";

/** A proof document, docs/design/fairdraw.md, §9, with its members' own names. */
export interface Proof {
  versions: { document: 1 | 2 | 3; algorithm: 1 };
  campaign: string;
  commitment: string;
  server_seed: string;
  root: string;
  draw_seed: string;
  /** Absent in instant mode. */
  beacon?: BeaconSignature;
  /** Where the seal is in a public log, in documents of version 3. */
  seal?: LogSeal;
  positions: Position[];
  prizes: Prize[];
  winners: Winner[];
}

export interface Winner {
  prize: string;
  layer: number;
  position: { id: string; layer: number; number: number };
  account: string;
}

/** An inclusion document, §11. */
export interface Inclusion {
  versions: { document: 1; algorithm: 1 };
  campaign: string;
  root: string;
  position: Position;
  index: number;
  size: number;
  siblings: string[];
}

/** The most positions, winners, and layers and numbers of a position. */
export const million = 1_000_000;
const maxPrizes = 10_000;
const maxSiblings = 20;

/** Reads a document and its members' types. Where the bytes are not the whole truth, as in an object, they can't be verified. */
export function readProof(document: Uint8Array | string): Proof {
  const all = read(document, 2 ** 30);
  const f = fields(all, "the proof", proofMembers, ["beacon", "seal"]);
  const { document: version } = readVersions(f["versions"], [1, 2, 3]);
  const proof: Proof = {
    versions: { document: version as 1 | 2 | 3, algorithm: 1 },
    campaign: text(f["campaign"], "campaign"),
    commitment: hash(f["commitment"], "commitment"),
    server_seed: hash(f["server_seed"], "server_seed"),
    root: hash(f["root"], "root"),
    draw_seed: hash(f["draw_seed"], "draw_seed"),
    positions: list(f["positions"], "positions", 1, million).map((p, i) => readPosition(p, `positions[${i}]`)),
    prizes: list(f["prizes"], "prizes", 0, maxPrizes).map((p, i) => readPrize(p, `prizes[${i}]`)),
    winners: list(f["winners"], "winners", 0, million).map((w, i) => readWinner(w, `winners[${i}]`)),
  };
  if (version === 3) {
    proof.seal = readSeal(f["seal"]);
  } else if ("seal" in f) {
    throw new ProofError("a document of this version has no seal");
  }
  if (version >= 2) {
    proof.beacon = readBeacon(f["beacon"]);
  } else if ("beacon" in f) {
    hex(fields(f["beacon"], "beacon", ["signature"])["signature"], "beacon.signature", 1, 1024);
    throw new ProofError("the document's beacon has a bare signature, so the operator may have chosen it");
  }
  return proof;
}

const proofMembers = ["versions", "campaign", "commitment", "server_seed", "root", "draw_seed", "positions", "prizes", "winners"];

export function readInclusion(document: Uint8Array | string): Inclusion {
  const f = fields(read(document, 2 ** 16), "the document", ["versions", "campaign", "root", "position", "index", "size", "siblings"]);
  readVersions(f["versions"], [1]);
  const size = integer(f["size"], "size", 1, million);
  return {
    versions: { document: 1, algorithm: 1 },
    campaign: text(f["campaign"], "campaign"),
    root: hash(f["root"], "root"),
    position: readPosition(f["position"], "position"),
    index: integer(f["index"], "index", 0, size - 1),
    size,
    siblings: list(f["siblings"], "siblings", 0, maxSiblings).map((s, i) => hash(s, `siblings[${i}]`)),
  };
}

function read(document: Uint8Array | string, limit: number): unknown {
  try {
    if (typeof document === "string") {
      if (/\p{Surrogate}/u.test(document)) throw new SyntaxError("a lone surrogate");
      if (document.length > limit / 3 && new TextEncoder().encode(document).length > limit) throw new RangeError(`more than ${limit} bytes`);
      return decodeStrictly(document);
    }
    if (document.length > limit) throw new RangeError(`more than ${limit} bytes`);
    return decodeStrictly(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(document));
  } catch (error) {
    throw new ProofError(`the document can't be read: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function readVersions(value: unknown, known: number[]): { document: number } {
  const { document, algorithm } = fields(value, "versions", ["document", "algorithm"]);
  if (typeof document !== "number" || !known.includes(document) || algorithm !== 1) throw new ProofError("the document's version is not known");
  return { document };
}

function readPosition(value: unknown, at: string): Position {
  const f = fields(value, at, ["id", "layer", "number", "account"]);
  return { ...readPlace(f, at), account: text(f["account"], `${at}.account`) };
}

function readPlace(f: Record<string, unknown>, at: string): { id: string; layer: number; number: number } {
  return { id: text(f["id"], `${at}.id`), layer: integer(f["layer"], `${at}.layer`, 1, million), number: integer(f["number"], `${at}.number`, 1, million) };
}

function readPrize(value: unknown, at: string): Prize {
  const f = fields(value, at, ["name", "layer", "quantity"]);
  return {
    name: text(f["name"], `${at}.name`),
    layer: integer(f["layer"], `${at}.layer`, 0, million),
    quantity: integer(f["quantity"], `${at}.quantity`, 1, million),
  };
}

function readWinner(value: unknown, at: string): Winner {
  const f = fields(value, at, ["prize", "layer", "position", "account"]);
  return {
    prize: text(f["prize"], `${at}.prize`),
    layer: integer(f["layer"], `${at}.layer`, 1, million),
    position: readPlace(fields(f["position"], `${at}.position`, ["id", "layer", "number"]), `${at}.position`),
    account: text(f["account"], `${at}.account`),
  };
}
