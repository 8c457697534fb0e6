package server

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// contract is the document as a client's generator reads it.
type contract struct {
	t    testing.TB
	root map[string]any
}

func (e *env) contract() *contract {
	e.t.Helper()
	c := &contract{t: e.t}
	document := e.by("").get("/openapi.json").want(http.StatusOK)
	must(e.t, json.Unmarshal(document.body, &c.root, json.WithUnmarshalers(exactNumbers())))
	return c
}

// resolve follows a reference within the document.
func (c *contract) resolve(schema map[string]any) map[string]any {
	c.t.Helper()
	for {
		ref, ok := schema["$ref"].(string)
		if !ok {
			return schema
		}
		path, inside := strings.CutPrefix(ref, "#/")
		if !inside {
			c.t.Fatalf("$ref %q leads out of the document", ref)
		}
		target, ok := dig(c.t, c.root, strings.ReplaceAll(path, "/", "."), ref).(map[string]any)
		if !ok {
			c.t.Fatalf("$ref %q leads to no object", ref)
		}
		schema = target
	}
}

// operation finds what the document says of a request; path is a real one.
func (c *contract) operation(method, path string) (pattern string, op map[string]any) {
	path, _, _ = strings.Cut(path, "?")
	paths, _ := c.root["paths"].(map[string]any)
	for _, exact := range []bool{true, false} { // A path without parameters goes first.
		for pattern, item := range paths {
			if exact == strings.Contains(pattern, "{") {
				continue
			}
			matcher := regexp.MustCompile(`^` + regexp.MustCompile(`\\\{[^}]*\\\}`).ReplaceAllString(regexp.QuoteMeta(pattern), `[^/]+`) + `$`)
			if !matcher.MatchString(path) {
				continue
			}
			if op, ok := object(item)[strings.ToLower(method)].(map[string]any); ok {
				return pattern, op
			}
		}
	}
	return "", nil
}

// TestOpenAPI checks the document against the rules of OpenAPI 3.1 and against the table of routes.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	c := e.contract()
	if c.root["openapi"] != "3.1.0" || dig(t, c.root, "info.title", "") == "" || dig(t, c.root, "info.version", "") != "test" {
		t.Errorf("openapi %v, info %v", c.root["openapi"], c.root["info"])
	}
	paths, _ := c.root["paths"].(map[string]any)
	documented, ids := 0, map[string]bool{}
	for _, r := range e.server.routes() {
		path := strings.ReplaceAll(r.path, "...", "")
		item, _ := paths[path].(map[string]any)
		op, ok := item[strings.ToLower(r.method)].(map[string]any)
		if !ok {
			t.Errorf("%s %s is not in the document", r.method, path)
			continue
		}
		documented++
		c.checkOperation(r, op, ids)
	}
	total := 0
	for path, item := range paths {
		for method := range object(item) {
			if !slices.Contains([]string{"get", "post", "delete", "put", "patch"}, method) {
				t.Errorf("%s: member %s", path, method)
			}
			total++
		}
	}
	if total != documented {
		t.Errorf("%d operations for %d routes", total, documented)
	}
	schemas, _ := dig(t, c.root, "components.schemas", "").(map[string]any)
	for name, schema := range schemas {
		if !regexp.MustCompile(`^[A-Za-z0-9._-]+$`).MatchString(name) {
			t.Errorf("schema name %q", name)
		}
		c.checkSchema(name, schema)
	}
}

