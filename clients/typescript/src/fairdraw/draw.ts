import { Writer } from "./bytes.js";
import { Hmac, sha256 } from "./sha256.js";
import { ProofError } from "./shape.js";

export interface Position {
  id: string;
  layer: number;
  number: number;
  account: string;
}

export interface Prize {
  name: string;
  /** 0 means any. */
  layer: number;
  quantity: number;
}

const salt = new TextEncoder().encode("fairlead/fairdraw/v1");

/** HKDF-SHA256 (RFC 5869) with 32 bytes of output; docs/design/fairdraw.md, §1. */
function hkdf(ikm: Uint8Array, info: Uint8Array): Uint8Array {
  const message = new Writer().bytes(info).byte(1);
  return new Hmac(new Hmac(salt).sign(ikm)).sign(message.written);
}

/** §4: the leaf of a position. */
export function leafOf(position: Position, writer = new Writer()): Uint8Array {
  const { id, layer, number, account } = position;
  return sha256(writer.reset().byte(0).text(id).u32(layer).u32(number).text(account).written);
}

/** §4: the node over two others. */
export function nodeOf(left: Uint8Array, right: Uint8Array, writer = new Writer()): Uint8Array {
  return sha256(writer.reset().byte(1).bytes(left).bytes(right).written);
}

/** §11: the top of the tree over a leaf, which is that of RFC 6962. The siblings must be as many as the way has. */
export function climb(leaf: Uint8Array, place: number, width: number, siblings: readonly Uint8Array[], at: string): Uint8Array {
  let hash = leaf;
  let used = 0;
  for (let index = place, size = width; size > 1; index = Math.floor(index / 2), size = Math.ceil(size / 2)) {
    const left = index % 2 === 0;
    if (left && index + 1 >= size) continue;
    const sibling = siblings[used++];
    if (!sibling) throw new ProofError(`${at}: a hash is missing`);
    hash = left ? nodeOf(hash, sibling) : nodeOf(sibling, hash);
  }
  if (used !== siblings.length) throw new ProofError(`${at}: there are more hashes than levels`);
  return hash;
}

/** §4: the root over a tree of so many positions. */
export function rootOf(campaign: string, size: number, tree: Uint8Array): Uint8Array {
  return sha256(new Writer().byte(2).text(campaign).u64(size).bytes(tree).written);
}

/** §4: the tree over positions in canonical order, built level by level. */
export function treeOf(positions: Position[]): Uint8Array {
  const writer = new Writer();
  let level = positions.map((position) => leafOf(position, writer));
  while (level.length > 1) {
    const above: Uint8Array[] = [];
    for (let i = 0; i < level.length; i += 2) {
      const [left, right] = [level[i]!, level[i + 1]];
      above.push(right ? nodeOf(left, right, writer) : left);
    }
    level = above;
  }
  return level[0]!;
}

/** §5: the key of the draw's streams. An absent beacon is no bytes. */
export function drawSeed(serverSeed: Uint8Array, beacon: Uint8Array, root: Uint8Array, campaign: string, prizes: Prize[]): Uint8Array {
  const list = new Writer().byte(3).u32(prizes.length);
  for (const { name, layer, quantity } of prizes) list.text(name).u32(layer).u32(quantity);
  const ikm = new Writer().bytes(serverSeed).bytes(beacon).bytes(root);
  const info = new Writer().text("draw").text(campaign).bytes(sha256(list.written));
  return hkdf(ikm.written, info.written);
}

/** §6: a stream of random integers under a key. */
export class Stream {
  readonly #counter = new DataView(new ArrayBuffer(16));
  #block = new DataView<ArrayBufferLike>(new ArrayBuffer(0));
  #at = 0;

  constructor(
    private readonly key: Hmac,
    index: bigint,
  ) {
    this.#counter.setBigUint64(0, index);
  }

  /** The next integer of 64 bits. */
  next(): bigint {
    if (this.#at === this.#block.byteLength) {
      this.#block = new DataView(this.key.sign(new Uint8Array(this.#counter.buffer)).buffer);
      this.#at = 0;
      this.#counter.setBigUint64(8, this.#counter.getBigUint64(8) + 1n);
    }
    const value = this.#block.getBigUint64(this.#at);
    this.#at += 8;
    return value;
  }

  /** A uniform integer from 0 to n − 1. */
  below(n: bigint): bigint {
    const bound = all - (all % n);
    for (;;) {
      const value = this.next();
      if (value < bound) return value % n;
    }
  }

  /** The first k of the numbers from 0 to n − 1, shuffled. */
  sample(n: number, k: number): number[] {
    const moved = new Map<number, number>(); // The places of the list that hold another number than their own.
    const chosen: number[] = [];
    for (let i = 0; i < k; i++) {
      const other = i + Number(this.below(BigInt(n - i)));
      chosen.push(moved.get(other) ?? other);
      moved.set(other, moved.get(i) ?? i);
    }
    return chosen;
  }
}

const all = 2n ** 64n;

/** The places of the positions of a layer, of all for layer 0: from the first one up to the second, in canonical order. */
export function eligible(positions: Position[], layer: number): [number, number] {
  if (layer === 0) return [0, positions.length];
  return [firstFrom(positions, layer), firstFrom(positions, layer + 1)];
}

/** The place of the first position in this layer or a later one. */
function firstFrom(positions: Position[], layer: number): number {
  let [low, high] = [0, positions.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (positions[middle]!.layer < layer) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** §7: the winners, prize after prize. */
export function* winnersOf(seed: Uint8Array, positions: Position[], prizes: Prize[]): Generator<{ prize: string; position: Position }> {
  const key = new Hmac(seed);
  for (const [i, { name, layer, quantity }] of prizes.entries()) {
    const [from, to] = eligible(positions, layer);
    for (const chosen of new Stream(key, BigInt(i)).sample(to - from, quantity)) {
      yield { prize: name, position: positions[from + chosen]! };
    }
  }
}
