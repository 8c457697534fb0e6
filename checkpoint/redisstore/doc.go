// Package redisstore keeps the states of package checkpoint in Redis: each is one string, the JSON of
// [checkpoint.State], under the key lottery:state:{lockKey}:{operation_id}, with a time to live.
//
// A save is one script, which Redis runs as one step: it looks at the head of the state that is there, refuses what does not
// follow, and replaces the whole. So a state is never half written, and readable with GET. A cluster may keep each key where
// it likes.
//
// # What it promises
//
// What [checkpoint.Store] says, as long as Redis remembers. What fails for a passing reason is tried three times more, with
// growing pauses, and then reported as a [checkpoint.ConnectionError]. A state that is gone in the middle of a run, because
// Redis was flushed, lost its memory or evicted it, ends the run with [checkpoint.ErrLost]; one that went back, because Redis
// restarted from an older file or a replica took over that lagged, with [checkpoint.ErrFenced]. Neither is papered over.
//
// # What it does not promise
//
// That Redis remembers. An operation whose state is gone can be begun anew under its id, with another seed and other results:
// its caller was told of the end of the first, and decides. Effects outside are not undone by a loss. For what must not be
// forgotten, use pgstore.
package redisstore
