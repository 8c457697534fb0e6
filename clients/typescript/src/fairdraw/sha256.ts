/**
 * SHA-256 (FIPS 180-4) and HMAC (RFC 2104). Not WebCrypto's: a proof takes two hashes a position, and each of WebCrypto's is a task of its own,
 * some thirty times slower for these few bytes, and not there for pages without TLS. Nothing that is hashed here is secret.
 */

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes, and of the square roots of the first 8.
const rounds = Uint32Array.of(
  0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
  0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
  0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
  0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
  0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
  0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
  0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
  0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
);
const initial = Uint32Array.of(0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19);

const schedule = new Int32Array(64);

/** Takes one block of 64 bytes into a state of eight words. */
function compress(state: Uint32Array, bytes: Uint8Array, at: number): void {
  const w = schedule;
  for (let i = 0; i < 16; i++, at += 4) {
    w[i] = (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;
  }
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15]!;
    const y = w[i - 2]!;
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + rounds[i]! + w[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0]! += a;
  state[1]! += b;
  state[2]! += c;
  state[3]! += d;
  state[4]! += e;
  state[5]! += f;
  state[6]! += g;
  state[7]! += h;
}

const padded = new Uint8Array(128);

/** Finishes a hash whose state has taken `before` bytes, a multiple of 64. */
function finish(state: Uint32Array, message: Uint8Array, before: number): Uint8Array {
  let at = 0;
  for (; message.length - at >= 64; at += 64) compress(state, message, at);
  const rest = message.length - at;
  const size = rest < 56 ? 64 : 128;
  padded.fill(0);
  padded.set(message.subarray(at));
  padded[rest] = 0x80;
  new DataView(padded.buffer).setBigUint64(size - 8, BigInt(before + message.length) * 8n);
  for (let block = 0; block < size; block += 64) compress(state, padded, block);
  const digest = new Uint8Array(32);
  const view = new DataView(digest.buffer);
  state.forEach((word, i) => view.setUint32(4 * i, word));
  return digest;
}

export function sha256(message: Uint8Array): Uint8Array {
  return finish(initial.slice(), message, 0);
}

/** HMAC-SHA256 under one key. */
export class Hmac {
  readonly #inner = initial.slice();
  readonly #outer = initial.slice();

  constructor(key: Uint8Array) {
    const block = new Uint8Array(64);
    block.set(key.length > 64 ? sha256(key) : key);
    compress(this.#inner, block.map((byte) => byte ^ 0x36), 0);
    compress(this.#outer, block.map((byte) => byte ^ 0x5c), 0);
  }

  sign(message: Uint8Array): Uint8Array {
    return finish(this.#outer.slice(), finish(this.#inner.slice(), message, 64), 64);
  }
}
