// Package translog is the public log: facts that anybody may read, in a list that only grows, under a Merkle tree whose root is signed.
//
// The formats are C2SP's tlog-tiles, signed-note, tlog-checkpoint and tlog-cosignature (c2sp.org), so that any program that knows these
// can read the log. What a [Leaf] says is specified byte by byte in docs/design/log.md; [Edge] is the growing tree. Package witness has the
// witness itself and the client that asks witnesses, package seal verifies that a draw was sealed before
// its round, and package audit judges a log.
//
// A log's [Key] signs checkpoints: its origin, the size of its tree and the tree's root. A witness's [Cosigner] signs that it has seen the
// tree grow. [Open] verifies both; [AddCosignatures] puts witnesses' signatures into a checkpoint. A checkpoint proves what its log said,
// and nothing about what the log said to others. That no second history exists follows from witnesses alone.
//
// All functions are safe for concurrent use, and so are the methods of keys.
package translog
