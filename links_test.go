package fairlead

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

var (
	// linked are the pages whose links are looked at: Markdown, the documentation that a server shows, and the console with its scripts.
	linked = regexp.MustCompile(`\.md$|^internal/(server/docs|console/static)/.*\.(html|js)$`)

	mdLink     = regexp.MustCompile(`\]\(<?([^)\s>]*)>?(?: "[^"]*")?\)`)
	mdFence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	mdSpan     = regexp.MustCompile("`[^`\n]*`")
	mdHeading  = regexp.MustCompile(`(?m)^#{1,6} +(.*?) *#*$`)
	htmlLink   = regexp.MustCompile(`(?:href|src)="([^"]+)"`)
	htmlID     = regexp.MustCompile(`\bid="([^"]+)"`)
	jsPath     = regexp.MustCompile("[\"`](/(?:console|docs|p|openapi\\.json)(?:/[^\"`?#]*)?)[\"`?#]")
	jsImport   = regexp.MustCompile(`(?:from |import\()["` + "`" + `](\.[^"` + "`" + `]+)["` + "`" + `]`)
	jsQuery    = regexp.MustCompile(`\$\{query\(.*$`)
	jsValue    = regexp.MustCompile(`\$\{[^}]*\}`)
	unslug     = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
	mdFollowed = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// deadLinks says which links of a page lead nowhere: to a file that isn't there, or to a heading that its page hasn't.
func (f tree) deadLinks(page string) (dead []string) {
	switch path.Ext(page) {
	case ".md":
		text := mdSpan.ReplaceAllStringFunc(mdFence.ReplaceAllString(f[page], ""), func(code string) string {
			return strings.NewReplacer("(", "", ")", "").Replace(code)
		})
		for _, m := range mdLink.FindAllStringSubmatch(text, -1) {
			target, anchor, anchored := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := page
			if target != "" {
				file = path.Join(path.Dir(page), target)
			}
			_, known := f[file]
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil && !known {
				dead = append(dead, "there is no "+m[1])
			} else if anchored && path.Ext(file) == ".md" && !anchors(f[file])[anchor] {
				dead = append(dead, fmt.Sprintf("%s has no #%s", file, anchor))
			}
		}
	case ".html":
		ids := map[string]bool{}
		for _, m := range htmlID.FindAllStringSubmatch(f[page], -1) {
			ids[m[1]] = true
		}
		for _, m := range htmlLink.FindAllStringSubmatch(f[page], -1) {
			switch {
			case strings.Contains(m[1], "{{"): // A template's; TestCatalogue looks at what comes of it.
			case strings.HasPrefix(m[1], "#"):
				if !ids[m[1][1:]] {
					dead = append(dead, "nothing has the id "+m[1])
				}
			case !f.served(m[1]):
				dead = append(dead, "the server has no "+m[1])
			}
		}
	case ".js":
		for _, m := range jsPath.FindAllStringSubmatch(f[page], -1) {
			if !f.served(jsValue.ReplaceAllString(jsQuery.ReplaceAllString(m[1], ""), "x")) {
				dead = append(dead, "the server has no "+m[1])
			}
		}
		for _, m := range jsImport.FindAllStringSubmatch(f[page], -1) {
			if _, found := f[path.Join(path.Dir(page), m[1])]; !found && !strings.Contains(m[1], "${") {
				dead = append(dead, "there is no "+m[1])
			}
		}
	}
	return dead
}

// brokenTables are the lines in which the rule under a table's head is among other text, so that no table is shown.
func brokenTables(markdown string) (lines []string) {
	for line := range strings.Lines(mdFence.ReplaceAllString(markdown, "")) {
		line = strings.TrimSpace(mdSpan.ReplaceAllString(line, ""))
		if strings.Contains(line, "|---|") && strings.Trim(line, "|-: ") != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestBrokenTables shows that a table whose lines were joined is found.
func TestBrokenTables(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"| a | b |\n|---|---|\n| 1 | 2 |\n": 0,
		"  | a |\n  |---|--:|\n":            0,
		"| a | b | |---|---| | 1\n| 2 |\n":  1,
		"A rule is `|---|`.\n":              0,
	} {
		if broken := brokenTables(text); len(broken) != want {
			t.Errorf("%q: %q, want %d", text, broken, want)
		}
	}
}

// anchors are the ids that GitHub and the site give the headings of a page.
func anchors(markdown string) map[string]bool {
	all := map[string]bool{}
	for _, m := range mdHeading.FindAllStringSubmatch(mdFence.ReplaceAllString(markdown, ""), -1) {
		words := mdFollowed.ReplaceAllString(strings.ReplaceAll(m[1], "`", ""), "$1")
		slug := strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(words), ""), " ", "-")
		once := slug
		for n := 1; all[slug]; n++ {
			slug = fmt.Sprintf("%s-%d", once, n)
		}
		all[slug] = true
	}
	return all
}

