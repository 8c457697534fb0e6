// Package screen prints to a terminal: colours, progress bars and aligned facts where there is one, plain lines elsewhere.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// Screen writes lines for people. On a terminal it has colours, unless NO_COLOR is set, and progress bars;
// elsewhere there are plain lines alone. Failures to write are left to the writer.
type Screen struct {
	Out    io.Writer
	TTY    bool
	Colour bool
}

// New returns a screen on out.
func New(out io.Writer) *Screen {
	f, ok := out.(*os.File)
	tty := ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	return &Screen{Out: out, TTY: tty, Colour: tty && os.Getenv("NO_COLOR") == ""}
}

// The colours, as SGR parameters.
const (
	Bold  = "1"
	Faint = "2"
	Red   = "1;31"
	Green = "32"
)

// Paint gives text a colour.
func (s *Screen) Paint(sgr, text string) string {
	if !s.Colour {
		return text
	}
	return "\x1b[" + sgr + "m" + text + "\x1b[0m"
}

// Note prints a line.
func (s *Screen) Note(format string, args ...any) { _, _ = fmt.Fprintf(s.Out, format+"\n", args...) }

// Heading opens a chapter.
func (s *Screen) Heading(text string) { s.Note("\n%s", s.Paint(Bold, text)) }

// labelWidth is the column where what a step found begins.
const labelWidth = 36

// Begin names a step that takes a moment; End says on the same line what came of it.
func (s *Screen) Begin(label string) { _, _ = fmt.Fprint(s.Out, Pad(label, labelWidth-1)+" ") }

// End finishes the line of [Screen.Begin].
func (s *Screen) End(format string, args ...any) { s.Note(format, args...) }

// Break leaves the line of a step that failed.
func (s *Screen) Break() { s.Note("") }

// Fact is a step that took no time.
func (s *Screen) Fact(label, format string, args ...any) {
	s.Begin(label)
	s.End(format, args...)
}

// Facts prints pairs of name and value, indented.
func (s *Screen) Facts(pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		s.Note("  %s %s", s.Paint(Faint, Pad(pairs[i], 10)), pairs[i+1])
	}
}

// Progress shows how far a step of n parts is; step may be called by many goroutines, done once at the end. Without a
// terminal only the step's name is printed.
func (s *Screen) Progress(label string, n int) (step, done func()) {
	show, done := s.Status(label)
	var mu sync.Mutex
	finished := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		finished++
		show(float64(finished)/float64(n), fmt.Sprintf("%d of %d", finished, n))
	}, done
}

// Frame is the time between two frames of something that moves.
const Frame = 100 * time.Millisecond

// Status shows a step whose length is not known beforehand: show may be called again and again with the part that is
// done, from 0 to 1, and what to say; done leaves the line for what came of it. Without a terminal only the step's name
// is printed.
func (s *Screen) Status(label string) (show func(part float64, text string), done func()) {
	if !s.TTY {
		s.Begin(label)
		return func(float64, string) {}, func() {}
	}
	const width, blank = 16, "\r\x1b[K"
	return func(part float64, text string) {
			full := int(min(max(part, 0), 1) * width)
			_, _ = fmt.Fprint(s.Out, blank+Pad(label, labelWidth-1)+" "+strings.Repeat("█", full)+strings.Repeat("░", width-full)+" "+text)
		}, func() {
			_, _ = fmt.Fprint(s.Out, blank)
			s.Begin(label)
		}
}

// Pad fills text up to a width in characters.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

// Seconds formats a time of seconds.
func Seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// Milliseconds formats a time of milliseconds.
func Milliseconds(ms float64) string { return fmt.Sprintf("%.0f ms", ms) }