func (c *contract) checkOperation(r route, op map[string]any, ids map[string]bool) {
	c.t.Helper()
	name := r.method + " " + r.path
	id, _ := op["operationId"].(string)
	if id == "" || ids[id] || op["summary"] == "" {
		c.t.Errorf("%s: operationId %q, taken before: %v", name, id, ids[id])
	}
	ids[id] = true
	var inPath []string
	key := false
	parameters, _ := op["parameters"].([]any)
	for _, p := range parameters {
		p := object(p)
		if p["in"] == "path" {
			inPath = append(inPath, fmt.Sprint(p["name"]))
			if p["required"] != true {
				c.t.Errorf("%s: the path's %v is not required", name, p["name"])
			}
		}
		key = key || (p["in"] == "header" && p["name"] == "Idempotency-Key" && p["required"] == true)
		c.checkSchema(name, p["schema"])
	}
	var want []string
	for _, m := range regexp.MustCompile(`\{([a-z_]+)`).FindAllStringSubmatch(r.path, -1) {
		want = append(want, m[1])
	}
	if !slices.Equal(inPath, want) {
		c.t.Errorf("%s: path parameters %v, want %v", name, inPath, want)
	}
	if mutates := r.method != http.MethodGet && r.path != batchPath; key != mutates {
		c.t.Errorf("%s: Idempotency-Key documented: %v", name, key)
	}
	if _, secured := op["security"]; secured != strings.HasPrefix(r.path, "/v1") {
		c.t.Errorf("%s: security documented: %v", name, secured)
	}
	responses, _ := op["responses"].(map[string]any)
	statuses := []string{fmt.Sprint(r.status), "default"}
	if r.path == "/readyz" { // A server that is not ready says so in the same document.
		statuses = append(statuses, "503")
		if _, ok := object(object(responses["503"])["content"])["application/json"]; !ok {
			c.t.Errorf("%s: 503 is no JSON document of its own: %v", name, responses["503"])
		}
	}
	for _, status := range statuses {
		response := c.resolve(object(responses[status]))
		if response["description"] == nil || response["description"] == "" {
			c.t.Errorf("%s: no response %s, or one without a description", name, status)
			continue
		}
		c.checkContent(name, response["content"])
	}
	c.checkWords(r, op)
	if body, ok := op["requestBody"].(map[string]any); ok {
		c.checkContent(name, body["content"])
	}
}

func (c *contract) checkContent(name string, content any) {
	c.t.Helper()
	media, _ := content.(map[string]any)
	for _, m := range media {
		c.checkSchema(name, object(m)["schema"])
	}
}

// keywords are those of JSON Schema 2020-12 that the validator below knows.
var keywords = []string{
	"$ref", "anyOf", "type", "properties", "required", "additionalProperties", "items", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
	"format", "description", "examples", "title", "contentEncoding",
}

// checkSchema walks a schema: references lead somewhere, types are types, and required members are properties.
func (c *contract) checkSchema(name string, schema any) {
	c.t.Helper()
	s, ok := schema.(map[string]any)
	if !ok {
		if _, isBool := schema.(bool); !isBool {
			c.t.Errorf("%s: no schema: %v", name, schema)
		}
		return
	}
	for keyword := range s {
		if !slices.Contains(keywords, keyword) {
			c.t.Errorf("%s: keyword %q is none of JSON Schema 2020-12 that is known here", name, keyword)
		}
	}
	if _, ok := s["$ref"]; ok {
		c.resolve(s)
		return
	}
	for _, typ := range types(s) {
		if !slices.Contains([]string{"string", "integer", "number", "boolean", "array", "object", "null"}, typ) {
			c.t.Errorf("%s: type %q", name, typ)
		}
	}
	options, _ := s["anyOf"].([]any)
	for _, option := range options {
		c.checkSchema(name, option)
	}
	properties, _ := s["properties"].(map[string]any)
	for member, p := range properties {
		c.checkSchema(name+"."+member, p)
	}
	required, _ := s["required"].([]any)
	for _, member := range required {
		if _, ok := properties[fmt.Sprint(member)]; !ok {
			c.t.Errorf("%s: %v is required and no property", name, member)
		}
	}
	if items, ok := s["items"]; ok {
		c.checkSchema(name+"[]", items)
	}
}

