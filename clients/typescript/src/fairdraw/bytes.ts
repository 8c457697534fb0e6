/** Writes the binary forms of docs/design/fairdraw.md, §1, one behind the other. */
export class Writer {
  #bytes = new Uint8Array(4096);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  byte(value: number): this {
    this.#grow(1);
    this.#bytes[this.#length++] = value;
    return this;
  }

  u32(value: number): this {
    this.#grow(4);
    this.#view.setUint32(this.#length, value);
    this.#length += 4;
    return this;
  }

  u64(value: number): this {
    return this.u32(Math.floor(value / 2 ** 32)).u32(value % 2 ** 32);
  }

  bytes(value: Uint8Array): this {
    this.#grow(value.length);
    this.#bytes.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  /** A text's length in bytes, and its bytes in UTF-8. */
  text(value: string): this {
    this.#grow(4 + 3 * value.length);
    const { written } = encoder.encodeInto(value, this.#bytes.subarray(this.#length + 4));
    this.u32(written);
    this.#length += written;
    return this;
  }

  /** What was written; it is valid until the next write. */
  get written(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  /** Begins anew. */
  reset(): this {
    this.#length = 0;
    return this;
  }

  #grow(by: number): void {
    if (this.#length + by <= this.#bytes.length) return;
    const larger = new Uint8Array(2 * (this.#length + by));
    larger.set(this.written);
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
}

const encoder = new TextEncoder();

export function toHex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads hexadecimal that is known to be well-formed. */
export function fromHex(text: string): Uint8Array {
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}
