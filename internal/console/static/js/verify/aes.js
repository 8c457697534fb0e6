// AES-256 of single blocks (FIPS 197), synchronous, for the draws of multi-draws. The browser's own is asynchronous, and absent on pages
// that were fetched without TLS from another machine; where it is there, multidraw.js makes it agree with this one.

const box = new Uint8Array(256);
const tables = [0, 1, 2, 3].map(() => new Uint32Array(256)); // SubBytes, ShiftRows' byte and MixColumns in one

// double multiplies by x in the field of AES.
const double = (b) => ((b << 1) ^ (b & 0x80 ? 0x11b : 0)) & 0xff;

{
  // The box is the inverse in the field, and an affine map: found by walking over the powers of x + 1 and of its inverse.
  let p = 1;
  let q = 1;
  do {
    p ^= double(p);
    q ^= q << 1;
    q ^= q << 2;
    q ^= q << 4;
    q &= 0xff;
    if (q & 0x80) q ^= 0x09;
    const turn = (n) => ((q << n) | (q >> (8 - n))) & 0xff;
    box[p] = q ^ turn(1) ^ turn(2) ^ turn(3) ^ turn(4) ^ 0x63;
  } while (p !== 1);
  box[0] = 0x63;
  for (let i = 0; i < 256; i++) {
    const s = box[i];
    const two = double(s);
    const column = ((two << 24) | (s << 16) | (s << 8) | (two ^ s)) >>> 0;
    for (let n = 0; n < 4; n++) tables[n][i] = n === 0 ? column : ((column >>> (8 * n)) | (column << (32 - 8 * n))) >>> 0;
  }
}

const rounds = 14;
const substitute = (w) => (box[w >>> 24] << 24) | (box[(w >>> 16) & 255] << 16) | (box[(w >>> 8) & 255] << 8) | box[w & 255];

// aes256 prepares a key of 32 bytes. It returns a function that encrypts a block of four words of 32 bits into out.
export function aes256(key) {
  const k = new Uint32Array(4 * (rounds + 1));
  const bytes = new DataView(key.buffer, key.byteOffset, 32);
  for (let i = 0; i < 8; i++) k[i] = bytes.getUint32(4 * i);
  for (let i = 8, power = 1; i < k.length; i++) {
    let t = k[i - 1];
    if (i % 8 === 0) {
      t = substitute((t << 8) | (t >>> 24)) ^ (power << 24);
      power = double(power);
    } else if (i % 8 === 4) {
      t = substitute(t);
    }
    k[i] = k[i - 8] ^ t;
  }
  const [t0, t1, t2, t3] = tables;
  return (w0, w1, w2, w3, out) => {
    let a = w0 ^ k[0], b = w1 ^ k[1], c = w2 ^ k[2], d = w3 ^ k[3];
    for (let at = 4; at < 4 * rounds; at += 4) {
      const e = t0[a >>> 24] ^ t1[(b >>> 16) & 255] ^ t2[(c >>> 8) & 255] ^ t3[d & 255] ^ k[at];
      const f = t0[b >>> 24] ^ t1[(c >>> 16) & 255] ^ t2[(d >>> 8) & 255] ^ t3[a & 255] ^ k[at + 1];
      const g = t0[c >>> 24] ^ t1[(d >>> 16) & 255] ^ t2[(a >>> 8) & 255] ^ t3[b & 255] ^ k[at + 2];
      d = t0[d >>> 24] ^ t1[(a >>> 16) & 255] ^ t2[(b >>> 8) & 255] ^ t3[c & 255] ^ k[at + 3];
      a = e;
      b = f;
      c = g;
    }
    const last = (p, q, r, s) => (box[p >>> 24] << 24) | (box[(q >>> 16) & 255] << 16) | (box[(r >>> 8) & 255] << 8) | box[s & 255];
    out[0] = last(a, b, c, d) ^ k[56];
    out[1] = last(b, c, d, a) ^ k[57];
    out[2] = last(c, d, a, b) ^ k[58];
    out[3] = last(d, a, b, c) ^ k[59];
  };
}