// object is v where it is a JSON object, and an empty one where it is not.
func object(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func types(schema map[string]any) []string {
	switch t := schema["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var all []string
		for _, one := range t {
			all = append(all, fmt.Sprint(one))
		}
		return all
	}
	return nil
}

// TestOpenAPIFile keeps the file and the code together.
func TestOpenAPIFile(t *testing.T) {
	t.Parallel()
	code, err := Document(ContractVersion)
	must(t, err)
	file, err := os.ReadFile("../../docs/openapi.json")
	must(t, err)
	if !bytes.Equal(file, code) {
		t.Error("docs/openapi.json is not what the code makes: run scripts/generate.sh")
	}
}

// validate compares a value with its schema and returns the first difference.
func (c *contract) validate(at string, schema any, value any) string {
	s, ok := schema.(map[string]any)
	if !ok {
		return ""
	}
	s = c.resolve(s)
	if options, ok := s["anyOf"].([]any); ok {
		diff := ""
		for _, option := range options {
			if diff = c.validate(at, option, value); diff == "" {
				break
			}
		}
		return diff
	}
	if allowed := types(s); len(allowed) > 0 && !slices.ContainsFunc(allowed, func(t string) bool { return isType(t, value) }) {
		return fmt.Sprintf("%s: %s is none of %v", at, mustMarshal(value), allowed)
	}
	if enum, ok := s["enum"].([]any); ok && !slices.Contains(enum, value) {
		return fmt.Sprintf("%s: %v is none of %v", at, value, enum)
	}
	switch v := value.(type) {
	case string:
		switch format, _ := s["format"].(string); {
		case format == "date-time" && !timePattern.MatchString(v), format == "uuid" && len(v) != 36:
			return fmt.Sprintf("%s: %q is no %s", at, v, format)
		}
		if encoding, ok := s["contentEncoding"]; ok {
			return fmt.Sprintf("%s: %q is documented as %v", at, v, encoding)
		}
	case []any:
		for i, item := range v {
			if diff := c.validate(fmt.Sprintf("%s[%d]", at, i), s["items"], item); diff != "" {
				return diff
			}
		}
	case map[string]any:
		properties, _ := s["properties"].(map[string]any)
		required, _ := s["required"].([]any)
		for _, member := range required {
			if _, ok := v[fmt.Sprint(member)]; !ok {
				return fmt.Sprintf("%s: %v is missing", at, member)
			}
		}
		for name, member := range v {
			property, ok := properties[name]
			if !ok && s["additionalProperties"] == false {
				return fmt.Sprintf("%s: %s is not allowed", at, name)
			}
			if diff := c.validate(at+"."+name, property, member); diff != "" {
				return diff
			}
		}
	}
	return ""
}

func isType(typ string, value any) bool {
	switch v := value.(type) {
	case nil:
		return typ == "null"
	case string:
		return typ == "string"
	case bool:
		return typ == "boolean"
	case []any:
		return typ == "array"
	case map[string]any:
		return typ == "object"
	case jsontext.Value:
		return typ == "number" || (typ == "integer" && !strings.ContainsAny(string(v), ".eE"))
	}
	return false
}

// TestAnswersFollowTheDocument uses every route and holds what it answers against what the document promises.
func TestAnswersFollowTheDocument(t *testing.T) {
	t.Parallel()
	e, _ := newBeaconEnv(t)
	c := e.contract()
	seen, wrong := map[string]bool{}, map[string]string{}
	e.observe = func(method, path string, r *reply) {
		pattern, op := c.operation(method, path)
		if op == nil || (r.decoded == nil && r.status != http.StatusNoContent) {
			return
		}
		name := fmt.Sprintf("%s %s %d", method, pattern, r.status)
		seen[method+" "+pattern] = seen[method+" "+pattern] || r.status < http.StatusBadRequest
		responses, _ := op["responses"].(map[string]any)
		response, ok := responses[fmt.Sprint(r.status)].(map[string]any)
		if !ok {
			if r.status < http.StatusInternalServerError {
				wrong[name] = "the status is not documented"
			}
			response, _ = responses["default"].(map[string]any)
		}
		content, _ := c.resolve(response)["content"].(map[string]any)
		if r.status >= http.StatusBadRequest && r.status < http.StatusInternalServerError && object(object(content[contentTypeProblem])["examples"])[fmt.Sprint(r.decoded["code"])] == nil {
			wrong[name] = fmt.Sprintf("the code %v is not documented", r.decoded["code"])
		}
		for _, media := range content {
			if diff := c.validate("answer", object(media)["schema"], r.decoded); diff != "" {
				wrong[name] = diff
			}
		}
	}
	e.useEverything()
	e.sealed(`,"draw":"beacon"`)
	for name, diff := range wrong {
		t.Errorf("%s: %s", name, diff)
	}
	for _, r := range e.server.routes() {
		// Streams answer no document; their messages have tests of their own.
		stream := r.path == livePath || r.path == "/v1/events"
		if strings.HasPrefix(r.path, "/v1") && !stream && !seen[r.method+" "+r.path] {
			t.Errorf("%s %s was not used with success", r.method, r.path)
		}
	}
}

// useEverything uses every route at least once with success, and some without.
func (e *env) useEverything() {
	e.t.Helper()
	for _, p := range e.postRoutes() {
		body := ``
		if len(p.members) > 0 {
			body = p.body(p.members)
		}
		e.post(p.path, body).want(p.status)
		e.post(p.path, `{"unknown":1}`).problem(http.StatusBadRequest, "bad_request")
	}
	e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":9007199254740991}`).problem(http.StatusPaymentRequired, "insufficient_funds")
	transfer := e.post("/v1/transfers", `{"from":"alice","to":"bob","amount":1}`).want(http.StatusCreated).str("id")
	e.batch(listed("/v1/deposits", `{"account":"alice","amount":1}`), listed("/v1/deposits", `{"account":"nobody","amount":1}`))
	hold := e.post("/v1/holds", `{"account":"alice","amount":1,"expires_in":"1h"}`).want(http.StatusCreated).str("id")
	layered := e.onSale(`"layers":[{"positions":1}]`, `,"purchase_limit":3,"prizes":[{"name":"a","layer":1,"quantity":1}]`)
	e.keepLog(slowWitnesses{"w": time.Minute})
	// The log may have leaves before it has a closing.
	testwait.Eventually(e.t, patience, "a closing of the books in the log", func() bool { return e.get("/v1/accounts/alice/proof").status == http.StatusOK })
	half := e.onSale(`"base_length":2`, "")
	e.buy(half, "alice").want(http.StatusCreated)
	id := layered
	e.buy(id, "alice").want(http.StatusCreated)
	place := e.get("/v1/campaigns/" + id + "/positions").str("items.0.id")
	key := e.get("/v1/keys").str("items.1.id")
	lot := e.started(`[{"winners":1,"duration":"1h"},{"winners":1,"duration":"1h"}]`, `"cooldown":"1h"`)
	e.bid(lot, "alice", 5).want(http.StatusCreated)
	e.bid(lot, "alice", 6).problem(http.StatusTooManyRequests, "cooldown")
	e.closeRound(lot, 1)
	e.bid(lot, "alice", 7).want(http.StatusCreated)
	for _, amount := range []string{"1", "1", "2"} { // The same again, and another with the same reference.
		e.post("/v1/deposits", `{"account":"alice","amount":`+amount+`,"reference":"once"}`)
	}
	for _, path := range []string{"", "?limit=1", "/" + lot, "/" + newUUID(), "/" + lot + "/leaderboard", "/" + lot + "/winners", "/" + lot + "/bids?limit=1", "/" + lot + "/min-winning-bid", "/" + lot + "/log", "/" + lot + "/log?limit=1"} {
		e.get("/v1/auctions" + path)
	}
	for _, path := range []string{
		"/v1/accounts/alice/aliases?topic=auction:" + lot, "/v1/accounts/alice", "/v1/accounts/nobody", "/v1/accounts/alice/entries", "/v1/accounts/alice/entries?limit=1", "/v1/accounts/alice/holds?limit=1", "/v1/accounts/alice/bids", "/v1/accounts/alice/purchases?limit=1",
		"/v1/transfers/" + transfer, "/v1/transfers?reference=once", "/v1/holds/" + hold, "/v1/integrity",
		"/v1/campaigns", "/v1/campaigns/" + id, "/v1/campaigns/" + half, "/v1/campaigns/" + half + "/positions", "/v1/campaigns/" + id + "/purchases", "/v1/campaigns/" + id + "/draw",
		"/v1/campaigns/" + half + "/draw", "/v1/campaigns/" + id + "/proof", "/v1/campaigns/" + id + "/proof/positions/" + place, "/v1/campaigns/" + id + "/statistics", "/v1/campaigns/" + id + "/log", "/v1/keys", "/healthz", "/readyz",
	} {
		e.get(path)
	}
	e.get("/v1/locks").want(http.StatusOK)
	held := e.lock("o", "1h", "", "of everything").want(http.StatusCreated).str("id")
	e.lock("p", "1h", "", "of everything").problem(http.StatusConflict, "lock_held")
	e.unlock(held).want(http.StatusNoContent)
	e.unlock(held).problem(http.StatusGone, "lock_lost")
	e.useCross("alice", "bob")
	e.useMultidraws()
	e.usePublishing()
	tried := e.failedPublication("standing")
	for _, path := range []string{tried, tried + "/attempts", "/v1/publications?status=failed&limit=1", "/v1/publications", "/v1/targets?limit=1"} {
		e.get(path).want(http.StatusOK)
	}
	e.get("/v1/targets/" + e.get("/v1/targets").str("items.0.id")).want(http.StatusOK)
	for _, path := range []string{"keys", "sagas", "targets?limit=1", "automations", "automations/" + e.get("/v1/automations").str("items.0.id") + "/firings", strings.TrimPrefix(tried, "/v1/") + "/attempts"} {
		e.get("/v1/admin/" + path).want(http.StatusOK)
	}
	e.useAdmin(id, lot, "key:"+e.adminID)
	e.revoke(key).want(http.StatusOK)
	e.get("/v1/keys").want(http.StatusOK)
}
