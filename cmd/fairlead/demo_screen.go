package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// screen is where the demo tells its story. On a terminal it has colours, unless NO_COLOR is set, and progress bars;
// elsewhere there are plain lines alone. Failures to write are left to the writer: a story that nobody can see goes on
// to its exit status.
type screen struct {
	out    io.Writer
	tty    bool
	colour bool
}

func newScreen(out io.Writer) *screen {
	f, ok := out.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &screen{out: out, tty: tty, colour: tty && os.Getenv("NO_COLOR") == ""}
}

// The colours of the story, as SGR parameters.
const (
	bold  = "1"
	faint = "2"
	red   = "1;31"
	green = "32"
)

func (s *screen) paint(sgr, text string) string {
	if !s.colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

func (s *screen) note(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

// heading opens a chapter.
func (s *screen) heading(text string) { s.note("\n%s", s.paint(bold, text)) }

// labelWidth is the column where what a step found begins.
const labelWidth = 36

// begin names a step that takes a moment; end says on the same line what came of it.
func (s *screen) begin(label string) { _, _ = fmt.Fprint(s.out, pad(label, labelWidth)) }

func (s *screen) end(format string, args ...any) { s.note(format, args...) }

// breakLine leaves the line of a step that failed.
func (s *screen) breakLine() { s.note("") }

// fact is a step that took no time.
func (s *screen) fact(label, format string, args ...any) {
	s.begin(label)
	s.end(format, args...)
}

// facts prints pairs of name and value, indented.
func (s *screen) facts(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		s.note("  %s %s", s.paint(faint, pad(pairs[i], 10)), pairs[i+1])
	}
}

// progress shows how far a step of n parts is; step may be called by many goroutines, done once at the end. Without a
// terminal only the step's name is printed.
func (s *screen) progress(label string, n int) (step, done func()) {
	if !s.tty {
		s.begin(label)
		return func() {}, func() {}
	}
	bar := progressbar.NewOptions(n,
		progressbar.OptionSetWriter(s.out), progressbar.OptionSetDescription(pad(label, labelWidth)),
		progressbar.OptionSetWidth(24), progressbar.OptionShowCount(), progressbar.OptionThrottle(40*time.Millisecond),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false),
		progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
	)
	return func() { _ = bar.Add(1) }, func() {
		_ = bar.Finish()
		s.begin(label)
	}
}

// demoFrame is the time between two frames of something that moves.
const demoFrame = 100 * time.Millisecond

// status shows a step whose length is not known beforehand: show may be called again and again with the part that is
// done, from 0 to 1, and what to say; done leaves the line for what came of it. Without a terminal only the step's name
// is printed.
func (s *screen) status(label string) (show func(part float64, text string), done func()) {
	if !s.tty {
		s.begin(label)
		return func(float64, string) {}, func() {}
	}
	const width, blank = 16, "\r\x1b[K"
	return func(part float64, text string) {
			full := int(min(max(part, 0), 1) * width)
			_, _ = fmt.Fprint(s.out, blank+pad(label, labelWidth)+strings.Repeat("█", full)+strings.Repeat("░", width-full)+" "+text)
		}, func() {
			_, _ = fmt.Fprint(s.out, blank)
			s.begin(label)
		}
}

// row prints one guarantee.
func (s *screen) row(g demoGuarantee) {
	mark, finding := s.paint(green, "✓"), g.Finding
	if !g.Held {
		mark, finding = s.paint(red, "✗"), s.paint(red, "BROKEN: "+g.Finding)
	}
	s.note("  %s %s  %s  %s", mark, s.paint(bold, pad(g.ID, 3)), pad(g.Promise, 33), finding)
}

// pad fills text up to a width in characters.
func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func milliseconds(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }
