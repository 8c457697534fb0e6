package claim

import "errors"

// ErrLost is returned by Heartbeat, Finish and Fail when the row is no longer under that lock id and version: the claim
// went stale and was released, the row was claimed anew, finished before, or deleted. Nothing was changed.
var ErrLost = errors.New("claim: lost")

// ErrNotClaimable is returned by Claim when the row is not there, not ready, not due, claimed by another, or locked by
// another transaction at this moment.
var ErrNotClaimable = errors.New("claim: not claimable")

// ErrBadTable is returned by New when the description of the table is not usable.
var ErrBadTable = errors.New("claim: bad table")
