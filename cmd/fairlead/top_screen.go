package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The terminal's control sequences: to show another page than the one with the user's history, without a cursor and without folding
// long lines, and to go back; to draw over what is there.
const (
	topEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	topLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	topHome  = "\x1b[H"
	topLine  = "\x1b[K\r\n" // ends a line and clears what was right of it; the terminal is in raw mode
	topRest  = "\x1b[K\x1b[J"
)

// topShared is how many targets are shown that several servers work on.
const topShared = 3

// topHeaderEvery is after how many lines the names of the columns are repeated where there is no terminal.
const topHeaderEvery = 20

// topDisplay shows frames: drawn over each other on a terminal, as lines elsewhere.
type topDisplay struct {
	s        *screen.Screen
	url      string
	interval time.Duration
	lines    int
	last     *topFrame
	restore  func() // gives the terminal its mode back; nil where it has it
}

func newTopDisplay(out io.Writer, url string, interval time.Duration) *topDisplay {
	return &topDisplay{s: screen.New(out), url: url, interval: interval}
}

// open takes the terminal. quit is called when somebody presses q there, or Ctrl-C, which raises no signal in raw mode.
func (d *topDisplay) open(in io.Reader, quit func()) {
	if !d.s.TTY {
		return
	}
	_, _ = io.WriteString(d.s.Out, topEnter+topHome+"measuring "+d.url+quitHint(d.s)+topRest)
	f, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return // Signals still end it.
	}
	d.restore = func() { _ = term.Restore(int(f.Fd()), before) }
	go awaitQuit(f, quit) // It ends with the process: a read from a terminal can't be cancelled.
}

// awaitQuit reads keys until one of them ends the program.
func awaitQuit(in io.Reader, quit func()) {
	const interrupt = 3 // Ctrl-C
	keys := make([]byte, 16)
	for {
		n, err := in.Read(keys)
		if bytes.ContainsAny(keys[:n], "qQ"+string(rune(interrupt))) {
			quit()
			return
		}
		if err != nil {
			return
		}
	}
}

func (d *topDisplay) close() {
	if d.s.TTY {
		_, _ = io.WriteString(d.s.Out, topLeave)
	}
	if d.restore != nil {
		d.restore()
	}
}

// show shows a frame.
func (d *topDisplay) show(f *topFrame) error {
	d.last = f
	if d.s.TTY {
		width, _ := d.size()
		return d.draw(f.page(d.s, d.url, d.interval, width))
	}
	if d.lines%topHeaderEvery == 0 {
		if _, err := fmt.Fprintln(d.s.Out, topColumns()); err != nil {
			return err
		}
	}
	d.lines++
	_, err := fmt.Fprintln(d.s.Out, f.line())
	return err
}

// lost says why there is no frame.
func (d *topDisplay) lost(cause error) error {
	if !d.s.TTY {
		_, err := fmt.Fprintf(d.s.Out, "# %s %v\n", time.Now().UTC().Format(time.TimeOnly), cause)
		return err
	}
	width, _ := d.size()
	var page strings.Builder
	for _, line := range fold(time.Now().UTC().Format(time.TimeOnly)+"Z "+cause.Error()+quitHint(d.s), width) {
		page.WriteString(d.s.Paint(screen.Red, line) + "\n")
	}
	if d.last != nil {
		page.WriteString("\nwhat was seen last:\n" + d.last.page(d.s, d.url, d.interval, width))
	}
	return d.draw(page.String())
}

// size is that of the terminal, but never narrower than the page needs.
func (d *topDisplay) size() (width, height int) {
	width = defaultTopWidth
	if f, ok := d.s.Out.(*os.File); ok {
		if w, h, err := term.GetSize(int(f.Fd())); err == nil && w > 0 && h > 0 {
			width, height = w, h
		}
	}
	return max(width, minTopWidth), height
}

// draw puts as much of a page on the terminal as fits.
func (d *topDisplay) draw(page string) error {
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	if _, height := d.size(); height > 0 {
		lines = lines[:min(len(lines), height)]
	}
	_, err := io.WriteString(d.s.Out, topHome+strings.Join(lines, topLine)+topRest)
	return err
}

