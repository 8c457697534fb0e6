// A strict reader of JSON: JSON.parse lets pass what a proof may not have, such as repeated members and numbers spelled otherwise.

// Malformed is thrown for a text that is not a document of this kind.
export class Malformed extends Error {}

const escapes = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

// read parses UTF-8 bytes. Objects become Maps. Numbers must be plain integers from 0 that a double holds exactly; null, true and
// false have no place in these documents. With signed, they are integers of any size, given as BigInt. A member's name with an escape is refused, since it could look like another.
export function read(bytes, { signed = false } = {}) {
  let s;
  try {
    s = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed("the document is not UTF-8");
  }
  let at = 0;
  const fail = (what) => {
    throw new Malformed(`${what} at character ${at}`);
  };
  const blank = () => {
    while (at < s.length && (s[at] === " " || s[at] === "\t" || s[at] === "\n" || s[at] === "\r")) at++;
  };
  const take = (c) => {
    if (s[at] !== c) fail(`expected ${c}`);
    at++;
  };

  function string(isName) {
    take('"');
    let out = "";
    let from = at;
    for (;;) {
      const c = s.charCodeAt(at);
      if (Number.isNaN(c) || c < 0x20) fail("a string does not end, or has a control character");
      if (c === 0x22) break;
      if (c !== 0x5c) {
        at++;
        continue;
      }
      if (isName) fail("a name has an escape");
      out += s.slice(from, at);
      const e = s[at + 1];
      if (e === "u") {
        const hex = s.slice(at + 2, at + 6);
        if (!/^[0-9a-fA-F]{4}$/.test(hex)) fail("a bad escape");
        out += String.fromCharCode(parseInt(hex, 16));
        at += 6;
      } else {
        if (!Object.hasOwn(escapes, e ?? "")) fail("a bad escape");
        out += escapes[e];
        at += 2;
      }
      from = at;
    }
    out += s.slice(from, at);
    at++;
    if (!out.isWellFormed?.() && /[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/.test(out)) fail("a lone surrogate");
    return out;
  }

  function value(depth) {
    if (depth > 8) fail("too deep");
    blank();
    const c = s[at];
    if (c === '"') return string(false);
    if (c === "{") {
      at++;
      const out = new Map();
      blank();
      if (s[at] === "}") {
        at++;
        return out;
      }
      for (;;) {
        blank();
        const name = string(true);
        if (out.has(name)) fail("a repeated name");
        blank();
        take(":");
        out.set(name, value(depth + 1));
        blank();
        if (s[at] === "}") break;
        take(",");
      }
      at++;
      return out;
    }
    if (c === "[") {
      at++;
      const out = [];
      blank();
      if (s[at] === "]") {
        at++;
        return out;
      }
      for (;;) {
        out.push(value(depth + 1));
        blank();
        if (s[at] === "]") break;
        take(",");
      }
      at++;
      return out;
    }
    if (signed) {
      const integer = /^(0|-?[1-9][0-9]*)(?![0-9.eE+-])/.exec(s.slice(at, at + 24));
      if (!integer) fail("not a value of these documents");
      at += integer[0].length;
      return BigInt(integer[0]);
    }
    const digits = /^(0|[1-9][0-9]*)(?![0-9.eE+-])/.exec(s.slice(at, at + 20));
    if (!digits) fail("not a value of these documents");
    at += digits[0].length;
    const n = Number(digits[0]);
    if (!Number.isSafeInteger(n)) fail("too large a number");
    return n;
  }

  if (s.charCodeAt(0) === 0xfeff) fail("a byte order mark");
  const out = value(0);
  blank();
  if (at !== s.length) fail("something behind the document");
  return out;
}
