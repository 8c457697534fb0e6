import { fromHex } from "./bytes.js";

/** A document that is malformed, or does not prove what it claims. The message names the first difference. */
export class ProofError extends Error {
  override readonly name = "ProofError";
}

/** An object with exactly these members. */
export function fields(value: unknown, at: string, required: string[], optional: string[] = []): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new ProofError(`${at} is no object`);
  for (const name of required) {
    if (!Object.hasOwn(value, name)) throw new ProofError(`${at} has no ${name}`);
  }
  for (const name of Object.keys(value)) {
    if (!required.includes(name) && !optional.includes(name)) throw new ProofError(`${at} has an unknown member ${JSON.stringify(name)}`);
  }
  return value as Record<string, unknown>;
}

export function list(value: unknown, at: string, least: number, most: number): unknown[] {
  if (!Array.isArray(value)) throw new ProofError(`${at} is no list`);
  if (value.length < least || value.length > most) throw new ProofError(`${at} has ${value.length} items; it must have ${least} to ${most}`);
  return value;
}

export function integer(value: unknown, at: string, least: number, most: number): number {
  if (typeof value !== "number" || value < least || value > most) throw new ProofError(`${at} is no integer from ${least} to ${most}`);
  return value;
}

const texts = /^[^\u0000-\u001f\u007f-\u009f\p{Surrogate}]{1,200}$/u;

export function text(value: unknown, at: string): string {
  if (typeof value !== "string" || !texts.test(value)) throw new ProofError(`${at} is no text of 1 to 200 characters without control characters`);
  return value;
}

/** Lower-case hexadecimal of so many bytes. */
export function hex(value: unknown, at: string, least: number, most: number): Uint8Array {
  if (typeof value !== "string" || value.length < 2 * least || value.length > 2 * most || !/^(?:[0-9a-f]{2})*$/.test(value)) {
    throw new ProofError(`${at} is not ${least === most ? least : `${least} to ${most}`} bytes in lower-case hexadecimal`);
  }
  return fromHex(value);
}

/** The hexadecimal text of 32 bytes. */
export function hash(value: unknown, at: string): string {
  hex(value, at, 32, 32);
  return value as string;
}
