// Package beacon reads and verifies public randomness: the rounds that a drand network (https://docs.drand.love) signs at
// fixed times, which nobody can know before they are due and anybody can check for ever after.
//
// # Protocol
//
// A [fairdraw.Chain] is a public key, a period and a genesis time. Round n is due at genesis + (n−1) · period, and is the
// network's BLS signature (curve BLS12-381, draft-irtf-cfrg-bls-signature, basic scheme) of
//
//	SHA-256(u64(n))                         unchained: bls-unchained-g1-rfc9380
//	SHA-256(previous signature ‖ u64(n))    chained:   pedersen-bls-chained
//
// The first has keys on G2 (96 bytes) and signatures on G1 (48 bytes), the second the other way round. A BLS signature is
// unique: key and message leave no other, so that whoever holds shares of the key can withhold a round, and cannot choose
// it. A chain is known by its hash, [fairdraw.Chain.Hash].
//
// [Verify] is pure and offline. [Client] fetches a round over drand's HTTP API, version 2 or 1, from several relays in
// turn; it trusts none of them, since it returns only what Verify accepted.
//
// # What it promises
//
//   - A round that Client returns is the one asked for, and genuine.
//   - Only the one canonical, compressed encoding of a signature is accepted. Otherwise whoever passes a round on could
//     choose between two texts of the same point, and with them between two draws.
//   - An answer that is false, of another round, malformed, too large or late makes Client go on to the next relay. It
//     never takes more memory than a small constant, nor more time than its limit for each relay.
//
// # What it does not promise
//
// That a round is ever published: networks stop, and relays lose history. Nor that nobody knew a round before it was due: a
// threshold of a network's members together could. The chains that [Known] pins are run by independent organisations for
// this reason; whoever gives another must say why it deserves trust, since with one's own key one can compute every round
// in advance.
package beacon
