package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// diagnosis is what the doctor finds.
type diagnosis struct {
	Healthy    bool                 `json:"healthy"`
	Checked    []string             `json:"checked"` // in order
	Settings   []postgres.Setting   `json:"settings,omitempty"`
	Findings   []postgres.Finding   `json:"findings"`
	Migrations []postgres.Migration `json:"migrations,omitempty"`
	Server     jsontext.Value       `json:"server,omitempty"`
	Integrity  jsontext.Value       `json:"integrity,omitempty"`
}

func newDoctor() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which promises hold on this database or server",
		Long: "Say which promises hold. On a database: the settings that durability rests on, the schema, and the books.\n" +
			"On a server (--url): whether it is ready, and the books. Exit status 1 when something is wrong.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := diagnosis{Healthy: true, Findings: []postgres.Finding{}}
			examine := t.examineDatabase
			if t.url != "" {
				examine = t.examineServer
			}
			if err := examine(cmd, &d); err != nil {
				return err
			}
			return conclude(cmd, t.json, d, d.Healthy, d.print)
		},
	}
	t.bind(cmd)
	return cmd
}

// find adds a finding; a fatal one makes the patient ill.
func (d *diagnosis) find(check string, fatal bool, format string, args ...any) {
	d.Findings = append(d.Findings, postgres.Finding{Check: check, Fatal: fatal, Message: fmt.Sprintf(format, args...)})
	d.Healthy = d.Healthy && !fatal
}

func (t *target) examineServer(cmd *cobra.Command, d *diagnosis) error {
	_, ready, err := call[client.Health](cmd.Context(), t, http.MethodGet, "/readyz", nil)
	d.Checked = append(d.Checked, "ready")
	if err != nil {
		d.find("ready", true, "%v", err)
		return nil
	}
	d.Server = ready
	return t.examineBooks(cmd, d)
}

func (t *target) examineDatabase(cmd *cobra.Command, d *diagnosis) error {
	ctx := cmd.Context()
	url, err := t.databaseAddress()
	if err != nil {
		return err
	}
	db, err := postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 2})
	if err != nil {
		return err
	}
	defer db.Close()
	findings, err := db.Check(ctx)
	if err != nil {
		return err
	}
	d.Checked = append(d.Checked, postgres.Checks...)
	for _, f := range findings {
		d.find(f.Check, f.Fatal, "%s", f.Message)
	}
	if d.Settings, err = db.Settings(ctx); err != nil {
		return err
	}
	if d.Migrations, err = postgres.MigrationStatus(ctx, url); err != nil {
		return err
	}
	d.Checked = append(d.Checked, "schema")
	for _, m := range d.Migrations {
		if m.AppliedAt == nil {
			d.find("schema", true, "migration %d is pending: run fairlead migrate up", m.Version)
			return nil
		}
	}
	return t.examineBooks(cmd, d)
}

func (t *target) examineBooks(cmd *cobra.Command, d *diagnosis) error {
	r, document, err := t.integrity(cmd)
	if err != nil {
		return err
	}
	d.Integrity = document
	d.Checked = append(d.Checked, "integrity")
	if !r.Valid {
		d.find("integrity", true, "the balances do not agree with the entries: run fairlead integrity")
	}
	return nil
}

func (d *diagnosis) print(out io.Writer) {
	for _, s := range d.Settings {
		_, _ = fmt.Fprintf(out, "%-30s %s\n", s.Name, s.Value)
	}
	for _, f := range d.Findings {
		word := "warning"
		if f.Fatal {
			word = "WRONG"
		}
		_, _ = fmt.Fprintf(out, "%s: %s: %s\n", word, f.Check, f.Message)
	}
	_, _ = fmt.Fprintf(out, "checked: %s\n", strings.Join(d.Checked, ", "))
	verdict := "healthy: every promise holds here"
	if !d.Healthy {
		verdict = "NOT HEALTHY"
	}
	_, _ = fmt.Fprintln(out, verdict)
}
