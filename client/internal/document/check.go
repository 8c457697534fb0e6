package main

import (
	"bytes"
	"fmt"
	"html"
	"os"
	"regexp"
	"strings"
)

// checkSource is the page for the public, which the server has as HTML, too.
const checkSource = "docs/check-this-draw.md"

const checkHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>%s</title>
<link rel="icon" href="/console/assets/mark.svg" type="image/svg+xml">
<link rel="stylesheet" href="/console/assets/css/base.css">
<link rel="stylesheet" href="/console/assets/css/public.css">
</head>
<body>
<main id="main" class="public prose">
`

var (
	numbered = regexp.MustCompile(`^\d+\. `)
	strong   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	emphasis = regexp.MustCompile(`\*([^*]+)\*`)
	code     = regexp.MustCompile("`([^`]+)`")
)

// checkPage makes HTML of the page: of headings, paragraphs, lists, code, and stressed words, which is all that it has.
func checkPage() ([]byte, error) {
	text, err := os.ReadFile(checkSource)
	if err != nil {
		return nil, err
	}
	blocks := strings.Split(strings.TrimSpace(string(text)), "\n\n")
	var out bytes.Buffer
	fmt.Fprintf(&out, checkHead, html.EscapeString(strings.TrimPrefix(blocks[0], "# ")))
	for _, block := range blocks {
		switch {
		case strings.HasPrefix(block, "# "):
			fmt.Fprintf(&out, "<h1>%s</h1>\n", inline(block[2:]))
		case strings.HasPrefix(block, "## "):
			fmt.Fprintf(&out, "<h2>%s</h2>\n", inline(block[3:]))
		case strings.HasPrefix(block, "```"):
			_, lines, _ := strings.Cut(strings.TrimSuffix(block, "\n```"), "\n")
			fmt.Fprintf(&out, "<pre tabindex=\"0\"><code>%s</code></pre>\n", html.EscapeString(lines))
		case strings.HasPrefix(block, "- "), numbered.MatchString(block):
			list(&out, block)
		default:
			fmt.Fprintf(&out, "<p>%s</p>\n", inline(block))
		}
	}
	out.WriteString("</main>\n</body>\n</html>\n")
	return out.Bytes(), nil
}

// list writes a list, whose items go on in lines that are indented.
func list(out *bytes.Buffer, block string) {
	tag := "ul"
	if numbered.MatchString(block) {
		tag = "ol"
	}
	fmt.Fprintf(out, "<%s>\n", tag)
	var items []string
	for line := range strings.SplitSeq(block, "\n") {
		if begun := strings.TrimPrefix(numbered.ReplaceAllString(line, "- "), "- "); begun != line {
			items = append(items, begun)
		} else {
			items[len(items)-1] += " " + strings.TrimSpace(line)
		}
	}
	for _, item := range items {
		fmt.Fprintf(out, "<li>%s</li>\n", inline(item))
	}
	fmt.Fprintf(out, "</%s>\n", tag)
}

// inline writes what is within a block.
func inline(text string) string {
	text = html.EscapeString(strings.ReplaceAll(text, "\n", " "))
	text = strong.ReplaceAllString(text, "<strong>$1</strong>")
	text = emphasis.ReplaceAllString(text, "<em>$1</em>")
	return code.ReplaceAllString(text, "<code>$1</code>")
}
