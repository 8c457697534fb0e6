/**
 * Verifies draws and proofs of inclusion, by docs/design/fairdraw.md alone: no server is asked.
 */
import { type SignedMessage, verifyBeacon } from "./beacon.js";
import { fromHex, toHex } from "./bytes.js";
import { type Inclusion, million, type Proof, readInclusion, readProof } from "./document.js";
import { climb, drawSeed, eligible, leafOf, rootOf, treeOf, winnersOf } from "./draw.js";
import { checkSeal } from "./seal.js";
import { sha256 } from "./sha256.js";
import { ProofError } from "./shape.js";

export type { BeaconScheme, BeaconSignature, SignedMessage } from "./beacon.js";
export type { Inclusion, Proof, Winner } from "./document.js";
export type { Position, Prize } from "./draw.js";
export { type LogSeal, type SealKeys, type Sighting, verifySeal } from "./seal.js";
export { ProofError } from "./shape.js";

/** What a verifier knows from elsewhere than the document, and compares it with. */
export interface Published {
  /**
   * The commitment that was published before the first sale, in hexadecimal. A document proves nothing but that it agrees with itself if
   * it is null.
   */
  commitment: string | null;
  /** In beacon mode, the root that was published after the last sale and before the round was due. */
  root?: string | undefined;
  /** In beacon mode, the number of the round that was published with the root. */
  round?: number | undefined;
  /** The hashes of chains to trust beside the League of Entropy's quicknet and default. */
  chains?: readonly string[] | undefined;
  /**
   * Verifies a BLS signature, for which this package has no code of its own; README.md shows one with @noble/curves. It returns false or
   * throws where the signature is not valid. A proof in beacon mode is not valid without it.
   */
  verifySignature?: ((signed: SignedMessage) => boolean) | undefined;
}

/**
 * Recomputes a draw from the document of `GET /v1/campaigns/{id}/proof`, as bytes or text but never as an object: a JSON parser may already have
 * mended or rounded what it read. Of a seal in a public log, it verifies that the log's entry is that of the draw and is under the checkpoint;
 * {@link verifySeal} verifies who has signed that. It returns the proof, or throws a {@link ProofError} that names the first difference. It takes some 20 µs a
 * position, so give very large draws to a worker.
 */
export function verifyProof(document: Uint8Array | string, published: Published): Proof {
  const proof = readProof(document);
  const { campaign, positions, prizes } = proof;
  checkInputs(proof);
  compare("commitment", proof.commitment, toHex(sha256(fromHex(proof.server_seed))));
  const root = rootOf(campaign, positions.length, treeOf(positions));
  compare("root", proof.root, toHex(root));
  const signature = fromHex(proof.beacon?.signature ?? "");
  const seed = drawSeed(fromHex(proof.server_seed), signature, root, campaign, prizes);
  compare("draw_seed", proof.draw_seed, toHex(seed));
  let count = 0;
  for (const { prize, position } of winnersOf(seed, positions, prizes)) {
    const said = proof.winners[count];
    const { id, layer, number, account } = position;
    const right =
      said?.prize === prize && said.layer === layer && said.account === account && said.position.id === id && said.position.layer === layer && said.position.number === number;
    if (!right) throw new ProofError(`winners[${count}] is not position ${id} with the prize ${prize}`);
    count++;
  }
  if (proof.winners.length !== count) throw new ProofError(`there are ${proof.winners.length} winners, not ${count}`);
  if (proof.seal) checkSeal(proof);
  if (proof.beacon) verifyBeacon(proof.beacon, published.chains ?? [], published.verifySignature);
  if (published.commitment !== null) compare("commitment", proof.commitment, published.commitment, "published");
  if (published.root !== undefined) compare("root", proof.root, published.root, "published");
  if (published.round !== undefined) compare("round", String(proof.beacon?.round), String(published.round), "published");
  return proof;
}

/**
 * Verifies that a position is in the list under a root, from the document of `GET /v1/campaigns/{id}/proof/positions/{position}`. The root must
 * come from elsewhere, such as from the campaign's proof. It returns the document, or throws a {@link ProofError}.
 */
export function verifyInclusion(document: Uint8Array | string, published: { root: string }): Inclusion {
  const inclusion = readInclusion(document);
  const hash = climb(leafOf(inclusion.position), inclusion.index, inclusion.size, inclusion.siblings.map(fromHex), "siblings");
  compare("root", inclusion.root, toHex(rootOf(inclusion.campaign, inclusion.size, hash)));
  compare("root", inclusion.root, published.root, "published");
  return inclusion;
}

/** §2: the rules that concern more than one member. */
function checkInputs({ server_seed, positions, prizes }: Proof): void {
  if (/^0*$/.test(server_seed)) throw new ProofError("server_seed is zero");
  positions.forEach(({ layer, number }, i) => {
    const before = positions[i - 1];
    if (before && (layer < before.layer || (layer === before.layer && number <= before.number))) {
      throw new ProofError(`positions[${i}] is not behind the one before it in canonical order`);
    }
  });
  if (new Set(positions.map(({ id }) => id)).size !== positions.length) throw new ProofError("two positions have the same id");
  if (new Set(prizes.map(({ name }) => name)).size !== prizes.length) throw new ProofError("two prizes have the same name");
  let winners = 0;
  prizes.forEach(({ layer, quantity }, i) => {
    const [from, to] = eligible(positions, layer);
    if (quantity > to - from) throw new ProofError(`prizes[${i}].quantity is over the ${to - from} eligible positions`);
    winners += quantity;
  });
  if (winners > million) throw new ProofError(`there are ${winners} winners, over ${million}`);
}

function compare(what: string, said: string, found: string, how = "recomputed"): void {
  if (said !== found) throw new ProofError(`the document's ${what} is ${said}, the ${how} one is ${found}`);
}
