// Package fairdraw makes draws that anyone can check: who wins is fixed by a secret that was committed to before the first
// position was sold and by the exact list of positions that were sold, and by nothing else.
//
// # Protocol
//
// A draw goes through four states, of which the package computes and the caller stores:
//
//  1. Committed. The operator makes a [Seed] with [NewSeed] and publishes [Seed.Commitment], its SHA-256, before anything
//     is sold.
//  2. Sealed. When the last position is sold, [Root] gives the Merkle root of the sold positions in canonical order,
//     (layer, number). It binds the campaign, the number of positions, and each one's id, place and account.
//  3. Drawn. [Draw] derives the draw seed from the server seed, the optional public beacon signature, the root, the
//     campaign and the prize list, and selects the winners. It is a pure function: run twice, it gives the same winners;
//     there is no second draw to choose from.
//  4. Revealed. [NewProof] makes the one JSON document that opens the commitment. [ParseProof] and [Proof.Verify] recompute
//     everything in it, offline; [Proof.VerifyCommitment] ties it to what was published at the start. [Include] gives one
//     entrant a short proof that their position was in the draw, without the rest of the list.
//
// The same selection core serves draws without a campaign: [Stream] is an unbiased source of integers, [Sample] and [Weights]
// select from it, and [Operation.At] reaches the stream of draw i of an operation without computing the ones before it.
//
// # What it promises
//
//   - Winners are a subset of the sealed positions, and a position wins a given prize at most once. It may win several
//     different prizes.
//   - Every choice is exactly uniform given a uniform stream: integers are taken by rejection, never by a bare remainder or
//     a floating-point product.
//   - Each field of a proof is bound: [ParseProof] or [Proof.Verify] refuses a document in which any one of them was
//     altered.
//   - No input, however long or hostile, makes a parser panic or use memory out of proportion to the document.
//
// # What it does not promise
//
// Commit and reveal prove that the operator could not choose the seed after seeing the sales. They do not stop an operator
// who knows the seed from buying selected last positions himself, or from never completing a sale whose outcome he
// dislikes. A public beacon's round that is named at sell-out closes that door: [Chain.NameRound] names it,
// [NewBeaconProof] binds it, and package fairdraw/beacon verifies its signature, which this package, of the standard
// library alone, does not. The page docs/design/fairdraw.md states the trust model in full and specifies every byte, with
// test vectors.
//
// # Concurrency
//
// Functions are pure and may run concurrently. A [Stream] belongs to one goroutine at a time; a [Weights] and an
// [Operation] may be shared.
package fairdraw
