import assert from "node:assert/strict";
import { test } from "node:test";

import { decode, decodeStrictly, encode } from "../dist/json.js";

const long = "1234567890123456";

test("what JSON.parse reads is read the same, also beside a long number", () => {
  const texts = ['{"a":[1,-2,3.5,1e3,1E-2,-0.0],"b":{"":null},"c":[true,false,[],{}]}', '"\\u0041\\ud83d\\ude00\\/\\b\\f\\n\\r\\t\\\\\\""', " [ 1 , 2 ] ", '{"a":1,"a":2}', '"\\ud800"', '{"__proto__":1}', '"\u007f\u2028é😀"'];
  for (const text of texts) {
    const [value, number] = /** @type {[unknown, unknown]} */ (decode(`[${text},${long}]`));
    assert.deepEqual(value, JSON.parse(text), text);
    assert.equal(number, Number(long));
    assert.deepEqual(decode(text), JSON.parse(text));
  }
});

test("no integer is rounded", () => {
  assert.deepEqual(decode("[9007199254740991,9007199254740992,-9007199254740993,1e20,0.1234567890123456789]"), [
    9007199254740991, 9007199254740992n, -9007199254740993n, 1e20, 0.12345678901234568,
  ]);
  assert.equal(encode({ a: [9007199254740993n, undefined, () => 1], b: undefined, c: { d: "é\"" }, at: new Date(0) }), '{"a":[9007199254740993,null,null],"c":{"d":"é\\""},"at":"1970-01-01T00:00:00.000Z"}');
  for (const value of [NaN, -Infinity, 2 ** 53, [-(2 ** 60)]]) assert.throws(() => encode(value), TypeError);
  assert.equal(encode([1e300, 0.1, -0, null]), "[1e+300,0.1,0,null]");
});

test("what is no JSON is refused", () => {
  const texts = ["", " ", "{", "[", "[1,]", "[,1]", '{"a":1,}', '{"a"}', "{a:1}", '{"a" 1}', "01", "-", "1.", ".5", "1e", "+1", "0x1", "tru", "nul", "NaN", "'a'", '"a', '"\n"', '"\\x"', '"\\u12g4"', '"\\u123"', "1 2", "[1 2]", "\ufeff1", "\u00a01", "/**/1", '"\\'];
  for (const text of texts) {
    assert.throws(() => decodeStrictly(text), SyntaxError, text);
    assert.throws(() => JSON.parse(text), SyntaxError, text);
    assert.throws(() => decode(`[${text},${long}]`), SyntaxError, text);
  }
  assert.throws(() => decodeStrictly("[".repeat(100_000)), SyntaxError);
});

test("what documents may not have is refused", () => {
  for (const text of ["null", "[null]", "-1", "-0", "1.0", "1e0", "1E2", '{"a":1,"a":1}', '[{"b":{"a":1,"\\u0061":1}}]', '{"\\u0061":1}', '"\\ud800"', '"\\ude00\\ud83d"', '"\\ud83dx"']) {
    assert.throws(() => decodeStrictly(text), SyntaxError, text);
  }
  assert.deepEqual(decodeStrictly('\t{"a" : ["\\ud83d\\uDE00\\u0041\\\\u0041", 0, 10, 9007199254740993]}\r\n'), { a: ["😀A\\u0041", 0, 10, 9007199254740993n] });
});
