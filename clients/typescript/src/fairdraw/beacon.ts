import { fromHex, toHex, Writer } from "./bytes.js";
import { sha256 } from "./sha256.js";
import { fields, hex, integer, ProofError, text } from "./shape.js";

/** The round of a public beacon that decided a draw, docs/design/fairdraw.md, §10, with its members' own names. */
export interface BeaconSignature {
  scheme: BeaconScheme;
  chain_hash: string;
  public_key: string;
  period: number;
  genesis_time: number;
  genesis_seed: string;
  beacon_id: string;
  round: number;
  signature: string;
  previous_signature?: string;
}

export type BeaconScheme = "bls-unchained-g1-rfc9380" | "pedersen-bls-chained";

/** What a verifier of BLS signatures is given; §10 says on which curve, and with which domain separation tag. */
export interface SignedMessage {
  scheme: BeaconScheme;
  message: Uint8Array;
  publicKey: Uint8Array;
  signature: Uint8Array;
}

/** The League of Entropy's chains quicknet and default. A chain's hash fixes all its constants but the scheme. */
const pinned = new Map<string, BeaconScheme>([
  ["52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971", "bls-unchained-g1-rfc9380"],
  ["8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce", "pedersen-bls-chained"],
]);

const required = ["scheme", "chain_hash", "public_key", "period", "genesis_time", "genesis_seed", "beacon_id", "round", "signature"];

/** How many bytes a public key and a signature have. */
const sizes: Record<BeaconScheme, { key: number; signature: number }> = {
  "bls-unchained-g1-rfc9380": { key: 96, signature: 48 },
  "pedersen-bls-chained": { key: 48, signature: 96 },
};

export function readBeacon(value: unknown): BeaconSignature {
  const f = fields(value, "beacon", required, ["previous_signature"]);
  const scheme = text(f["scheme"], "beacon.scheme");
  if (scheme !== "bls-unchained-g1-rfc9380" && scheme !== "pedersen-bls-chained") throw new ProofError(`the beacon's scheme ${scheme} is not known`);
  const beacon: BeaconSignature = {
    scheme,
    chain_hash: toHex(hex(f["chain_hash"], "beacon.chain_hash", 32, 32)),
    public_key: toHex(hex(f["public_key"], "beacon.public_key", 1, 256)),
    period: integer(f["period"], "beacon.period", 1, 86_400),
    genesis_time: integer(f["genesis_time"], "beacon.genesis_time", 1, 253_402_300_799),
    genesis_seed: toHex(hex(f["genesis_seed"], "beacon.genesis_seed", 1, 256)),
    beacon_id: text(f["beacon_id"], "beacon.beacon_id"),
    round: integer(f["round"], "beacon.round", 1, Number.MAX_SAFE_INTEGER),
    signature: toHex(hex(f["signature"], "beacon.signature", 1, 1024)),
  };
  if ("previous_signature" in f !== (scheme === "pedersen-bls-chained")) throw new ProofError("a chained beacon, and no other, has a previous_signature");
  if ("previous_signature" in f) beacon.previous_signature = toHex(hex(f["previous_signature"], "beacon.previous_signature", 1, 1024));
  return beacon;
}

/** Verifies that a trusted chain signed the round. */
export function verifyBeacon(beacon: BeaconSignature, trusted: readonly string[], verify: ((signed: SignedMessage) => boolean) | undefined): void {
  const { scheme, round } = beacon;
  const [publicKey, genesisSeed, signature] = [fromHex(beacon.public_key), fromHex(beacon.genesis_seed), fromHex(beacon.signature)];
  const description = new Writer().u32(beacon.period).u64(beacon.genesis_time).bytes(publicKey).bytes(genesisSeed);
  if (beacon.beacon_id !== "default") description.bytes(new TextEncoder().encode(beacon.beacon_id));
  if (toHex(sha256(description.written)) !== beacon.chain_hash) throw new ProofError("the beacon's chain_hash is not that of its chain");
  const pinnedScheme = pinned.get(beacon.chain_hash);
  if (pinnedScheme === undefined && !trusted.includes(beacon.chain_hash)) throw new ProofError(`the beacon's chain ${beacon.chain_hash} is not trusted`);
  if (pinnedScheme !== undefined && pinnedScheme !== scheme) throw new ProofError(`the beacon's chain does not sign by ${scheme}`);
  const size = sizes[scheme];
  if (publicKey.length !== size.key || signature.length !== size.signature) throw new ProofError(`a key or a signature has not the length that ${scheme} wants`);
  const message = new Writer();
  if (beacon.previous_signature !== undefined) {
    const previous = fromHex(beacon.previous_signature);
    const first = round === 1;
    if (first ? beacon.previous_signature !== beacon.genesis_seed : previous.length !== size.signature) {
      throw new ProofError("the beacon's previous_signature is not one of its chain");
    }
    message.bytes(previous);
  }
  message.u64(round);
  if (!verify) throw new ProofError("a beacon decided the draw, and its signature can't be verified without verifySignature");
  let valid: boolean;
  try {
    valid = verify({ scheme, message: sha256(message.written), publicKey, signature });
  } catch (error) {
    throw new ProofError("the beacon's signature can't be verified", { cause: error });
  }
  if (!valid) throw new ProofError("the beacon's signature is not valid");
}
