package server

import (
	"fmt"
	"math/big"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// ContractVersion is the version in the copy of the document that the repository keeps: that of the paths. A running
// server puts its own there.
const ContractVersion = "v1"

// administration is Keys by another name, because an embedded Keys would hide the method Keys.
type administration = Keys

// Document builds the contract's document, OpenAPI 3.1 in JSON, without a server: for the copy that the repository
// keeps, and for the generators of clients. It is what a server of that version serves, byte for byte. The error is
// about a type that the document can't describe.
func Document(version string) ([]byte, error) {
	// The routes come with their handlers, which are made here and never called: what they read from is absent.
	s := &Server{Options: Options{
		Keys: struct{ administration }{}, Locks: struct{ Locks }{}, Registry: prometheus.NewRegistry(),
		Cross:   &cross.Service{},
		Ledger:  &ledger.Service{Reader: struct{ ledger.Reader }{}},
		Publish: &publish.Service{Reader: struct{ publish.Reader }{}},
	}}
	s.live = live.New(nil, live.Options{})
	b, err := openAPI(s.routes(), version)
	if err != nil {
		return nil, fmt.Errorf("server: build the OpenAPI document: %w", err)
	}
	return b, nil
}

// stateNulls makes the schemas say which members may be null, as the encoder really writes them: a pointer that is
// always present may be, whatever it points to; a list never is, since a nil one is written as an empty one.
func stateNulls(registry huma.Registry) {
	for name, schema := range registry.Map() {
		t := registry.TypeFromRef("#/components/schemas/" + name)
		if t == nil || t.Kind() != reflect.Struct {
			continue
		}
		for _, f := range reflect.VisibleFields(t) {
			member, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			property := schema.Properties[member]
			if property == nil || property.Ref != "" {
				continue
			}
			if f.Type == reflect.TypeFor[*big.Int]() {
				// It has a text form, which is what the schema was made from, but it is written as a number.
				*property = huma.Schema{Type: huma.TypeInteger, Description: property.Description}
				continue
			}
			// A request's member may be a pointer only so that its absence is seen; its tag says so.
			property.Nullable = f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omitempty") && f.Tag.Get("nullable") != "false"
		}
	}
}