// served reports whether a server has something at a path: a file of the console or of the documentation, a page of the console, or a
// route of the contract.
func (f tree) served(at string) bool {
	if file, ok := strings.CutPrefix(at, "/console/assets/"); ok {
		_, err := os.Stat("internal/console/static/" + file)
		return err == nil || file == ""
	}
	if page, ok := strings.CutPrefix(at, "/console"); ok {
		page, _, _ = strings.Cut(strings.TrimPrefix(page, "/"), "/")
		own := page == "" || page == "session" || page == "assets" || page == "x" // x stands for a value of the script's.
		return own || regexp.MustCompile(`path: "`+regexp.QuoteMeta(page)+`["/]`).MatchString(f["internal/console/static/js/app.js"])
	}
	if file, ok := strings.CutPrefix(at, "/docs/"); ok {
		own := map[string]string{"problems": "problems.html", "docs.css": "docs.css", "docs.js": "docs.js"}[file]
		if own != "" {
			_, err := os.Stat("internal/server/docs/" + own)
			return err == nil
		}
		return strings.HasPrefix(file, "swagger-ui") || strings.HasPrefix(file, "favicon") // TestDocs fetches these.
	}
	if strings.TrimSuffix(at, "/") == "/p" { // Where public pages begin.
		return true
	}
	parameter := regexp.MustCompile(`\\\{[^}]*\\\}`)
	for _, m := range regexp.MustCompile(`(?m)^    "(/[^"]*)": \{`).FindAllStringSubmatch(f["docs/openapi.json"], -1) {
		pattern := parameter.ReplaceAllString(regexp.QuoteMeta(m[1]), `[^/]+`)
		if matched, _ := regexp.MatchString("^"+strings.ReplaceAll(pattern, "campaigns", "(campaigns|x)")+"$", at); matched {
			return true
		}
	}
	return false
}

// TestDeadLinks shows that dead links of each kind are found.
func TestDeadLinks(t *testing.T) {
	t.Parallel()
	app, err := os.ReadFile("internal/console/static/js/app.js")
	testwait.Must(t, err)
	contract, err := os.ReadFile("docs/openapi.json")
	testwait.Must(t, err)
	f := tree{
		"internal/console/static/js/app.js": string(app), "docs/openapi.json": string(contract),
		"docs/a.md":      "# One `two`, [three](b.md)\n[x](#one-two-three) [x](README.md) [x](#four) [x](none.md) [x](https://example.com/none)\n```\n[x](none.md)\n```\n",
		"docs/README.md": "# Here\n",
		"docs/b.md":      "[x](README.md#here) [x](README.md#gone)\n",
		"internal/console/static/a.html": `<a href="#main"></a><p id="main"></p><a href="#none"></a>` +
			`<link href="/console/assets/mark.svg"><link href="/console/assets/none.svg"><a href="/docs"></a>`,
		"internal/console/static/js/a.js": "a(\"/console/auctions\"); b(`/console/lamps/${id}`); c(`/p/auctions/${id}`); d(\"/p/none\"); import x from \"./app.js\"; import y from \"./none.js\";",
	}
	for page, want := range map[string]int{
		"docs/a.md": 2, "docs/README.md": 0, "docs/b.md": 1, "internal/console/static/a.html": 2, "internal/console/static/js/a.js": 3,
	} {
		if dead := f.deadLinks(page); len(dead) != want {
			t.Errorf("%s: %q, want %d", page, dead, want)
		}
	}
}

var (
	sidebarSection = regexp.MustCompile(`(?s)section\('[^']*', '([^']*)', \[(.*?)\]\)`)
	sidebarItem    = regexp.MustCompile(`\['[^']*', '([^']*)'\]`)
	sidebarLink    = regexp.MustCompile(`link: '(/[^']*)'`)
	goPage         = regexp.MustCompile(`\bdocs/[a-z][\w/-]*\.md\b`)
)

// sidebarLinks are the links of the site's navigation, as files of the repository.
func sidebarLinks(config string) (files []string) {
	add := func(link string) {
		link = strings.TrimPrefix(link, "/")
		if link == "" || strings.HasSuffix(link, "/") {
			link += "README"
		}
		files = append(files, link+".md")
	}
	for _, m := range sidebarLink.FindAllStringSubmatch(config, -1) {
		add(m[1])
	}
	for _, section := range sidebarSection.FindAllStringSubmatch(config, -1) {
		for _, item := range sidebarItem.FindAllStringSubmatch(section[2], -1) {
			add(section[1] + item[1])
		}
	}
	return files
}

// TestSidebarLinks follows the site's navigation, and the pages that Go code names in messages and comments.
func TestSidebarLinks(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("site/.vitepress/config.mjs")
	testwait.Must(t, err)
	linksTo := map[string][]string{"site/.vitepress/config.mjs": sidebarLinks(string(config))}
	if n := len(linksTo["site/.vitepress/config.mjs"]); n < 40 {
		t.Errorf("the sidebar's pattern finds %d links", n)
	}
	for file, text := range readTree(t) {
		if path.Ext(file) == ".go" && file != "links_test.go" {
			linksTo[file] = goPage.FindAllString(text, -1)
		}
	}
	for from, pages := range linksTo {
		for _, page := range pages {
			if _, err := os.Stat(filepath.FromSlash(page)); err != nil {
				t.Errorf("%s: there is no %s", from, page)
			}
		}
	}
}