// topColumns names the columns of line.
func topColumns() string {
	return "time         req/s  fail/s   p50_ms   p99_ms  cmds/s  batch  commit_p99_ms  queue  tx/s    locks  waiting  leader    cpu"
}

// line is a frame in one line, with the columns of topColumns.
func (f *topFrame) line() string {
	commands, batches, queue, commit := 0.0, 0.0, 0.0, 0.0
	for _, l := range f.Lanes {
		commands, batches, queue, commit = commands+l.Commands, batches+l.Batches, queue+l.Queue, max(commit, l.Commit.P99)
	}
	mean := 0.0
	if batches > 0 {
		mean = commands / batches
	}
	leader := "no"
	if f.Leading {
		leader = fmt.Sprintf("term=%.0f", f.Term)
	}
	return fmt.Sprintf("%s %9.1f %7.1f %8.2f %8.2f %7.0f %6.1f %14.2f %6.0f %5.0f %8d %8d %7s %6.2f", f.At.Format(time.TimeOnly), f.Requests, f.Failures,
		f.Latency.P50*1000, f.Latency.P99*1000, commands, mean, commit*1000, queue, f.Transactions, f.Held, f.Waiting, leader, f.CPU)
}

// Widths of the page. It needs minTopWidth; names take what a wider terminal leaves them.
const (
	minTopWidth     = 60
	defaultTopWidth = 80 // where there is no terminal
)

