package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// sagaInfo is an operation of several steps as the command line shows it; the names are the server's.
type sagaInfo struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Protocol  string `json:"protocol"`
	Status    string `json:"status"`
	Reason    string `json:"reason"`
	InDoubt   bool   `json:"in_doubt"`
	Cancelled bool   `json:"cancelled"`
	Stuck     bool   `json:"stuck"`
	Attempts  int    `json:"attempts"`
	LastError string `json:"last_error"`
	Steps     []struct {
		Name   string         `json:"name"`
		Status string         `json:"status"`
		Reason string         `json:"reason"`
		Rest   jsontext.Value `json:",unknown"`
	} `json:"steps"`
	Rest jsontext.Value `json:",unknown"`
}

func newSagas() *cobra.Command {
	var t target
	cmd := group(&cobra.Command{
		Use: "sagas", Short: "Look after operations of several steps, such as transfers between ledgers",
		Long: "Look after operations of several steps, such as transfers between ledgers. One that fails to get on ten times in a row\n" +
			"is shown as stuck, and is tried further. Both acts are safe at any time: a retry repeats nothing that was done, and\n" +
			"compensate cancels what is not done and undoes what is. What is decided to commit can't be compensated.",
	})
	f := cmd.PersistentFlags()
	f.StringVar(&t.url, "url", "http://127.0.0.1:8080", "a running server; needs "+keyVariable)
	f.BoolVar(&t.json, "json", false, "print one JSON document")
	cmd.AddCommand(newSagasList(&t), newSagasInDoubt(&t), newSagasAdopt(&t))
	one := func(use, short, method, path string) {
		cmd.AddCommand(&cobra.Command{
			Use: use + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				var body any
				if method == http.MethodPost {
					body = struct{}{}
				}
				answer, err := t.call(cmd.Context(), method, "/v1/sagas/"+url.PathEscape(args[0])+path, body)
				if err != nil {
					return err
				}
				return t.printSagas(cmd, answer, false)
			},
		})
	}
	one("show", "Show one with its steps", http.MethodGet, "")
	one("retry", "Try a pending one at once", http.MethodPost, "/retry")
	one("compensate", "Give a pending one up: cancel what is not done, undo what is", http.MethodPost, "/compensate")
	return cmd
}

func newSagasList(t *target) *cobra.Command {
	var (
		stuck        bool
		name, status string
		limit        int
	)
	cmd := &cobra.Command{
		Use: "list", Short: "List them, oldest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{"limit": {fmt.Sprint(limit)}}
			if stuck {
				q.Set("stuck", "true")
			}
			if name != "" {
				q.Set("name", name)
			}
			if status != "" {
				q.Set("status", status)
			}
			answer, err := t.call(cmd.Context(), http.MethodGet, "/v1/sagas?"+q.Encode(), nil)
			if err != nil {
				return err
			}
			return t.printSagas(cmd, answer, true)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&stuck, "stuck", false, "only those that fail to get on")
	f.StringVar(&name, "name", "", "only those of this definition, such as cross-transfer")
	f.StringVar(&status, "status", "", "only those of this status: pending, completed, failed or compensated")
	f.IntVar(&limit, "limit", 50, "most to list, up to 200")
	return cmd
}

// printSagas prints one saga, or a page of them.
func (t *target) printSagas(cmd *cobra.Command, answer []byte, many bool) error {
	if t.json {
		return printRaw(cmd, answer)
	}
	var page struct {
		Items []sagaInfo `json:"items"`
		Next  *string    `json:"next"`
	}
	if !many {
		page.Items = make([]sagaInfo, 1)
		if err := json.Unmarshal(answer, &page.Items[0]); err != nil {
			return err
		}
	} else if err := json.Unmarshal(answer, &page); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	for i := range page.Items {
		if _, err := io.WriteString(out, page.Items[i].String()); err != nil {
			return err
		}
	}
	if page.Next != nil {
		_, err := fmt.Fprintln(out, "There are more.")
		return err
	}
	return nil
}

// String describes a saga in a few lines.
func (s *sagaInfo) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s (%s)  %s", s.ID, s.Name, s.Protocol, s.Status)
	for _, note := range []struct {
		on   bool
		text string
	}{{s.Reason != "", s.Reason}, {s.Stuck, "stuck"}, {s.InDoubt, "decided to commit"}, {s.Cancelled && s.Status == "pending", "given up"}} {
		if note.on {
			b.WriteString(", " + note.text)
		}
	}
	b.WriteByte('\n')
	for _, step := range s.Steps {
		b.WriteString(strings.TrimRight(fmt.Sprintf("    %-10s %s %s", step.Name, step.Status, step.Reason), " ") + "\n")
	}
	switch {
	case s.LastError == "":
	case s.Attempts == 0:
		fmt.Fprintf(&b, "    last error: %s\n", s.LastError)
	default:
		fmt.Fprintf(&b, "    failed %d times in a row, last: %s\n", s.Attempts, s.LastError)
	}
	return b.String()
}

func newSagasInDoubt(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "in-doubt", Short: "List the prepared transactions of the server's own in every ledger's database", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := t.call(cmd.Context(), http.MethodGet, "/v1/in-doubt", nil)
			if err != nil {
				return err
			}
			if t.json {
				return printRaw(cmd, answer)
			}
			var found struct {
				Items []struct {
					Ledger  string `json:"ledger"`
					GID     string `json:"gid"`
					AgeMS   int64  `json:"age_ms"`
					Verdict string `json:"verdict"`
					Reason  string `json:"reason"`
				} `json:"items"`
				Unreachable []string `json:"unreachable"`
			}
			if err := json.Unmarshal(answer, &found); err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			for _, d := range found.Items {
				if _, err := fmt.Fprintf(out, "%s\n", strings.TrimRight(fmt.Sprintf("%s  %s  %-8s  %-9s  %s", d.GID, d.Ledger, d.Verdict, time.Duration(d.AgeMS)*time.Millisecond, d.Reason), " ")); err != nil {
					return err
				}
			}
			for _, name := range found.Unreachable {
				if _, err := fmt.Fprintf(out, "ledger %s could not be asked\n", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func newSagasAdopt(t *target) *cobra.Command {
	return &cobra.Command{
		Use: "adopt", Short: "Let the server's log, a copy or a restored one, end its prepared transactions from now on", Args: cobra.NoArgs,
		Long: "Let the server's log, which is a copy of another or was restored to an earlier point, end its coordinator's prepared\n" +
			"transactions in all ledgers from now on. Stop the servers of the other log first, for good: it is refused while they are at\n" +
			"work, and they are disowned after it. What this log doesn't know is ended when it is 10 min old, as the other ledgers say.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := t.call(cmd.Context(), http.MethodPost, "/v1/in-doubt/adopt", struct{}{})
			if err != nil {
				return err
			}
			if t.json {
				return printRaw(cmd, answer)
			}
			var done struct {
				Coordinator string   `json:"coordinator"`
				Ledgers     []string `json:"ledgers"`
			}
			if err := json.Unmarshal(answer, &done); err != nil {
				return err
			}
			if len(done.Ledgers) == 0 {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: nothing to adopt, no ledger has disowned this log\n", done.Coordinator)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: adopted in %s\n", done.Coordinator, strings.Join(done.Ledgers, ", "))
			}
			return err
		},
	}
}

// printRaw prints a document of the server's as it came, indented.
func printRaw(cmd *cobra.Command, document []byte) error {
	v := jsontext.Value(document)
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return err
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), v.String())
	return err
}
