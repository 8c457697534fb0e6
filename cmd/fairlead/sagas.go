package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
)

// sagaPage is a page of operations of several steps.
type sagaPage struct {
	Items []client.Saga `json:"items"`
	Next  string        `json:"next"`
}

func newSagas() *cobra.Command {
	var t target
	cmd := group(&cobra.Command{
		Use: "sagas", Short: "Look after operations of several steps, such as transfers between ledgers",
		Long: "Look after operations of several steps, such as transfers between ledgers. One that fails ten times in a row is shown\n" +
			"as stuck, and the server goes on trying it. retry and compensate are safe at any time: retry repeats nothing that was done,\n" +
			"and compensate cancels what is not done and undoes what is. A saga that is decided to commit can't be compensated.",
		Example: "  fairlead sagas list --stuck\n" +
			"  fairlead sagas show " + exampleID + "\n" +
			"  fairlead sagas retry " + exampleID + " --url https://fairlead.example   # with an admin or service key in " + keyVariable,
	})
	f := cmd.PersistentFlags()
	t.bindServer(f)
	f.BoolVar(&t.json, "json", false, "print one JSON document")
	cmd.AddCommand(newSagasList(&t), newSagasInDoubt(&t), newSagasAdopt(&t))
	act := func(use, short, method, path string) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " ID", Short: short, Example: "  fairlead sagas " + use + " " + exampleID, Args: one("the id of a saga, which fairlead sagas list shows"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return ask(cmd, &t, method, "/v1/sagas/"+url.PathEscape(args[0])+path, describeSaga)
			},
		})
	}
	act("show", "Show a saga with its steps", http.MethodGet, "")
	act("retry", "Try a pending saga at once", http.MethodPost, "/retry")
	act("compensate", "Give a pending saga up: cancel what is not done, undo what is", http.MethodPost, "/compensate")
	return cmd
}

func newSagasList(t *target) *cobra.Command {
	var (
		stuck        bool
		name, status string
		limit        int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List sagas, oldest first", Example: "  fairlead sagas list --stuck\n  fairlead sagas list --status pending --json", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {fmt.Sprint(limit)}}
			if stuck {
				q.Set("stuck", "true")
			}
			for filter, value := range map[string]string{"name": name, "status": status} {
				if value != "" {
					q.Set(filter, value)
				}
			}
			return ask(cmd, t, http.MethodGet, "/v1/sagas?"+q.Encode(), func(out io.Writer, page *sagaPage) {
				for i := range page.Items {
					describeSaga(out, &page.Items[i])
				}
				nothing(cmd, len(page.Items), "there are no such sagas")
				if page.Next != "" {
					_, _ = fmt.Fprintln(out, "There are more.")
				}
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&stuck, "stuck", false, "only stuck ones, which have failed ten times in a row")
	f.StringVar(&name, "name", "", "only those of this definition, such as cross-transfer")
	f.StringVar(&status, "status", "", "only those of this status: pending, completed, failed or compensated")
	f.IntVar(&limit, "limit", 50, "most to list, up to 200")
	return cmd
}

// nothing says on standard error that a list is empty, so that programs read none.
func nothing(cmd *cobra.Command, n int, text string) {
	if n == 0 {
		_, _ = fmt.Fprintln(cmd.ErrOrStderr(), text)
	}
}

// describeSaga says in a few lines what became of a saga.
func describeSaga(out io.Writer, s *client.Saga) {
	_, _ = fmt.Fprintf(out, "%s  %s (%s)  %s", s.ID, s.Name, s.Protocol, s.Status)
	for _, note := range []struct {
		on   bool
		text string
	}{{s.Reason != "", s.Reason}, {s.Stuck, "stuck"}, {s.InDoubt, "decided to commit"}, {s.Cancelled && s.Status == client.SagaStatusPending, "given up"}} {
		if note.on {
			_, _ = fmt.Fprint(out, ", ", note.text)
		}
	}
	_, _ = fmt.Fprintln(out)
	for _, step := range s.Steps {
		_, _ = fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("    %-10s %s %s", step.Name, step.Status, step.Reason), " "))
	}
	switch {
	case s.LastError == "":
	case s.Attempts == 0:
		_, _ = fmt.Fprintf(out, "    last error: %s\n", s.LastError)
	default:
		_, _ = fmt.Fprintf(out, "    failed %d times in a row, last: %s\n", s.Attempts, s.LastError)
	}
}

func newSagasInDoubt(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "in-doubt", Example: "  fairlead sagas in-doubt --json", Short: "List the prepared transactions of the server's own in every ledger's database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, t, http.MethodGet, "/v1/in-doubt", func(out io.Writer, found *client.Doubts) {
				nothing(cmd, len(found.Items), "no prepared transaction waits for its end")
				for _, d := range found.Items {
					age := time.Duration(d.AgeMs) * time.Millisecond
					_, _ = fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("%s  %s  %-8s  %-9s  %s", d.GID, d.Ledger, d.Verdict, age, d.Reason), " "))
				}
				for _, name := range found.Unreachable {
					_, _ = fmt.Fprintf(out, "ledger %s could not be asked\n", name)
				}
			})
		},
	}
}

func newSagasAdopt(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "adopt", Example: "  fairlead sagas adopt --url https://fairlead.example", Short: "Let the server's log, a copy or a restored one, end its prepared transactions from now on", Args: cobra.NoArgs,
		Long: "Let the server's log, which is a copy of another or was restored to an earlier point, end its coordinator's prepared\n" +
			"transactions in all ledgers from now on. Stop the servers of the other log first, for good: it is refused while they are at\n" +
			"work, and they are disowned after it. What this log doesn't know is ended when it is 10 min old, as the other ledgers say.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, t, http.MethodPost, "/v1/in-doubt/adopt", func(out io.Writer, done *client.Adoption) {
				text := "nothing to adopt, no ledger has disowned this log"
				if len(done.Ledgers) > 0 {
					text = "adopted in " + strings.Join(done.Ledgers, ", ")
				}
				_, _ = fmt.Fprintf(out, "%s: %s\n", done.Coordinator, text)
			})
		},
	}
}
