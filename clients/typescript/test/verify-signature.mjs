import { bls12_381 } from "@noble/curves/bls12-381.js";

/** @param {import("@fairlead-dev/client/verify").SignedMessage} signed */
export function verifySignature({ scheme, message, publicKey, signature }) {
  if (scheme === "pedersen-bls-chained") {
    const { longSignatures: long } = bls12_381;
    return long.verify(signature, long.hash(message, "BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_NUL_"), publicKey);
  }
  const { shortSignatures: short } = bls12_381;
  return short.verify(signature, short.hash(message, "BLS_SIG_BLS12381G1_XMD:SHA-256_SSWU_RO_NUL_"), publicKey);
}
