import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { bls12_381 } from "@noble/curves/bls12-381.js";

import { fromHex, toHex, Writer } from "../dist/fairdraw/bytes.js";
import { drawSeed, leafOf, rootOf, Stream, treeOf, winnersOf } from "../dist/fairdraw/draw.js";
import { ProofError, verifyInclusion, verifyProof, verifySeal } from "../dist/fairdraw/index.js";
import { Hmac, sha256 } from "../dist/fairdraw/sha256.js";
import { verifySignature } from "./verify-signature.mjs";

const vectors = JSON.parse(readFileSync(new URL("../../../fairdraw/testdata/vectors.json", import.meta.url), "utf8"));
const rounds = JSON.parse(readFileSync(new URL("../../../fairdraw/beacon/testdata/rounds.json", import.meta.url), "utf8"));

const sealed = JSON.parse(readFileSync(new URL("../../../translog/seal/testdata/sealed.json", import.meta.url), "utf8"));

test("a seal in a log is verified, and who has seen it", async () => {
  const { proof, log_key: log, witnesses } = sealed;
  const verify = (change = {}, all = {}) => verifyProof(JSON.stringify({ ...proof, ...all, seal: { ...proof.seal, ...change } }), { commitment: null, verifySignature });
  const valid = verify();
  assert.deepEqual(valid, proof);
  assert.deepEqual(await verifySeal(valid, { log }), { log: "log.example.com/shop", due: 1692803490, signatures: 4, witnesses: [], secondsBefore: null });
  const seen = await verifySeal(valid, { log, witnesses, quorum: 2 });
  assert.deepEqual([seen.witnesses, seen.secondsBefore], [["witness.example/w2", "witness.example/w1"], 1]);
  assert.equal((await verifySeal(valid, { log, witnesses: witnesses.slice(2) })).secondsBefore, 2);
  await assert.rejects(verifySeal(valid, { log, witnesses, quorum: 3 }), /2 witnesses have seen the seal/);
  await assert.rejects(verifySeal(valid, { log, witnesses: witnesses.slice(0, 1) }), /0 witnesses/);
  await assert.rejects(verifySeal(valid, { log: witnesses[0] }), /no key of a log/);
  await assert.rejects(verifySeal(valid, { log: log.replace("+", "x+") }), /not its own/);
  const { leaf, inclusion, checkpoint } = proof.seal;
  const other = { ...valid, seal: { ...proof.seal, checkpoint: checkpoint.replace("\n7\n", "\n8\n") } };
  await assert.rejects(verifySeal(other, { log }), ProofError);
  for (const change of [
    { index: 4 }, { index: 7 }, { index: -1 }, { inclusion: inclusion.slice(1) }, { inclusion: [...inclusion, proof.root] }, { leaf: leaf.slice(4) }, { leaf: leaf.slice(0, -1) },
    { leaf: "" }, { leaf: `\n${leaf}` }, { checkpoint: checkpoint.replace("\n7\n", "\n9\n") }, { checkpoint: `${checkpoint}x` }, { checkpoint: checkpoint.replace("\n\n", "\nmore\n\n") }, { more: 1 },
  ]) assert.throws(() => verify(change), ProofError, JSON.stringify(change));
  assert.throws(() => verify({}, { versions: { document: 2, algorithm: 1 } }), /no seal/);
  assert.throws(() => verifyProof(JSON.stringify({ ...proof, seal: undefined }), { commitment: null, verifySignature }), /seal/);
});

