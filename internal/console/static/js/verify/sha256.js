// SHA-256 (FIPS 180-4), HMAC (RFC 2104) and the HKDF of docs/design/fairdraw.md, synchronous. A proof of a million positions is
// four million small hashes, which a browser's own asynchronous ones would take minutes for; and a page that was fetched without
// TLS from another machine has none. Where there are some, verify.js makes them agree with these.

const constants = new Uint32Array(64);
const initial = new Uint32Array(8);

// The constants are the first bits of the fractional parts of cube and square roots of the first primes, found here by integer
// arithmetic rather than listed.
{
  const root = (n, k) => {
    let x = 1n << 40n;
    for (;;) {
      const y = ((k - 1n) * x + n / x ** (k - 1n)) / k;
      if (y >= x) return x;
      x = y;
    }
  };
  const primes = [];
  for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p !== 0)) primes.push(n);
  primes.forEach((p, i) => {
    constants[i] = Number(root(BigInt(p) << 96n, 3n) & 0xffffffffn);
    if (i < 8) initial[i] = Number(root(BigInt(p) << 64n, 2n) & 0xffffffffn);
  });
}

const w = new Uint32Array(64);

function compress(state, bytes, at) {
  for (let i = 0; i < 16; i++, at += 4) w[i] = (bytes[at] << 24) | (bytes[at + 1] << 16) | (bytes[at + 2] << 8) | bytes[at + 3];
  for (let i = 16; i < 64; i++) {
    const x = w[i - 15];
    const y = w[i - 2];
    w[i] = (w[i - 16] + w[i - 7] + (((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3)) + (((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10))) | 0;
  }
  let a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], z = state[7];
  for (let i = 0; i < 64; i++) {
    const t1 = (z + (((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7))) + ((e & f) ^ (~e & g)) + constants[i] + w[i]) | 0;
    const t2 = ((((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10))) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    z = g;
    g = f;
    f = e;
    e = (d + t1) | 0;
    d = c;
    c = b;
    b = a;
    a = (t1 + t2) | 0;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
  state[4] += e;
  state[5] += f;
  state[6] += g;
  state[7] += z;
}

// finish hashes bytes behind what state has taken already, which was before bytes long (a multiple of 64).
function finish(state, bytes, before) {
  let at = 0;
  for (; at + 64 <= bytes.length; at += 64) compress(state, bytes, at);
  const rest = bytes.length - at;
  const tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(bytes.subarray(at));
  tail[rest] = 0x80;
  const bits = (before + bytes.length) * 8;
  const view = new DataView(tail.buffer);
  view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
  view.setUint32(tail.length - 4, bits >>> 0);
  for (let i = 0; i < tail.length; i += 64) compress(state, tail, i);
  const out = new Uint8Array(32);
  const result = new DataView(out.buffer);
  for (let i = 0; i < 8; i++) result.setUint32(4 * i, state[i]);
  return out;
}

// sha256 hashes bytes.
export const sha256 = (bytes) => finish(initial.slice(), bytes, 0);

// hmac prepares HMAC-SHA256 under a key and returns the function of the message.
export function hmac(key) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const [inner, outer] = [0x36, 0x5c].map((pad) => {
    const state = initial.slice();
    compress(state, block.map((x) => x ^ pad), 0);
    return state;
  });
  return (message) => finish(outer.slice(), finish(inner.slice(), message, 64), 64);
}

// hkdf derives 32 bytes (RFC 5869).
export function hkdf(salt, ikm, info) {
  const message = new Uint8Array(info.length + 1);
  message.set(info);
  message[info.length] = 1;
  return hmac(hmac(salt)(ikm))(message);
}
