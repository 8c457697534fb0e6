package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fairlead-dev/fairlead/internal/screen"
)

// The terminal's control sequences: to show another page than the one with the user's history, without a cursor and without folding
// long lines, and to go back; to draw over what is there.
const (
	topEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	topLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	topHome  = "\x1b[H"
	topLine  = "\x1b[K\n" // ends a line and clears what was right of it
	topRest  = "\x1b[K\x1b[J"
)

// topHeaderEvery is after how many lines the names of the columns are repeated where there is no terminal.
const topHeaderEvery = 20

// topDisplay shows frames: drawn over each other on a terminal, as lines elsewhere.
type topDisplay struct {
	s        *screen.Screen
	url      string
	interval time.Duration
	lines    int
	last     *topFrame
}

func newTopDisplay(out io.Writer, url string, interval time.Duration) *topDisplay {
	return &topDisplay{s: screen.New(out), url: url, interval: interval}
}

func (d *topDisplay) open() {
	if d.s.TTY {
		_, _ = io.WriteString(d.s.Out, topEnter+topHome+"measuring "+d.url+topRest)
	}
}

func (d *topDisplay) close() {
	if d.s.TTY {
		_, _ = io.WriteString(d.s.Out, topLeave)
	}
}

// show shows a frame.
func (d *topDisplay) show(f *topFrame) error {
	d.last = f
	if d.s.TTY {
		return d.draw(f.page(d.s, d.url, d.interval))
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
	page := d.s.Paint(screen.Red, time.Now().UTC().Format(time.TimeOnly)+"Z "+cause.Error()) + "\n"
	if d.last != nil {
		page += "\nwhat was seen last:\n" + d.last.page(d.s, d.url, d.interval)
	}
	return d.draw(page)
}

// draw puts as much of a page on the terminal as fits.
func (d *topDisplay) draw(page string) error {
	lines := strings.Split(strings.TrimSuffix(page, "\n"), "\n")
	if f, ok := d.s.Out.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			lines = lines[:min(len(lines), height)]
		}
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

// page is a frame as a page of lines.
func (f *topFrame) page(s *screen.Screen, url string, interval time.Duration) string {
	var b strings.Builder
	label := func(text string) string { return s.Paint(screen.Faint, screen.Pad(text, 13)) }
	alarm := func(on bool, text string) string {
		if on {
			return s.Paint(screen.Red, text)
		}
		return text
	}
	state := "up " + span(f.UptimeSeconds)
	if f.Restarted {
		state = s.Paint(screen.Red, "started anew "+span(f.UptimeSeconds)+" ago")
	}
	fmt.Fprintf(&b, "%s %s  %s  %s  %s, every %s\n\n", s.Paint(screen.Bold, "fairlead top"), url, f.Version, state, f.At.Format("15:04:05Z"), interval)

	fmt.Fprintf(&b, "%s%s/s   %s   p50 %s   p90 %s   p99 %s\n", label("requests"), s.Paint(screen.Bold, figure(f.Requests)),
		alarm(f.Failures > 0, figure(f.Failures)+"/s failed"), brief(f.Latency.P50), brief(f.Latency.P90), brief(f.Latency.P99))
	fmt.Fprintf(&b, "%s%s/s   %s   %s/s run again   p50 %s   p99 %s\n", label("transactions"), figure(f.Transactions),
		alarm(f.Failed > 0, figure(f.Failed)+"/s not committed"), figure(f.Retries), brief(f.Transaction.P50), brief(f.Transaction.P99))
	leader := "another server leads the auctions"
	if f.Leading {
		leader = fmt.Sprintf("this server leads the auctions, term %.0f", f.Term)
	}
	fmt.Fprintf(&b, "%s%s\n", label("leader"), leader)
	fmt.Fprintf(&b, "%s%.2f cores   %.0f MB   %.0f goroutines   %.0f live subscribers   %s\n\n", label("process"), f.CPU, f.Memory/1e6, f.Goroutines, f.Streams,
		alarm(f.Dropped > 0, figure(f.Dropped)+"/s dropped"))

	b.WriteString(s.Paint(screen.Faint, "service        commands/s  batches/s   batch   p99  commit p50       p99  wait p99  queue  refused/s") + "\n")
	for _, l := range f.Lanes {
		row := fmt.Sprintf("%-13s %11s %10s %7s %5.0f %11s %9s %9s %6.0f %10s", l.Service, figure(l.Commands), figure(l.Batches), figure(l.BatchMean), l.Batch.P99,
			brief(l.Commit.P50), brief(l.Commit.P99), brief(l.Wait.P99), l.Queue, figure(l.Refused))
		if l.Failures > 0 {
			row += "  " + figure(l.Failures) + "/s failed"
		}
		b.WriteString(alarm(l.Refused > 0 || l.Failures > 0, row) + "\n")
	}

	q := f.Backlog
	fmt.Fprintf(&b, "\n%scampaigns %d on sale, %d drawing   auctions %d   transfers %d pending   sagas %d pending\n", label("waiting"),
		q.CampaignsActive, q.CampaignsDrawing, q.AuctionsActive, q.TransfersPending, q.SagasPending)
	fmt.Fprintf(&b, "%spublications %d due, %d under way, %s   multi-draws %d running, %d interrupted\n", label(""),
		q.PublicationsDue, q.PublicationsRunning, alarm(q.PublicationsFailed > 0, strconv.Itoa(q.PublicationsFailed)+" failed"), q.MultidrawsRunning, q.MultidrawsStopped)
	fmt.Fprintf(&b, "%sbids %s/s   draws %s/s   deliveries %s/s   sagas ended %s/s\n", label("done here"), figure(f.Bids), figure(f.Draws+f.Drawn), figure(f.Attempts), figure(f.Sagas))
	fmt.Fprintf(&b, "\n%s%d held   %s   %s/s granted   %s\n", label("locks"), f.Held, alarm(f.Waiting > 0, strconv.Itoa(f.Waiting)+" waiting"),
		figure(f.Granted), alarm(f.Victims > 0, figure(f.Victims)+"/s deadlocks broken"))
	if len(f.Locks) > 0 {
		b.WriteString(s.Paint(screen.Faint, "key                              owner                    held for  waiters  longest wait") + "\n")
	}
	for _, l := range f.Locks {
		wait := "-"
		if l.Waiters > 0 {
			wait = span(l.WaitSeconds)
		}
		fmt.Fprintf(&b, "%s %s %8s %8d  %12s\n", column(l.Key, 32), column(l.Owner, 24), span(l.HeldSeconds), l.Waiters, wait)
	}
	return b.String()
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
