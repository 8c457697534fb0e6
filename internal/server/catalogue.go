package server

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/server/edge"
	"github.com/fairlead-dev/fairlead/internal/server/live"
)

// problemsPath is the page that each problem's type links to. Its anchors are the codes.
const problemsPath = "/docs/problems"

// explained is a code with its kinds, of which most codes have one, and what a client is told about it.
type explained struct {
	Code  string
	Kinds []kind
	Text  string
}

// catalogue lists every code that a problem can have, in order.
//
//nolint:gochecknoglobals // It is made of tables that never change.
var catalogue = sync.OnceValue(func() (all []explained) {
	kinds := slices.Concat([]kind{
		unauthorized, methodNotAllowed, payloadTooLarge, unknownOutcome, internalError, keyReused,
		foreignHost, tooManyConns, headersTooLarge, linkUsed, crossOrigin, notAnAdmin,
		edge.BadRequest, edge.Forbidden, edge.NotFound, edge.RateLimited, edge.Overloaded, edge.ShuttingDown, edge.Unavailable,
	}, live.Problems())
	for _, row := range problems {
		kinds = append(kinds, row.kind)
	}
	for _, k := range kinds {
		i, found := slices.BinarySearchFunc(all, k.Code, func(e explained, code string) int { return cmp.Compare(e.Code, code) })
		if !found {
			all = slices.Insert(all, i, explained{Code: k.Code, Text: explanations[k.Code]})
		}
		if !slices.Contains(all[i].Kinds, k) {
			all[i].Kinds = append(all[i].Kinds, k)
		}
	}
	return all
})

// explain finds a code in the catalogue.
func explain(code string) (explained, bool) {
	all := catalogue()
	i, found := slices.BinarySearchFunc(all, code, func(e explained, code string) int { return cmp.Compare(e.Code, code) })
	if !found {
		return explained{}, false
	}
	return all[i], true
}

// Titles are what may have happened, without repetition.
func (e explained) Titles() string {
	var titles []string
	for _, k := range e.Kinds {
		if !slices.Contains(titles, k.Title) {
			titles = append(titles, k.Title)
		}
	}
	return strings.Join(titles, "; ")
}

// Facts are the members of a problem that are the same for every occurrence of the code.
func (e explained) Facts() string {
	k := e.Kinds[0]
	retry := "not retryable"
	if k.Retryable {
		retry = "retryable"
	}
	return fmt.Sprintf("%d %s, %s", k.Status, http.StatusText(k.Status), retry)
}

// Parts are the text, cut where code begins and ends: every other part is code.
func (e explained) Parts() []string { return strings.Split(e.Text, "`") }

const problemsIntroduction = "Every refusal is an RFC 9457 problem. Programs read its code, which never changes, " +
	"retryable, and outcome, which says what became of the effect. Each problem's type links to its code on this page."

//go:embed docs/problems.html
var problemsTemplate string

// problemsPage makes the catalogue as the server shows it.
func problemsPage() []byte {
	var b bytes.Buffer
	page := template.Must(template.New("problems").Funcs(template.FuncMap{"odd": func(i int) bool { return i%2 == 1 }}).Parse(problemsTemplate))
	if err := page.Execute(&b, map[string]any{"Introduction": problemsIntroduction, "Problems": catalogue()}); err != nil {
		panic("server: the page of problems can't be made: " + err.Error())
	}
	return b.Bytes()
}

// ProblemsDocument is the catalogue in Markdown, for docs/problems.md.
func ProblemsDocument() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Problems\n\n%s\nThe server shows this list at `%s`; it is made from the code.\n", problemsIntroduction, problemsPath)
	b.WriteString("[What a problem says about the outcome](design/outcomes.md) has the rules behind `outcome`.\n")
	for _, e := range catalogue() {
		fmt.Fprintf(&b, "\n## %s\n%s. *%s.*\n\n%s\n", e.Code, e.Titles(), e.Facts(), e.Text)
	}
	return b.Bytes()
}
