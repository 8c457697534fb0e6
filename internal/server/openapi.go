package server

import (
	"fmt"
	"math/big"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fairlead-dev/fairlead/internal/server/live"
	"github.com/fairlead-dev/fairlead/internal/services/auction"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
	"github.com/fairlead-dev/fairlead/internal/services/ledger/cross"
	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// Schema documents a timestamp.
func (timestamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "date-time", Description: "RFC 3339, UTC, microseconds"}
}

// Schema documents a duration.
func (duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Description: "Go duration", Examples: []any{"1.5s"}}
}

var pathParameter = regexp.MustCompile(`\{([a-z_]+)(\.\.\.)?\}`)

// openAPI builds the contract's document from the table of routes.
func openAPI(routes []route, version string) ([]byte, error) {
	registry := huma.NewMapRegistry("#/components/schemas/", schemaName)
	api := &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Fairlead", Version: version,
			Description: "Decides contended things exactly once. Every POST, PUT, PATCH and DELETE under /v1 but POST /v1/commands takes an Idempotency-Key: " +
				"send the same key again, and the same answer comes, byte for byte. Amounts are integers of minor units. A refusal is an RFC 9457 problem, " +
				"whose type links to what its code means; all codes are at /docs/problems. Every path answers other methods with 405, other hosts' names " +
				"with 421, and 503 while the database is away or a queue is full.",
		},
		Tags:  tags,
		Paths: map[string]*huma.PathItem{},
		Components: &huma.Components{
			Schemas: registry, Responses: map[string]*huma.Response{}, Examples: map[string]*huma.Example{},
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer", Description: "An API key, or a user's JWT. " +
					"A key has a role: admin; service, which does everything but administration; or reader, which may send every GET and nothing else. " +
					"A JWT's sub is the user's account. Others' accounts are 403; an object of another user's and an absent one are the same 404."},
			},
		},
	}
	problem := registry.Schema(reflect.TypeFor[Problem](), true, "Problem")
	for _, rt := range routes {
		addRoute(api, registry, rt, problem)
	}
	stateNulls(registry)
	b, err := json.Marshal(api, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(b, '\n'), err
}

func addRoute(api *huma.OpenAPI, registry huma.Registry, rt route, problem *huma.Schema) {
	op := &huma.Operation{
		OperationID: operationID(rt), Method: rt.method, Summary: rt.doc.summary, Tags: []string{rt.doc.tag},
		Description: strings.TrimSpace(operations[rt.name()].text + "\n\n" + rt.access.says(rt.method)),
		Responses: map[string]*huma.Response{
			"default": {Description: "any other problem", Content: map[string]*huma.MediaType{contentTypeProblem: {Schema: problem}}},
		},
	}
	for _, m := range pathParameter.FindAllStringSubmatch(rt.path, -1) {
		op.Parameters = append(op.Parameters, &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}})
	}
	for _, q := range rt.doc.query {
		op.Parameters = append(op.Parameters, &huma.Param{Name: q.name, In: "query", Description: q.doc, Schema: registry.Schema(q.schema, true, q.name)})
	}
	if rt.access != accessPublic {
		op.Security = []map[string][]string{{"bearer": {}}}
	}
	if rt.method != http.MethodGet && rt.path != batchPath {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Required: true, Description: "names this request, 1 to 255 visible ASCII characters",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if rt.stale {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: headerAfter, In: "header", Description: "of an earlier answer: a standby that answers has to have what was committed by then",
			Example: "16/B374D848", Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if rt.doc.request != nil {
		op.RequestBody = &huma.RequestBody{
			Required: rt.doc.request != reflect.TypeFor[noFields](),
			Content: map[string]*huma.MediaType{"application/json": {
				Schema: registry.Schema(rt.doc.request, true, schemaName(rt.doc.request, "")), Example: examples()[rt.name()].Request,
			}},
		}
	}
	success := success(registry, rt)
	op.Responses[strconv.Itoa(rt.status)] = success
	if rt.doc.accepted {
		op.Responses[strconv.Itoa(http.StatusAccepted)] = &huma.Response{Description: http.StatusText(http.StatusAccepted), Content: success.Content}
	}
	if rt.doc.unready {
		op.Responses[strconv.Itoa(http.StatusServiceUnavailable)] = &huma.Response{Description: "commands are not served now, and reason says why", Content: success.Content}
	}
	if rt.doc.repeats {
		op.Responses[strconv.Itoa(http.StatusOK)] = &huma.Response{Description: "what an earlier request with the reference was answered", Content: success.Content}
	}

	addRefusals(api.Components, problem, rt, op.Responses)

	path := strings.ReplaceAll(rt.path, "...", "")
	item := api.Paths[path]
	if item == nil {
		item = &huma.PathItem{}
		api.Paths[path] = item
	}
	switch rt.method {
	case http.MethodGet:
		item.Get = op
	case http.MethodPost:
		item.Post = op
	case http.MethodDelete:
		item.Delete = op
	}
}

// operationID names an operation for generated clients: post-campaigns-id-publish.
func operationID(rt route) string {
	name := strings.NewReplacer("/v1/", "", "{", "", "}", "", "...", "", "/", "-", ".", "-", "_", "-").Replace(rt.path)
	return strings.ToLower(rt.method) + "-" + strings.Trim(name, "-")
}

var nonWord = regexp.MustCompile(`[^A-Za-z0-9]+`)

// schemaName names a Go type in the document: transferView becomes Transfer, list[entryView] becomes EntryList.
func schemaName(t reflect.Type, hint string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := t.Name()
	if inner, ok := strings.CutPrefix(name, "list["); ok {
		inner = strings.TrimSuffix(inner[strings.LastIndexByte(inner, '.')+1:], "]")
		name = strings.TrimSuffix(inner, "View") + "List"
	}
	name = strings.TrimSuffix(nonWord.ReplaceAllString(name, ""), "View")
	if name == "" {
		name = hint
	}
	if name == "" {
		return "Value"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

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
		Keys: struct{ administration }{}, Locks: struct{ Locks }{}, Operator: struct{ Operator }{}, Registry: prometheus.NewRegistry(),
		Cross:   &cross.Service{},
		Ledger:  &ledger.Service{Reader: struct{ ledger.Reader }{}},
		Publish: &publish.Service{Reader: struct{ publish.Reader }{}},
		Auction: &auction.Service{Reader: struct{ auction.Reader }{}},
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
			if property == nil {
				continue
			}
			mayBeNull := f.Type.Kind() == reflect.Pointer && !strings.Contains(options, "omit") && f.Tag.Get("nullable") != "false"
			if property.Ref != "" {
				if mayBeNull {
					*property = huma.Schema{AnyOf: []*huma.Schema{{Ref: property.Ref}, {Type: "null"}}, Description: f.Tag.Get("doc")}
				}
				continue
			}
			if f.Type == reflect.TypeFor[*big.Int]() {
				// It has a text form, which is what the schema was made from, but it is written as a number.
				*property = huma.Schema{Type: huma.TypeInteger, Description: property.Description}
				continue
			}
			// A request's member may be a pointer only so that its absence is seen; its tag says so.
			if property.Nullable = mayBeNull; mayBeNull && len(property.Enum) > 0 {
				property.Enum = append(property.Enum, nil)
			}
		}
	}
}

