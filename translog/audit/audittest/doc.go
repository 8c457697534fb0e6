// Package audittest makes logs for tests of auditors: valid histories ([Play]), which the server's own cores decide, and a server of
// them whose operator can cheat ([Log]).
//
// The encoding of leaves and the tree are written here once more, so that an auditor is not tested against code that it, or the
// server, has in use.
package audittest