// page is a frame as a page of lines. None is longer than width, which is minTopWidth or more.
func (f *topFrame) page(s *screen.Screen, url string, interval time.Duration, width int) string {
	var b strings.Builder
	line := func(label string, parts ...string) {
		b.WriteString(s.Paint(screen.Faint, screen.Pad(label, 13)) + strings.Join(parts, "   ") + "\n")
	}
	head := func(names string) { b.WriteString(s.Paint(screen.Faint, names) + "\n") }
	alarm := func(on bool, format string, args ...any) string {
		text := fmt.Sprintf(format, args...)
		if on {
			return s.Paint(screen.Red, text)
		}
		return text
	}
	state := "up " + span(f.UptimeSeconds)
	if f.Restarted {
		state = s.Paint(screen.Red, "started anew "+span(f.UptimeSeconds)+" ago")
	}
	const title = "fairlead top"
	b.WriteString(s.Paint(screen.Bold, title) + " " + strings.TrimRight(column(url, width-len(title)-1), " ") + "\n")
	fmt.Fprintf(&b, "%s  %s\n", strings.TrimRight(column(f.Version, 24), " "), state)
	fmt.Fprintf(&b, "%s, every %s%s\n\n", f.At.Format("15:04:05Z"), interval, quitHint(s))

	line("requests", s.Paint(screen.Bold, figure(f.Requests))+"/s", alarm(f.Failures > 0, "%s/s failed", figure(f.Failures)))
	line("", "p50 "+brief(f.Latency.P50), "p90 "+brief(f.Latency.P90), "p99 "+brief(f.Latency.P99))
	line("transactions", figure(f.Transactions)+"/s", alarm(f.Failed > 0, "%s/s not committed", figure(f.Failed)))
	line("", "p50 "+brief(f.Transaction.P50), "p99 "+brief(f.Transaction.P99), figure(f.Retries)+"/s retried")
	leader := "another server leads the auctions"
	if f.Leading {
		leader = fmt.Sprintf("this server leads the auctions, term %.0f", f.Term)
	}
	line("leader", leader)
	for i, t := range f.Shared {
		if i == topShared {
			line("", alarm(true, "and %d more", len(f.Shared)-i))
			break
		}
		label := ""
		if i == 0 {
			label = "shared"
		}
		line(label, alarm(true, "%s changed by others %s/s", strings.TrimRight(column(t.Target, len("campaign:")+len(uuid.Nil.String())), " "), figure(t.Changes)))
	}
	line("process", fmt.Sprintf("%.2f cores", f.CPU), fmt.Sprintf("%.0f MB", f.Memory/1e6), fmt.Sprintf("%.0f goroutines", f.Goroutines))
	line("", fmt.Sprintf("%.0f live subscribers", f.Streams), alarm(f.Dropped > 0, "%s/s dropped", figure(f.Dropped)))

	// The mean of commands in a batch, and the 99th percentiles of a commit and of the wait for it.
	b.WriteString("\n")
	head("service    cmds/s  batch commit p99 wait p99 queue refused/s")
	for _, l := range f.Lanes {
		b.WriteString(alarm(l.Refused > 0 || l.Failures > 0, "%s %7s %6s %10s %8s %5.0f %9s\n", column(l.Service, 9), figure(l.Commands), figure(l.BatchMean),
			brief(l.Commit.P99), brief(l.Wait.P99), l.Queue, figure(l.Refused)))
		if l.Failures > 0 {
			line("", alarm(true, "%s/s failed", figure(l.Failures)))
		}
	}

	q := f.Backlog
	b.WriteString("\n")
	line("campaigns", fmt.Sprintf("%d on sale", q.CampaignsActive), fmt.Sprintf("%d drawing", q.CampaignsDrawing), alarm(q.DrawsDelayed > 0, "%d late", q.DrawsDelayed))
	line("auctions", fmt.Sprintf("%d under way", q.AuctionsActive), alarm(q.RoundsOverdue > 0, "%d rounds overdue", q.RoundsOverdue))
	line("transfers", fmt.Sprintf("%d pending", q.TransfersPending))
	line("sagas", fmt.Sprintf("%d pending", q.SagasPending), alarm(q.SagasStuck > 0, "%d stuck", q.SagasStuck))
	line("publications", alarm(q.PublicationsLate > 0, "%d due", q.PublicationsDue), fmt.Sprintf("%d running", q.PublicationsRunning), alarm(q.PublicationsFailed > 0, "%d failed", q.PublicationsFailed))
	line("multi-draws", fmt.Sprintf("%d running", q.MultidrawsRunning), alarm(q.MultidrawsStopped > 0, "%d interrupted", q.MultidrawsStopped))
	line("done here", "bids "+figure(f.Bids)+"/s", "draws "+figure(f.Draws+f.Drawn)+"/s")
	line("", "deliveries "+figure(f.Attempts)+"/s", "sagas ended "+figure(f.Sagas)+"/s")

	b.WriteString("\n")
	line("locks", fmt.Sprintf("%d held", f.Held), alarm(f.Waiting > 0, "%d waiting", f.Waiting), figure(f.Granted)+"/s granted")
	if f.Victims > 0 {
		line("", alarm(true, "%s/s deadlocks broken", figure(f.Victims)))
	}
	const numbers = 27 // the columns behind the names, with their spaces
	key := (width - numbers) * 3 / 5
	owner := width - numbers - key
	if len(f.Locks) > 0 {
		head(screen.Pad("key", key) + screen.Pad(" owner", owner) + "     held  waiters  longest")
	}
	for _, l := range f.Locks {
		wait := "-"
		if l.Waiters > 0 {
			wait = span(l.WaitSeconds)
		}
		fmt.Fprintf(&b, "%s %s %8s %8d %8s\n", column(l.Key, key), column(l.Owner, owner-1), span(l.HeldSeconds), l.Waiters, wait)
	}
	return b.String()
}

// quitHint says which key ends a page that is drawn again and again.
func quitHint(s *screen.Screen) string {
	if !s.TTY {
		return ""
	}
	return "  (q quits)"
}

// fold breaks a text into lines of a width.
func fold(text string, width int) (lines []string) {
	for part := range slices.Chunk([]rune(column(text, utf8.RuneCountInString(text))), width) {
		lines = append(lines, string(part))
	}
	return lines
}

// column fits a text that others have chosen into a width: what does not fit is cut, what a terminal might obey is not shown.
func column(text string, width int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, text)
	if utf8.RuneCountInString(text) > width {
		text = string([]rune(text)[:width-1]) + "…"
	}
	return screen.Pad(text, width)
}

// figure is a number as people read it: with a decimal where it is small, with commas where it is large.
func figure(x float64) string {
	if x < 99.95 {
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(math.Round(x), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// brief is a time of a request or a commit, which was measured in seconds.
func brief(s float64) string {
	switch ms := s * 1000; {
	case s == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", s)
}

// span is a longer time, in whole seconds and no more than two units.
func span(s float64) string {
	d := time.Duration(s) * time.Second
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd %dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
