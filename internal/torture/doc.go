// Package torture loads an installation of somebody's own, lets it meet one kind of fault again and again, and counts what became of what
// was acknowledged. It is what fairlead torture runs.
//
// It sees the installation from outside: its servers' HTTP interface, and its database. Its clients reach the servers by a [Proxy] of this
// process. Commands, the recorder of their answers and the comparison with the database are those of the project's own fault tests
// (package sim), and the auditor is package audit.
//
// A run is a row of docs/operations/faults.md. It is made of sessions of a minute at most, lest the books grow long. In each, load runs
// while faults come; then the load settles all its commands by their keys, a part of the keys is asked once more, and answers and
// database are compared.
package torture
