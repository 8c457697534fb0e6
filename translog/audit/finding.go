package audit

import (
	"fmt"
	"strings"
)

// Finding is the first thing in a log that does not follow from the rest. It is proof against the log's operator, because the log
// has signed it: keep the checkpoint that is in the report.
type Finding struct {
	// Index is that of the leaf in the log, or the first of its parts; -1 where no single leaf is at fault.
	Index int64 `json:"index"`
	// Topic, Type and Seq are the leaf's, as far as they can be read; Seq is -1 where it can't be.
	Topic string `json:"topic,omitempty"`
	Type  string `json:"type,omitempty"`
	Seq   int64  `json:"seq"`
	// What names the field or the rule, Said is what the log says, and Expected what it should say.
	What     string `json:"what"`
	Said     string `json:"said"`
	Expected string `json:"expected"`

	passing bool // A later checkpoint may be without it.
}

// Error tells the finding in one line.
func (f *Finding) Error() string {
	var b strings.Builder
	if f.Index >= 0 {
		fmt.Fprintf(&b, "leaf %d", f.Index)
		if f.Topic != "" {
			fmt.Fprintf(&b, " (%s, seq %d, %s)", f.Topic, f.Seq, f.Type)
		}
		b.WriteString(": ")
	}
	fmt.Fprintf(&b, "%s: the log says %s, expected %s", f.What, f.Said, f.Expected)
	return b.String()
}

// checkpointFinding is a finding about the tree, and not about one leaf.
func checkpointFinding(what, said, expected string) *Finding {
	return &Finding{Index: -1, Seq: -1, What: what, Said: said, Expected: expected}
}

// problem is what is wrong with one leaf; a nil one is none.
type problem struct{ what, said, expected string }

func differs[T comparable](what string, said, expected T) *problem {
	if said == expected {
		return nil
	}
	return &problem{what, fmt.Sprint(said), fmt.Sprint(expected)}
}

// first is the first of the problems that is one.
func first(problems ...*problem) *problem {
	for _, p := range problems {
		if p != nil {
			return p
		}
	}
	return nil
}

// maxQuoted is how much of a text a finding repeats.
const maxQuoted = 120

// quote makes any text fit for a line of a report.
func quote[T string | []byte](text T) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q…", string(text[:maxQuoted]))
	}
	return fmt.Sprintf("%q", string(text))
}
