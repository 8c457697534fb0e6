"""Draws by docs/design/fairdraw.md and docs/design/multidraw.md. A part of verify_log.py."""

import hashlib
import hmac

from log_leaves import be, sha256, text

# ---- Campaigns: fairdraw §5 to §7


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def hkdf(salt, secret, info):
    return mac(mac(salt, secret), info + b"\x01")


def draw_seed(seed, beacon, root, campaign, prizes):
    listed = b"".join(text(p["name"]) + be(p["layer"], 4) + be(p["quantity"], 4) for p in prizes)
    digest = sha256(b"\x03" + be(len(prizes), 4) + listed)
    return hkdf(b"fairlead/fairdraw/v1", seed + beacon + root, text("draw") + text(campaign) + digest)


def integers(key, index):
    """The stream of fairdraw §6."""
    counter = index << 64
    while True:
        block = mac(key, be(counter, 16))
        yield from (int.from_bytes(block[i:i + 8], "big") for i in range(0, 32, 8))
        counter += 1


def sample(stream, n, k):
    chosen = list(range(n))
    for i in range(k):
        left = n - i
        bound = 2**64 - 2**64 % left
        j = i + next(x for x in stream if x < bound) % left
        chosen[i], chosen[j] = chosen[j], chosen[i]
    return chosen[:k]


# ---- Multi-draws: multidraw §1


def double(b):
    return (b << 1) ^ (0x11B if b & 0x80 else 0)


def make_tables():
    """Returns AES's substitution (FIPS 197 §5.1.1), and one table that joins it with the mixing of columns."""
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= double(p)
        q ^= q << 1
        q ^= q << 2
        q = (q ^ q << 4) & 0xFF
        q ^= 0x09 if q & 0x80 else 0
        turned = [(q << i | q >> 8 - i) & 0xFF for i in range(1, 5)]
        box[p] = q ^ turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ 0x63
        if p == 1:
            break
    mixed = [double(s) << 24 | s << 16 | s << 8 | (double(s) ^ s) for s in box]
    return box, [[(m >> 8 * i | m << 32 - 8 * i) & 0xFFFFFFFF for m in mixed] for i in range(4)]


BOX, MIX = make_tables()


class AES256:
    """Encrypts single blocks."""

    def __init__(self, key):
        w, constant = [int.from_bytes(key[i:i + 4], "big") for i in range(0, 32, 4)], 1
        for i in range(8, 60):
            t = w[-1]
            if i % 8 == 0:
                t = self.substitute((t << 8 | t >> 24) & 0xFFFFFFFF) ^ constant << 24
                constant = double(constant)
            elif i % 8 == 4:
                t = self.substitute(t)
            w.append(w[-8] ^ t)
        self.keys = [w[i:i + 4] for i in range(0, 60, 4)]

    @staticmethod
    def substitute(t):
        return BOX[t >> 24] << 24 | BOX[t >> 16 & 0xFF] << 16 | BOX[t >> 8 & 0xFF] << 8 | BOX[t & 0xFF]

    def words(self, high, low):
        """Encrypts two words of 64 bits, and returns them as two such words."""
        m0, m1, m2, m3 = MIX
        k = self.keys[0]
        a, b = high >> 32 ^ k[0], high & 0xFFFFFFFF ^ k[1]
        c, d = low >> 32 ^ k[2], low & 0xFFFFFFFF ^ k[3]
        for k in self.keys[1:14]:
            a, b, c, d = (
                m0[a >> 24] ^ m1[b >> 16 & 255] ^ m2[c >> 8 & 255] ^ m3[d & 255] ^ k[0],
                m0[b >> 24] ^ m1[c >> 16 & 255] ^ m2[d >> 8 & 255] ^ m3[a & 255] ^ k[1],
                m0[c >> 24] ^ m1[d >> 16 & 255] ^ m2[a >> 8 & 255] ^ m3[b & 255] ^ k[2],
                m0[d >> 24] ^ m1[a >> 16 & 255] ^ m2[b >> 8 & 255] ^ m3[c & 255] ^ k[3],
            )
        k, s = self.keys[14], BOX
        out = [s[p >> 24] << 24 ^ s[q >> 16 & 255] << 16 ^ s[r >> 8 & 255] << 8 ^ s[t & 255] ^ k[i]
               for i, (p, q, r, t) in enumerate(((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c)))]
        return out[0] << 32 | out[1], out[2] << 32 | out[3]


def draws(seed, name, n, count):
    """Yields the values below n of draws 0 to count − 1 (multidraw §1)."""
    cipher, refused = AES256(hkdf(b"fairlead/multidraw/v2", seed, text(name, 8))), 2**64 % n

    def more(i):
        block = 0
        while True:
            yield from cipher.words(i + 1, block)
            block += 1

    for i in range(count):
        if i % 2 == 0:
            pair = cipher.words(0, i // 2)
        w = pair[i % 2]
        if w * n % 2**64 < refused:
            w = next(x for x in more(i) if x * n % 2**64 >= refused)
        yield w * n >> 64
