package server

import (
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
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
			Description: "Decides contended things exactly once. Every POST, PUT, PATCH and DELETE under /v1 takes an Idempotency-Key: " +
				"send the same key again, and the same answer comes, byte for byte.",
		},
		// The order of the page's sections.
		Tags:  []*huma.Tag{{Name: "lottery"}, {Name: "auctions"}, {Name: "publishing"}, {Name: "ledger"}, {Name: "administration"}, {Name: "operation"}},
		Paths: map[string]*huma.PathItem{},
		Components: &huma.Components{
			Schemas: registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"bearer": {Type: "http", Scheme: "bearer", Description: "an API key, or a user's JWT"},
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
		Responses: map[string]*huma.Response{
			"default": {Description: "the problem", Content: map[string]*huma.MediaType{contentTypeProblem: {Schema: problem}}},
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
	if rt.method != http.MethodGet {
		op.Parameters = append(op.Parameters, &huma.Param{
			Name: "Idempotency-Key", In: "header", Required: true, Description: "names this request, 1 to 255 visible ASCII characters",
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	if rt.doc.request != nil {
		op.RequestBody = &huma.RequestBody{
			Required: rt.doc.request != reflect.TypeFor[noFields](),
			Content:  map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(rt.doc.request, true, schemaName(rt.doc.request, ""))}},
		}
	}
	success := &huma.Response{Description: http.StatusText(rt.status)}
	if rt.doc.response != nil {
		success.Content = map[string]*huma.MediaType{"application/json": {Schema: registry.Schema(rt.doc.response, true, schemaName(rt.doc.response, ""))}}
	}
	op.Responses[strconv.Itoa(rt.status)] = success
	if rt.doc.accepted {
		op.Responses[strconv.Itoa(http.StatusAccepted)] = &huma.Response{Description: http.StatusText(http.StatusAccepted), Content: success.Content}
	}

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
