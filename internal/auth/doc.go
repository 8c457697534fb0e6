// Package auth tells who is asking, and on whose account they may act.
//
// # Protocol
//
// A request presents one credential, "Authorization: Bearer KEY-or-JWT", or the same in a WebSocket's subprotocols.
// [Authorization] or [SubprotocolAuthorization] takes it from the header, [Authenticator.Authenticate] turns it into a
// [Principal]. [Principal.MayRead] and [Principal.MayActFor] say for which accounts. All of them come before any state is looked
// at, so that their refusals tell nothing about what exists.
//
//   - An API key is a secret of which the store knows the SHA-256. With the role
//     [RoleAdmin] or [RoleService] it may act for every account. With
//     [RoleReader] it reads everything and changes nothing.
//   - A JWT is a user's. Its sub is the one account that the user may read and
//     act for. Its exp is required, its nbf and iat are honoured, and its signature must
//     verify with a configured key, by an algorithm that this very key is for.
//
// A credential with the shape of a JWT is taken for one first, and for a key if it is no good token. Every failure to the
// client is one of three: [ErrNoCredential] and [ErrBadCredential] are 401, [ErrUnavailable] is 503.
//
// # States of a key in the cache
//
// Ages count from the moment before the store was asked.
//
//	fresh    0 s to 2 s   accepted at once; from 1 s on, renewed in the background
//	grace    2 s to 4 s   the store is asked; accepted if it doesn't answer
//	old      over 4 s     the store is asked; without an answer ErrUnavailable
//	refused  for 1 s      the store didn't know the key, or knew it as revoked
//
// # What it promises
//
//   - A revoked key is refused, in every process, at most 4 s after the
//     revocation committed, also when the store is slow or down.
//   - A key that exists is accepted within 1 s of its making, if it was tried
//     before.
//   - Tokens are never accepted past their exp. A key that the issuer withdrew
//     from its key set is accepted for at most 5 min and 5 s while the issuer
//     can be reached, and 1 h and 5 s when it can't.
//   - A token of a new key is accepted within 5 s of the key's publication.
//   - A flood of bad keys has at most four look-ups under way in the store, and
//     keys already in use don't queue behind those. A flood of tokens that name
//     unknown keys makes at most one fetch of the key set in 5 s. All caches
//     are bounded.
//   - Accepting a key that is in the cache allocates nothing.
//
// # What it doesn't promise
//
//   - A token can't be revoked before it expires. Issue them for minutes.
//   - A [Limiter] counts in one process. Behind a balancer, a user has the
//     quota once a process.
//   - During a flood of bad keys, a key that this process hasn't seen yet may
//     have to wait for its first look-up, and after 2 s gets [ErrUnavailable].
package auth
