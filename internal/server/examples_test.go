package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// checkWords looks for what a reader needs of an operation: a description, examples of its request and its answers that satisfy their own
// schemas, and its refusals by status, each with an example of every code.
func (c *contract) checkWords(r route, op map[string]any) {
	c.t.Helper()
	name := r.name()
	description, _ := op["description"].(string)
	if own := strings.TrimSpace(strings.TrimSuffix(description, r.access.says(r.method))); len(own) < 20 || own == op["summary"] {
		c.t.Errorf("%s is not described: %q", name, description)
	}
	if body, ok := op["requestBody"].(map[string]any); ok {
		c.checkExample(name+": the request", body)
	} else if r.method == http.MethodPost {
		c.t.Errorf("%s has no body", name)
	}
	refusals := 0
	for status, response := range object(op["responses"]) {
		response := c.resolve(object(response))
		at := name + " " + status
		switch {
		case strings.HasPrefix(status, "4"):
			refusals++
			c.checkRefusal(at, status, response)
		case status == "default" || status == fmt.Sprint(http.StatusSwitchingProtocols) || status == fmt.Sprint(http.StatusNoContent):
			if status != "default" && response["content"] != nil {
				c.t.Errorf("%s has a body", at)
			}
		default:
			c.checkExample(at, response)
		}
	}
	if refusals == 0 {
		c.t.Errorf("%s has no refusal", name)
	}
}

// checkExample wants one example for each kind of content, of its schema.
func (c *contract) checkExample(at string, of map[string]any) {
	c.t.Helper()
	content := object(of["content"])
	if len(content) == 0 {
		c.t.Errorf("%s has no content", at)
	}
	for media, m := range content {
		shown, ok := object(m)["example"]
		if !ok {
			c.t.Errorf("%s: %s has no example", at, media)
			continue
		}
		if diff := c.validate("example", object(m)["schema"], shown); diff != "" {
			c.t.Errorf("%s: %s", at, diff)
		}
	}
}

func (c *contract) checkRefusal(at, status string, response map[string]any) {
	c.t.Helper()
	media := object(object(response["content"])[contentTypeProblem])
	shown := object(media["examples"])
	if len(shown) == 0 {
		c.t.Errorf("%s has no example", at)
	}
	for code, e := range shown {
		value := object(c.resolve(object(e))["value"])
		if diff := c.validate("example", media["schema"], value); diff != "" {
			c.t.Errorf("%s: %s: %s", at, code, diff)
		}
		if value["code"] != code || fmt.Sprintf("%s", value["status"]) != status || value["type"] != problemsPath+"#"+code {
			c.t.Errorf("%s: the example of %s is of %v, %v, %v", at, code, value["code"], value["status"], value["type"])
		}
	}
}

// TestTags wants a description of each section, and no section that has no operation.
func TestTags(t *testing.T) {
	t.Parallel()
	document, err := Document(ContractVersion)
	must(t, err)
	var root struct {
		Tags []struct {
			Name        string `json:"name"`
			Description string `json:"description"`
		} `json:"tags"`
		Paths map[string]map[string]struct {
			Tags []string `json:"tags"`
		} `json:"paths"`
	}
	must(t, json.Unmarshal(document, &root))
	var declared, used []string
	for _, tag := range root.Tags {
		declared = append(declared, tag.Name)
		if len(tag.Description) < 20 {
			t.Errorf("tag %s is not described: %q", tag.Name, tag.Description)
		}
	}
	for _, item := range root.Paths {
		for _, op := range item {
			used = append(used, op.Tags...)
		}
	}
	slices.Sort(declared)
	slices.Sort(used)
	if used = slices.Compact(used); !slices.Equal(declared, used) {
		t.Errorf("the tags %q are declared, and %q are used", declared, used)
	}
}

// TestOperations wants the tables of operations and examples to speak of routes alone.
func TestOperations(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var names []string
	for _, r := range e.server.routes() {
		names = append(names, r.name())
	}
	for name := range operations {
		if !slices.Contains(names, name) {
			t.Errorf("operations: there is no %s", name)
		}
	}
	for name := range examples() {
		if !slices.Contains(names, name) {
			t.Errorf("examples: there is no %s", name)
		}
	}
}
