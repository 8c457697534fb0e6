// Package wire is a proxy between a server and its PostgreSQL that loses commits.
//
// It reads the frontend and backend messages of the PostgreSQL protocol (version 3, "Message Formats" of its manual)
// just well enough to know which of them commits a transaction: COMMIT as a simple query or as an executed statement,
// and, outside a transaction block, the end of a simple query or pipeline that wrote. What happens to such a message is
// its [Fate], drawn from a seed:
//
//   - it is forwarded and its answer delivered;
//   - it is forwarded, and when the answer has come, and the commit is thus durable, the connection is cut instead;
//   - it is forwarded and the connection is cut at once, so that nobody knows;
//   - it is not forwarded and the connection is cut, so that the transaction never commits.
//
// The client sees the same in the last three: a connection that died while it waited for COMMIT. After some cuts the
// proxy also refuses every connection for a while, so that nobody can ask what became of the transaction either.
//
// It can also hold back single answers ([Proxy.Delay]), and refuse all connections ([Proxy.Refuse]).
//
// The proxy does not speak TLS and answers requests for it with no; it changes no message.
package wire
