/**
 * Decodes a JSON text like JSON.parse, but never rounds an integer: those beyond ±(2^53 − 1) become a bigint. It throws a
 * SyntaxError.
 */
export function decode(text: string): unknown {
  // Only a number of 16 digits or more can be beyond it.
  return /\d{16}/.test(text) ? new Reader(text, false).document() : JSON.parse(text);
}

/**
 * Decodes a proof or inclusion document by the rules of docs/design/fairdraw.md, §9: it also refuses null, repeated names, names
 * with an escape, numbers with a sign, leading zero, fraction or exponent, and lone surrogates. It throws a SyntaxError.
 */
export function decodeStrictly(text: string): unknown {
  return new Reader(text, true).document();
}

/**
 * Encodes a value like JSON.stringify, but writes a bigint as an integer. It throws a TypeError for numbers that JSON would not keep: NaN and
 * infinities, and integers of 64 bits that are beyond ±(2^53 − 1) and not a bigint, because they may be rounded already.
 */
export function encode(value: unknown): string | undefined {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number") {
    const rounded = Number.isInteger(value) && !Number.isSafeInteger(value) && Math.abs(value) < 2 ** 64;
    if (rounded || !Number.isFinite(value)) throw new TypeError(`${value} can't be sent exactly: give a bigint`);
  }
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  if ("toJSON" in value && typeof value.toJSON === "function") return encode(value.toJSON());
  if (Array.isArray(value)) return `[${value.map((item) => encode(item) ?? "null").join(",")}]`;
  const members = Object.entries(value).flatMap(([name, member]) => {
    const text = encode(member);
    return text === undefined ? [] : [`${JSON.stringify(name)}:${text}`];
  });
  return `{${members.join(",")}}`;
}

/** The deepest nesting that is read, so that the stack suffices. */
const maxDepth = 2_000;

const whitespace = /[ \t\n\r]*/y;
const numeral = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
// Up to the closing quote, an escape, or what must not stand in a text.
const plain = /[^"\\\u0000-\u001f]*/y;
const escapes: Record<string, string> = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };
const loneSurrogate = /\p{Surrogate}/u;

class Reader {
  #at = 0;
  #depth = 0;

  constructor(
    private readonly text: string,
    private readonly strict: boolean,
  ) {}

  document(): unknown {
    const value = this.#value();
    this.#take(whitespace);
    if (this.#at !== this.text.length) this.#fail("there is something after the document");
    return value;
  }

  #value(): unknown {
    this.#take(whitespace);
    switch (this.text[this.#at]) {
      case "{":
        return this.#object();
      case "[":
        return this.#array();
      case '"':
        return this.#string();
      case "t":
        return this.#word("true", true);
      case "f":
        return this.#word("false", false);
      case "n":
        if (this.strict) this.#fail("there is a null");
        return this.#word("null", null);
      default:
        return this.#number();
    }
  }

  #object(): unknown {
    this.#enter();
    const members = new Map<string, unknown>();
    if (!this.#skip("}")) {
      do {
        this.#take(whitespace);
        if (this.text[this.#at] !== '"') this.#fail("a name is missing");
        const from = this.#at;
        const name = this.#string();
        if (this.strict && this.#at - from !== name.length + 2) this.#fail(`the name "${name}" has an escape`);
        if (this.strict && members.has(name)) this.#fail(`"${name}" is there twice`);
        if (!this.#skip(":")) this.#fail("a colon is missing");
        members.set(name, this.#value());
      } while (this.#skip(","));
      if (!this.#skip("}")) this.#fail("a comma or the end of an object is missing");
    }
    this.#depth--;
    return Object.fromEntries(members); // Unlike an assignment, it also takes the name __proto__.
  }

  #array(): unknown[] {
    this.#enter();
    const items: unknown[] = [];
    if (!this.#skip("]")) {
      do items.push(this.#value());
      while (this.#skip(","));
      if (!this.#skip("]")) this.#fail("a comma or the end of a list is missing");
    }
    this.#depth--;
    return items;
  }

  #string(): string {
    this.#at++;
    let value = this.#take(plain);
    while (this.text[this.#at] === "\\") {
      value += this.#escape() + this.#take(plain);
    }
    if (this.text[this.#at] !== '"') this.#fail("a text has a control character, or no end");
    this.#at++;
    if (this.strict && loneSurrogate.test(value)) this.#fail("a text has a lone surrogate");
    return value;
  }

  #escape(): string {
    const letter = this.text[this.#at + 1] ?? "";
    const hex = this.text.slice(this.#at + 2, this.#at + 6);
    if (letter === "u" && /^[0-9a-fA-F]{4}$/.test(hex)) {
      this.#at += 6;
      return String.fromCharCode(parseInt(hex, 16));
    }
    const value = Object.hasOwn(escapes, letter) ? escapes[letter] : undefined;
    if (value === undefined) this.#fail("there is no such escape");
    this.#at += 2;
    return value;
  }

  #number(): number | bigint {
    numeral.lastIndex = this.#at;
    const found = numeral.exec(this.text);
    if (!found) return this.#fail("a value is missing");
    const [digits, fraction, exponent] = found;
    this.#at += digits.length;
    const fractional = fraction !== undefined || exponent !== undefined;
    if (this.strict && (fractional || digits.startsWith("-"))) this.#fail(`${digits} is not a plain integer`);
    const value = Number(digits);
    return fractional || Number.isSafeInteger(value) ? value : BigInt(digits);
  }

  #word<T>(word: string, value: T): T {
    if (!this.text.startsWith(word, this.#at)) this.#fail("a value is missing");
    this.#at += word.length;
    return value;
  }

  #enter(): void {
    this.#at++;
    if (++this.#depth > maxDepth) this.#fail("it is nested too deeply");
  }

  /** Takes what a sticky pattern finds here, which may be nothing. */
  #take(pattern: RegExp): string {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.text)?.[0] ?? "";
    this.#at += found.length;
    return found;
  }

  #skip(mark: string): boolean {
    this.#take(whitespace);
    if (this.text[this.#at] !== mark) return false;
    this.#at++;
    return true;
  }

  #fail(why: string): never {
    throw new SyntaxError(`at character ${this.#at}: ${why}`);
  }
}
