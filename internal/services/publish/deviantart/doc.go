// Package deviantart publishes to accounts of DeviantArt, by its documented HTTP API.
//
// # A delivery
//
//  1. The file is uploaded to Sta.sh (stash/submit), into a stack that bears the publication's id.
//  2. The item's id is saved with the publication, under the claim. A worker whose claim is lost ends here.
//  3. The item is published (stash/publish), which takes it out of Sta.sh. The deviation's id becomes the external id.
//
// The API has no idempotency keys, so every step is made one that can be asked for. A repeat looks for the publication's stack
// when no item id was saved, and goes on with what is there. When an id was saved and the item is still in Sta.sh, it was not
// published: step 3 is made. When it is gone, it was: the gallery says as what. Nothing is uploaded or published twice, but for
// a file that two workers upload at once because one was stopped past its claim; that one's item is deleted, unpublished, when
// it wakes. An item that is in neither place, because somebody deleted it by hand, is never made again: the attempts fail, and
// say so.
//
// # Authorization
//
// A target has a client's id and secret, and a token that the account's owner has authorized for the scopes stash, publish,
// browse and user. Access tokens live for an hour and are renewed a minute before their end, or when the API refuses one; a
// renewal ends the refresh token too, so one process at a time makes it (publish.Tokens). When the refresh token is refused,
// the authorization is over (they live for three months, or until the owner withdraws it): the target is paused until new
// credentials are given. A process that dies between the answer to a renewal and its commit loses the token, with the same end.
//
// # What answers mean
//
//	401                                       the token is renewed, once; then the authorization has expired
//	403 insufficient_scope                    the authorization has expired: it never was enough
//	429, 5xx, no answer in time, no way       transient; Retry-After is honoured
//	other 4xx                                 permanent
package deviantart
