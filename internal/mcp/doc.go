// Package mcp lets an agent use a Fairlead server by the Model Context Protocol. It is a client of the server, with the client's key,
// and has no rights or guarantees of its own but one: what an agent does twice is done once.
//
// # Reads
//
// A tool that reads sends one GET and returns the server's document as it came. The tools that verify a draw recompute it here.
//
// # Writes
//
// A write takes two calls. A tool prepare_… reads what the command would meet, describes it in words and data, changes nothing, and
// returns an id. The tool commit takes the id and sends the command, with the id as its idempotency key. The server carries out a key
// once, so a commit can be repeated: by the agent, by a library that retries, or after a crash of this process.
//
// The id seals the command. It has a time of expiry, a random part, and a MAC over those, the server's URL and the command's path and
// body. The MAC's key is derived from the credential with which the command will be sent. Therefore
//
//   - a process that has not prepared a command can still check it, if commit is given the command along with the id: nothing has to
//     be stored anywhere between the two calls;
//   - a command that differs from what was prepared is refused before it is sent. The server would refuse it too (422
//     idempotency_key_reused), but only once the first one has arrived;
//   - an id can't be committed with another credential, or on another server, where the same key would be a new one.
//
// # States of a prepared command
//
//	prepared ──commit──► unanswered ──answer──► done | refused
//	    └────expiry───► forgotten
//
// A process remembers what it has prepared and sent, so that commit needs the id alone and list_prepared can show it. It keeps the
// answer and repeats it. After the expiry only a command that this process has sent may be committed again, for [settleFor], to learn
// what became of it. Expiry and that time together are far below the time for which a server keeps keys (24 h unless configured).
//
// # What it does not promise
//
//   - After a crash of this process, an id that has expired says nothing any more: the outcome is reported as unknown, and has to be
//     read from the accounts.
//   - Processes share no memory. Behind one URL there must be one process, or commit must be given the command each time.
package mcp
