// Package console holds the web console and the public pages: HTML, style sheets and ES modules, embedded as they are.
//
// There is no build step and no framework: what is in static/ is what the browser gets. [Assets] are compressed once,
// with an entity tag of its content, so that a browser which has it is answered with 304. Pages carry no data; their scripts
// ask the server's own API. Everything that a person has typed reaches the page as text (textContent) and never as markup,
// which the content policy of the server enforces: there is no inline script or style, no eval, no innerHTML (Trusted Types).
//
// Modules:
//
//	app.js            router, session, navigation
//	dom.js            elements from text; nothing else makes elements
//	api.js            requests, problems, idempotency keys
//	live.js           the live stream, with sequence numbers and resumption
//	ui.js             lists with filters and pages, dialogs, status
//	chart.js          bars and lines over time
//	triangle.js       a campaign's positions
//	waits.js          the wait-for graph
//	verify/*.js       verification of proofs, without the rest; agrees with fairlead verify
//	pages/*.js        a module a page
//	public-*.js       the public pages
//
// The package knows nothing of sessions and serves no API; that is the server's.
package console
