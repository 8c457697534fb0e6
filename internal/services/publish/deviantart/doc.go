// Package deviantart publishes to accounts of DeviantArt, by its documented HTTP API.
//
// # A delivery
//
//  1. The file is uploaded to Sta.sh (stash/submit), into a stack that is named after the publication's id. A file that the payload
//     links to passes through, and is never held in memory.
//  2. The item's id is saved with the publication, under the claim. A worker that has lost its claim stops here.
//  3. The item is published (stash/publish), which takes it out of Sta.sh. The deviation's id becomes the external id.
//
// The API has no idempotency keys, so every step can be looked up. When no item id was saved, a repeat looks for the
// publication's stack and continues with what is there. When an id was saved and the item is still in Sta.sh, it was not
// published, and step 3 follows. When the item is gone, it was published, and the gallery has the deviation. Nothing is uploaded
// or published twice, with one exception: two workers may upload a file at once when one was stopped past its claim. That
// worker deletes its unpublished item when it resumes. An item that is in neither place, because somebody deleted it by hand, is
// never made again: the attempts fail and say so.
//
// # Authorization
//
// A target has a client's id and secret, and a token that the account's owner has authorized for the scopes stash, publish,
// browse and user. Access tokens live for an hour. They are renewed a minute before their end, or when the API refuses one. A
// renewal also ends the refresh token, so one process at a time renews (publish.Tokens). When the refresh token is refused, the
// authorization is over (after three months, or when the owner withdraws it), and the target is paused until new credentials are
// given. The same happens when a process dies between the answer to a renewal and its commit, because the token is lost.
//
// # What answers mean
//
//	401                                       the token is renewed, once; then the authorization has expired
//	403 insufficient_scope                    the authorization has expired: it never was enough
//	429, 5xx, no answer in time, no way       transient; Retry-After is honoured
//	other 4xx                                 permanent
package deviantart