// The documents of package fairdraw have a strict encoding of their own; these types describe them in the contract's
// document and are never encoded. docs/design/fairdraw.md specifies them to the byte.
type (
	proofDocument struct {
		Versions   proofVersions   `json:"versions"`
		Campaign   string          `json:"campaign"`
		Commitment string          `json:"commitment" doc:"hex SHA-256 of the server seed"`
		ServerSeed string          `json:"server_seed" doc:"32 bytes in hex"`
		Root       string          `json:"root" doc:"of the sealed positions, 32 bytes in hex"`
		DrawSeed   string          `json:"draw_seed" doc:"key of the random streams, 32 bytes in hex"`
		Beacon     *proofBeacon    `json:"beacon,omitempty" doc:"absent in instant mode"`
		Seal       *proofSeal      `json:"seal,omitempty" doc:"where the seal is in the public log; absent unless witnesses have seen it before the beacon's round"`
		Positions  []proofPosition `json:"positions"`
		Prizes     []proofPrize    `json:"prizes"`
		Winners    []winnerView    `json:"winners"`
	}
	inclusionDocument struct {
		Versions proofVersions `json:"versions"`
		Campaign string        `json:"campaign"`
		Root     string        `json:"root" doc:"32 bytes in hex"`
		Position proofPosition `json:"position"`
		Index    int           `json:"index" doc:"place of the position in canonical order, from 0"`
		Size     int           `json:"size" doc:"number of positions"`
		Siblings []string      `json:"siblings" doc:"hashes in hex, from the leaf upward"`
	}
	proofVersions struct {
		Document  int `json:"document"`
		Algorithm int `json:"algorithm"`
	}
	proofBeacon struct {
		Scheme            string `json:"scheme" doc:"drand's name of the way of signing"`
		ChainHash         string `json:"chain_hash" doc:"hex"`
		PublicKey         string `json:"public_key" doc:"the chain's, in hex"`
		Period            int    `json:"period" doc:"seconds between two rounds"`
		GenesisTime       int64  `json:"genesis_time" doc:"when round 1 was due, Unix seconds"`
		GenesisSeed       string `json:"genesis_seed" doc:"hex"`
		BeaconID          string `json:"beacon_id" doc:"the chain's name"`
		Round             int64  `json:"round" doc:"the one that was named at sell-out"`
		Signature         string `json:"signature" doc:"in hex"`
		PreviousSignature string `json:"previous_signature,omitempty" doc:"in hex, of chains that sign it too"`
	}
	proofSeal struct {
		Leaf       string   `json:"leaf" doc:"the entry's bytes in base64"`
		Index      int64    `json:"index" doc:"number of the entry in the log, from 0"`
		Inclusion  []string `json:"inclusion" doc:"hashes in hex from the leaf up to the checkpoint's root"`
		Checkpoint string   `json:"checkpoint" doc:"a signed note, cosigned by witnesses before the round was due"`
	}
	proofPosition struct {
		ID      string `json:"id"`
		Layer   int    `json:"layer"`
		Number  int    `json:"number"`
		Account string `json:"account"`
	}
	proofPrize struct {
		Name     string `json:"name"`
		Layer    int    `json:"layer" doc:"0: any"`
		Quantity int    `json:"quantity"`
	}
)
