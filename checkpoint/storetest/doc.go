// Package storetest is the conformance suite of package checkpoint's stores: every store runs it, its behaviour when it fails
// included. It also starts Redis servers for tests that need one.
package storetest