test("hashes are WebCrypto's", async () => {
  for (let length = 0; length < 300; length++) {
    const message = webcrypto.getRandomValues(new Uint8Array(length));
    assert.deepEqual(sha256(message), new Uint8Array(await webcrypto.subtle.digest("SHA-256", message)));
    const secret = message.length > 0 ? message : Uint8Array.of(0); // WebCrypto takes no empty key.
    const key = await webcrypto.subtle.importKey("raw", secret, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    assert.deepEqual(new Hmac(secret).sign(message), new Uint8Array(await webcrypto.subtle.sign("HMAC", key, message)));
  }
});

test("streams are those of the vectors", () => {
  for (const { seed, commitment } of vectors.commitments) assert.equal(toHex(sha256(fromHex(seed))), commitment);
  for (const { key, index, integers } of vectors.streams) {
    const stream = new Stream(new Hmac(fromHex(key)), BigInt(index));
    for (const integer of integers) assert.equal(stream.next(), BigInt(integer));
  }
  for (const { key, index, n, values, next } of vectors.below) {
    const stream = new Stream(new Hmac(fromHex(key)), BigInt(index));
    for (const value of values) assert.equal(stream.below(BigInt(n)), BigInt(value));
    assert.equal(stream.next(), BigInt(next));
  }
  for (const { key, index, n, k, chosen } of vectors.samples) {
    assert.deepEqual(new Stream(new Hmac(fromHex(key)), BigInt(index)).sample(n, k), chosen);
  }
});

test("roots, draws and proofs of inclusion are those of the vectors", () => {
  for (const { campaign, positions, leaf, tree, root } of vectors.roots) {
    assert.equal(toHex(leafOf(positions.at(-1))), leaf);
    assert.equal(toHex(treeOf(positions)), tree);
    assert.equal(toHex(rootOf(campaign, positions.length, treeOf(positions))), root);
  }
  let verified = 0;
  for (const { proof } of vectors.draws) {
    const { commitment, server_seed, beacon, root, draw_seed, campaign, positions, prizes, winners } = proof;
    const seed = drawSeed(fromHex(server_seed), fromHex(beacon?.signature ?? ""), fromHex(root), campaign, prizes);
    assert.equal(toHex(seed), draw_seed);
    const drawn = [...winnersOf(seed, positions, prizes)].map(({ prize, position: { id, layer, number, account } }) => ({ prize, layer, position: { id, layer, number }, account }));
    assert.deepEqual(drawn, winners);
    if (beacon) {
      assert.throws(() => verifyProof(JSON.stringify(proof), { commitment }), /bare signature/);
    } else {
      assert.deepEqual(verifyProof(JSON.stringify(proof), { commitment, root }), proof);
      assert.deepEqual(verifyProof(new TextEncoder().encode(JSON.stringify(proof, null, "\t")), { commitment: null }), proof);
      verified++;
    }
  }
  assert.ok(verified > 0);
  for (const inclusion of vectors.inclusions) assert.deepEqual(verifyInclusion(JSON.stringify(inclusion), { root: inclusion.root }), inclusion);
});

/** A proof of the vectors, with six winners. */
const sample = JSON.parse(JSON.stringify(vectors.draws[0].proof));

/**
 * @param {string | Uint8Array} document
 * @param {RegExp} [why]
 * @param {import("../dist/fairdraw/index.js").Published} [published]
 */
const refused = (document, why = /./, published = { commitment: null }) => {
  assert.throws(() => verifyProof(document, published), (error) => error instanceof ProofError && why.test(error.message), String(document));
};

test("what was published is compared", () => {
  const document = JSON.stringify(sample);
  verifyProof(document, { commitment: sample.commitment, root: sample.root });
  refused(document, /commitment/, { commitment: "00".repeat(32) });
  refused(document, /root/, { commitment: null, root: "00".repeat(32) });
  refused(document, /round/, { commitment: null, round: 1 });
});

test("no member can be altered, removed or added, and no object has one twice", () => {
  let count = 0;
  /**
   * @param {any} value
   * @param {(value: any) => void} set
   */
  const alter = (value, set) => {
    const values = typeof value === "number" ? [value + 1, -value, 0, String(value), null, [value], 2 ** 53] : typeof value === "string" ? [value.replace(/./, (first) => (first === "0" ? "1" : "0")), `${value}0`, "", value.toUpperCase() + " ", 1, null, { a: value }] : [1, null, "a"];
    for (const other of values.filter((other) => JSON.stringify(other) !== JSON.stringify(value))) {
      set(other);
      refused(JSON.stringify(sample));
      count++;
    }
    set(value);
    if (Array.isArray(value)) {
      for (const i of [0, value.length - 1]) alter(value[i], (other) => (value[i] = other));
      set([...value, value.at(-1)]);
      refused(JSON.stringify(sample));
      set(value.slice(0, -1));
      refused(JSON.stringify(sample));
      set([value[1], value[0], ...value.slice(2)]);
      refused(JSON.stringify(sample));
      set(value);
    } else if (typeof value === "object") {
      for (const name of Object.keys(value)) {
        alter(value[name], (other) => (value[name] = other));
        const { [name]: _, ...others } = value;
        set(others);
        refused(JSON.stringify(sample), new RegExp(name));
        set({ ...others, [name.toUpperCase()]: value[name] });
        refused(JSON.stringify(sample));
        set(value);
        const member = `"${name}":${JSON.stringify(value[name])}`;
        refused(JSON.stringify(sample).replace(member, `${member},${member}`), /twice/);
        refused(JSON.stringify(sample).replace(`"${name}"`, `"\\u00${name.charCodeAt(0).toString(16)}${name.slice(1)}"`), /escape/);
      }
      set({ ...value, more: 1 });
      refused(JSON.stringify(sample), /unknown/);
      set(value);
    }
  };
  for (const name of Object.keys(sample)) alter(sample[name], (value) => (sample[name] = value));
  verifyProof(JSON.stringify(sample), { commitment: null });
  assert.ok(count > 200);
});

test("a document is read strictly", () => {
  const document = JSON.stringify(sample);
  for (const other of [`\ufeff${document}`, `${document}1`, document.slice(0, -1), document.replace("1", "1.0"), document.replace("1", "1e0"), document.replace("c-1", "\ud800"), document.replace("c-1", "\\ud800"), document.replace("c-1", "\\u007f"), `[${document}]`, "", "null"]) {
    refused(other);
  }
  const bytes = new TextEncoder().encode(document);
  bytes[document.indexOf("c-1")] = 0xff;
  refused(bytes);
  refused(new TextEncoder().encode(`\ufeff${document}`), /read/);
  // A reader that mends what is no UTF-8 would read another campaign's proof.
  const mended = Buffer.from(drawnAnew({ campaign: "\ufffd" }));
  verifyProof(mended, { commitment: null });
  const at = mended.indexOf("\ufffd");
  refused(Buffer.concat([mended.subarray(0, at), Uint8Array.of(0xff), mended.subarray(at + 3)]), /read/);
  const smile = drawnAnew({ campaign: "😀" });
  verifyProof(smile.replace("😀", "\\ud83d\\uDE00"), { commitment: null });
  refused(smile.replace("😀", "\\ud83d\ude00"), /surrogate/);
  verifyProof(` ${document.replace("c-1", "\\u0063-\\u0031").replaceAll(",", " ,\n")}\r\n`, { commitment: sample.commitment });
});

test("a proof of inclusion takes a root from elsewhere", () => {
  const inclusion = vectors.inclusions.find((/** @type {any} */ i) => i.siblings.length > 1);
  const { root } = inclusion;
  /** @param {object} changes */
  const other = (changes) => () => verifyInclusion(JSON.stringify({ ...inclusion, ...changes }), { root });
  other({})();
  assert.throws(() => verifyInclusion(JSON.stringify(inclusion), { root: "00".repeat(32) }), ProofError);
  const { siblings, position } = inclusion;
  for (const changes of [{ siblings: siblings.slice(1) }, { siblings: [...siblings, siblings[0]] }, { siblings: siblings.toReversed?.() ?? [...siblings].reverse() }, { index: inclusion.index ^ 1 }, { size: inclusion.size + 1 }, { index: inclusion.size }, { campaign: "c-2" }, { root: "00".repeat(32) }, { versions: { document: 2, algorithm: 1 } }, { position: { ...position, account: "eve" } }, { siblings: Array(21).fill(root) }, { more: 1 }]) {
    assert.throws(other(changes), ProofError, JSON.stringify(changes));
  }
  assert.throws(() => verifyInclusion(JSON.stringify(inclusion) + " ".repeat(2 ** 16), { root }), /bytes/);
});

/**
 * The sample with changes, drawn anew, so that all that follows from them is right.
 * @param {any} changes
 * @param {any[]} [rigged] the winners, where they cannot be drawn
 */
function drawnAnew(changes, rigged) {
  const proof = { ...sample, ...changes };
  const { server_seed, beacon, campaign, positions, prizes } = proof;
  const root = rootOf(campaign, positions.length, treeOf(positions));
  const seed = drawSeed(fromHex(server_seed), fromHex(beacon?.signature ?? ""), root, campaign, prizes);
  const won = rigged ?? [...winnersOf(seed, positions, prizes)];
  const winners = won.map(({ prize, position: { id, layer, number, account } }) => ({ prize, layer, position: { id, layer, number }, account }));
  return JSON.stringify({ ...proof, commitment: toHex(sha256(fromHex(server_seed))), root: toHex(root), draw_seed: toHex(seed), winners });
}

test("documents that agree with themselves are refused where they break a rule", () => {
  const { positions, prizes } = sample;
  verifyProof(drawnAnew({}), { commitment: sample.commitment });
  verifyProof(drawnAnew({ campaign: "😀".repeat(200), prizes: [] }), { commitment: null });
  const [first, second, ...others] = positions;
  refused(drawnAnew({ server_seed: "00".repeat(32) }), /zero/);
  refused(drawnAnew({ positions: [second, first, ...others], prizes: [] }), /canonical order/);
  refused(drawnAnew({ positions: [first, second, { ...second, id: "other" }], prizes: [] }), /canonical order/);
  refused(drawnAnew({ positions: [first, { ...second, id: first.id }, ...others] }), /same id/);
  refused(drawnAnew({ prizes: [prizes[0], { ...prizes[1], name: prizes[0].name }] }), /same name/);
  refused(drawnAnew({ prizes: [{ name: "p", layer: 1, quantity: 2 }] }, []), /eligible/);
  refused(drawnAnew({ prizes: [{ name: "p", layer: 9, quantity: 1 }] }, []), /eligible/);
  refused(drawnAnew({ positions: [{ ...first, number: 1_000_001 }] , prizes: [] }), /number/);
  refused(drawnAnew({ positions: [{ ...first, layer: 0 }] , prizes: [] }), /layer/);
  const places = Array.from({ length: 101 }, (_, i) => ({ id: `p-${i}`, layer: 1, number: i + 1, account: "ann" }));
  refused(drawnAnew({ positions: places, prizes: places.flatMap(({ id }) => Array.from({ length: 99 }, (_, i) => ({ name: `${id}-${i}`, layer: 0, quantity: 101 }))) }, []), /over 1000000/);
  for (const campaign of ["", "a".repeat(201), "\u0000", "\u001f", "\u007f", "\u009f"]) refused(drawnAnew({ campaign }), /campaign/);
  const drawn = JSON.parse(drawnAnew({}));
  for (const winners of [drawn.winners.slice(1), [...drawn.winners].reverse(), [...drawn.winners, drawn.winners[0]], [{ ...drawn.winners[0], layer: 2 }, ...drawn.winners.slice(1)]]) {
    refused(JSON.stringify({ ...drawn, winners }), /winner/);
  }
});

test("README.md shows how to verify signatures as it is done here", () => {
  const readme = readFileSync(new URL("../README.md", import.meta.url), "utf8");
  assert.ok(readme.includes(readFileSync(new URL("verify-signature.mjs", import.meta.url), "utf8")));
});

const versions = { document: 2, algorithm: 1 };
const quicknet = {
  scheme: "bls-unchained-g1-rfc9380",
  chain_hash: "52db9ba70e0cc0f6eaf7803dd07447a1f5477735fd3f661792ba94600c84e971",
  public_key:
    "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a",
  period: 3,
  genesis_time: 1692803367,
  genesis_seed: "f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e",
  beacon_id: "quicknet",
};
const chained = {
  scheme: "pedersen-bls-chained",
  chain_hash: "8990e7a9aaed2ffed73dbd7092123d6f289930540d7651336225dc172e51b2ce",
  public_key: "868f005eb8e6e4ca0a47c8a77ceaa5309a47978a7c71bc5cce96366b5d7a569937c529eeda66c7293784a9402801af31",
  period: 30,
  genesis_time: 1595431050,
  genesis_seed: "176f93498eac9ca337150b46d21dd58673ea4e3581185f869672e59fa4cb390a",
  beacon_id: "default",
};

test("a draw by a beacon needs a round that a trusted chain signed", () => {
  const published = { commitment: sample.commitment, root: sample.root, verifySignature };
  const all = [...rounds.quicknet.map((/** @type {any} */ round) => [quicknet, round]), ...rounds.default.map((/** @type {any} */ round) => [chained, round])];
  for (const [chain, { randomness: _, ...round }] of all) {
    const document = drawnAnew({ versions, beacon: { ...chain, ...round } });
    assert.equal(verifyProof(document, { ...published, round: round.round }).beacon?.round, round.round);
    assert.throws(() => verifyProof(document, { ...published, verifySignature: undefined }), /without verifySignature/);
    assert.throws(() => verifyProof(document, { ...published, round: round.round + 1 }), /round/);
    for (const changes of [{ round: round.round + 1 }, { signature: all.find(([, r]) => r.signature !== round.signature)?.[1].signature }, { period: chain.period + 1 }, { beacon_id: "other" }, { scheme: "bls-bn254-unchained-on-g1" }, { scheme: chain === quicknet ? chained.scheme : quicknet.scheme }, { genesis_time: 0 }, { more: 1 }, { previous_signature: "00" }, { previous_signature: undefined, period: "3" }]) {
      assert.throws(() => verifyProof(drawnAnew({ versions, beacon: { ...chain, ...round, ...changes } }), published), ProofError, JSON.stringify(changes));
    }
  }
});

test("what a chain signs has its form, whatever the verifier of signatures takes", () => {
  const published = { commitment: null, verifySignature: () => true };
  const [round, { randomness: _, ...linked }] = [rounds.quicknet[0], rounds.default[0]];
  /** @param {any} beacon */
  const verify = (beacon) => () => verifyProof(drawnAnew({ versions, beacon }), published);
  const quick = { ...quicknet, round: round.round, signature: round.signature };
  verify(quick)();
  assert.throws(verify({ ...quick, signature: `${round.signature}00` }), /length/);
  assert.throws(verify({ ...quick, scheme: chained.scheme, previous_signature: "00".repeat(96) }), /does not sign by/);
  const slow = { ...chained, ...linked };
  verify(slow)();
  verify({ ...slow, round: 1, previous_signature: chained.genesis_seed })();
  assert.throws(verify({ ...slow, round: 1 }), /previous_signature/);
  assert.throws(verify({ ...slow, previous_signature: linked.previous_signature.slice(2) }), /previous_signature/);
});

test("a signature has one encoding", () => {
  const [{ signature, round }] = rounds.quicknet;
  const message = sha256(new Writer().u64(round).written);
  const publicKey = fromHex(quicknet.public_key);
  const signed = { scheme: /** @type {const} */ ("bls-unchained-g1-rfc9380"), message, publicKey };
  assert.ok(verifySignature({ ...signed, signature: fromHex(signature) }));
  const identity = fromHex(`c0${"00".repeat(47)}`);
  const { G1 } = bls12_381;
  const plain = G1.Point.fromHex(signature).toBytes(false);
  // Not in the subgroup: the least x of a point of the curve.
  const x4 = fromHex(`80${"00".repeat(46)}04`);
  const others = [identity, plain, x4, fromHex(`e0${"00".repeat(47)}`), fromHex(`00${"00".repeat(47)}`), fromHex(signature).map((byte, i) => (i === 0 ? byte ^ 0x20 : byte)), fromHex(signature).map((byte, i) => (i === 0 ? byte ^ 0x80 : byte)), fromHex(signature).map((byte, i) => (i === 0 ? byte ^ 0x40 : byte))];
  for (const other of others) {
    let valid = false;
    try {
      valid = verifySignature({ ...signed, signature: other });
    } catch {}
    assert.equal(valid, false, toHex(other));
    let identityKey = false;
    try {
      identityKey = verifySignature({ ...signed, signature: other, publicKey: fromHex(`c0${"00".repeat(95)}`) });
    } catch {}
    assert.equal(identityKey, false);
  }
});

test("another chain has to be trusted by name", () => {
  const secretKey = new Uint8Array(32).fill(7);
  const { shortSignatures: short } = bls12_381;
  const [publicKey, genesisSeed] = [short.getPublicKey(secretKey).toBytes(), sha256(Uint8Array.of(1))];
  const message = sha256(new Writer().u64(9).written);
  const description = new Writer().u32(3).u64(1000).bytes(publicKey).bytes(genesisSeed).bytes(new TextEncoder().encode("own"));
  const chain = {
    scheme: "bls-unchained-g1-rfc9380",
    chain_hash: toHex(sha256(description.written)),
    public_key: toHex(publicKey),
    period: 3,
    genesis_time: 1000,
    genesis_seed: toHex(genesisSeed),
    beacon_id: "own",
    round: 9,
    signature: toHex(short.sign(short.hash(message, "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"), secretKey).toBytes()),
  };
  const document = drawnAnew({ versions, beacon: chain });
  assert.throws(() => verifyProof(document, { commitment: null, verifySignature }), /not trusted/);
  verifyProof(document, { commitment: null, verifySignature, chains: [chain.chain_hash] });
});
