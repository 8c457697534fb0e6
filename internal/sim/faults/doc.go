// Package faults has the tests of the alerts: one real fault for each, staged against running servers.
//
// A test starts servers, and a Prometheus that scrapes them with the rules of docs/operations/alerts.yaml. It breaks
// something, waits until Prometheus says that the alert fires, does what the alert's section in
// docs/operations/runbook.md says, and waits until the alert has ended. Commands are not copied into the tests: they are
// taken from the section, with its words in capitals replaced, and given to a shell. So a section whose commands don't
// end the fault fails its test, and so does an alert that can't fire on what servers really say.
//
// # Time
//
// A minute of the rules is a second here: "for", the windows of rates, and the thresholds of what has lasted for so many
// seconds are divided by sixty. Expressions stay otherwise as they are, thresholds of quantiles too.
//
// # When it runs
//
// With FAIRLEAD_TORTURE set, and prometheus, psql and curl on the path: make faults. The cheap checks, that each alert has a section and a fault,
// always run.
package faults
