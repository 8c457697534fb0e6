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
//	server.js         whether the server answers: the probe, the banner, the time of the last answer
//	ages.js           ages and countdowns that go on by themselves
//	live.js           the live stream, with sequence numbers and resumption
//	ui.js             lists with filters and pages, dialogs, status; every and watch, by which pages follow what changes
//	chart.js          the small lines of the overview
//	plot.js           charts over time, on vendor/uPlot.js
//	hour.js           what the server measured over the last hour
//	history.js        an account's balance and a campaign's sales over time
//	auction-chart.js  an auction's bids over time
//	histogram.js      how often a multi-draw has drawn what
//	search.js         the search over everything
//	names.js          names beside ids
//	ledgers.js        accounts of this ledger and of others
//	forms.js          forms that make things, and where the server's refusals are shown
//	bulk.js           one action on many rows of a list
//	empty.js          what an empty list says
//	sealed.js         what is said of a seal that witnesses have seen
//	who.js, zone.js   who is signed in; the time zone of what is shown
//	triangle.js       a campaign's positions
//	waits.js          the wait-for graph
//	errors.js         errors of steps in plain words
//	verify/*.js       verification of proofs, without the rest; agrees with fairlead verify
//	pages/*.js        a module a page
//	public-*.js       the public pages
//
// The package knows nothing of sessions and serves no API; that is the server's.
package console
