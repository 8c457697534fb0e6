package mcp

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// Types with a meaning of their own in the schemas of arguments.
type (
	// amount is money in minor units.
	amount int64
	// id names an account, or anything that the server made.
	id string
	// limit is how long a page of a list is.
	limit int

	campaignStep      string
	auctionStep       string
	publicationStep   string
	publicationStatus string
	drawMode          string
)

// schemas of types that Go's own say too little about.
func schemas() *jsonschema.ForOptions {
	one := func(of ...any) *jsonschema.Schema { return &jsonschema.Schema{Type: "string", Enum: of} }
	return &jsonschema.ForOptions{TypeSchemas: map[reflect.Type]*jsonschema.Schema{
		reflect.TypeFor[amount]():            {Type: "integer", Minimum: new(1.0), Maximum: new(float64(1<<53 - 1))},
		reflect.TypeFor[id]():                {Type: "string", Pattern: `^[A-Za-z0-9._:@~-]{1,128}$`},
		reflect.TypeFor[limit]():             {Type: "integer", Minimum: new(1.0), Maximum: new(200.0)},
		reflect.TypeFor[jsontext.Value]():    {},
		reflect.TypeFor[time.Time]():         {Type: "string", Format: "date-time", Pattern: `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`},
		reflect.TypeFor[campaignStep]():      one("publish", "cancel", "draw"),
		reflect.TypeFor[auctionStep]():       one("start", "cancel"),
		reflect.TypeFor[publicationStep]():   one("schedule", "publish", "cancel", "retry"),
		reflect.TypeFor[publicationStatus](): one("draft", "scheduled", "publishing", "published", "failed", "cancelled"),
		reflect.TypeFor[drawMode]():          one("instant", "beacon"),
	}}
}

// schemaOf makes the schema of a Go type.
func schemaOf[T any]() (*jsonschema.Schema, error) {
	s, err := jsonschema.For[T](schemas())
	if err == nil {
		withoutNull(s)
	}
	return s, err
}

// withoutNull makes lists and pointers one type: not all hosts understand two, and none of ours is null.
func withoutNull(s *jsonschema.Schema) {
	if len(s.Types) == 2 && slices.Contains(s.Types, "null") {
		s.Type, s.Types = s.Types[1-slices.Index(s.Types, "null")], nil
	}
	for _, property := range s.Properties {
		withoutNull(property)
	}
	if s.Items != nil {
		withoutNull(s.Items)
	}
}

// output makes the schema of a document of this package.
func output[Out any](b *builder) *jsonschema.Schema {
	schema, err := schemaOf[Out]()
	if b.err == nil && err != nil {
		b.err = err
	}
	return schema
}

// plainly says which argument does not follow its schema, and how.
func plainly(err error) string {
	places := regexp.MustCompile(`validating (root|/properties/[^ ]*): `)
	last := ""
	text := places.ReplaceAllStringFunc(err.Error(), func(place string) string {
		last = places.FindStringSubmatch(place)[1]
		return ""
	})
	place := strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(last, "/properties/"), "/properties/", "."), "/items", "[]")
	if place == "" || place == "root" {
		return text
	}
	return place + ": " + text
}
