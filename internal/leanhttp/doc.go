// Package leanhttp serves the hot routes of an HTTP/1.1 server with less work a request than net/http has, and leaves all
// others to it.
//
// Every connection starts lean: one goroutine reads into one buffer, and what it finds there is answered by the server's
// own handler, in one write, as long as it is plain. A plain request is a POST to a path that the server called hot, has a
// Content-Length and nothing that changes what a connection means, and came whole with one read. At the first request that
// is not, the connection goes to net/http together with the bytes that were read from it, and stays there. So the parser
// needs to know only what it accepts: whatever is unusual, split, large or wrong is judged by net/http. Where
// net/http can't read a request, [Server.Unreadable] makes the answer in place of its plain text.
//
// What a lean request lacks is what costs net/http most: nobody reads from the connection while the handler runs, so the
// request's context does not end when the client goes away. Hot routes are those where the command is carried out anyway. A handler
// may not use a lean request or its header after it has returned: the connection's next one has the same memory.
package leanhttp
