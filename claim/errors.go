package claim

import (
	"errors"
	"fmt"
)

// ErrLost is returned by Heartbeat, Finish and Fail when the row is no longer under that lock id and version: the claim
// went stale and was released, was ended otherwise before, or the row was claimed anew or deleted. Nothing was changed.
var ErrLost = errors.New("claim: lost")

// ErrNotClaimable is returned by Claim when the row is not there, not ready, not due, claimed by another, or locked by
// another transaction at this moment.
var ErrNotClaimable = errors.New("claim: not claimable")

// ErrBadTable is returned by New when the description of the table is not usable.
var ErrBadTable = errors.New("claim: bad table")

// ErrOwnColumn is returned by Finish and Fail, which have asked the database for nothing, when the changes name a column of the claim:
// [Table.LockID], [Table.LockedAt], [Table.Version] or [Table.FinishedBy].
var ErrOwnColumn = errors.New("claim: the changes name a column that the claim itself writes")

// ErrFinished is returned by Finish, in a transaction (a pgx.Tx), when the same claim had been finished before: an earlier run of
// the transaction was committed, with whatever else it wrote. Roll this one back. It wraps [ErrLost].
var ErrFinished = fmt.Errorf("%w: finished before by the same claim", ErrLost)

// ErrBadAge is returned by ReleaseStale, and is the cause of the end of the context of Keep, when the time after which claims
// are stale is less than a microsecond, PostgreSQL's unit: claims that are alive would be released.
var ErrBadAge = errors.New("claim: the time after which claims are stale must be positive")
