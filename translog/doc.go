// Package translog is the public log: facts that anybody may read, in a list that only grows, under a Merkle tree whose root is signed.
//
// The formats are C2SP's tlog-tiles, tlog-checkpoint and tlog-cosignature, so that tools that exist can read it. What a leaf says is
// specified byte by byte in docs/design/log.md. This package has leaves ([Leaf]), the growing tree ([Edge]), and signed checkpoints;
// package witness has those who sign that they have seen it grow, and package audit judges a log.
package translog
