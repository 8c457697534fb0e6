package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/operator"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/services/ledger"
)

// diagnosis is what the doctor finds.
type diagnosis struct {
	Healthy    bool                  `json:"healthy"`
	Checked    []string              `json:"checked"` // in order
	Settings   []postgres.Setting    `json:"settings,omitempty"`
	Findings   []postgres.Finding    `json:"findings"`
	Migrations []postgres.Migration  `json:"migrations,omitempty"`
	Schema     *postgres.SchemaRange `json:"schema,omitempty"`
	Server     jsontext.Value        `json:"server,omitempty"`
	Integrity  jsontext.Value        `json:"integrity,omitempty"`
}

func newDoctor() *cobra.Command {
	var (
		t      target
		accept bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a database or a server, and say how to mend what is wrong",
		Long: "Check which promises hold, and say how to mend what is wrong. On a database: the settings that durability rests on,\n" +
			"the schema, operations that don't get on, and the books. On a server (--url): whether it is ready, operations that\n" +
			"don't get on, and the books. Exit status 0: healthy, perhaps with warnings; 1: something is wrong.\n\n" +
			"A failover that loses the last commits, or a backup that is restored, takes back what clients were told. Servers notice\n" +
			"it, and leave two-phase transactions as they are. Run doctor --accept-history on the database when you have looked at\n" +
			"what is missing, and after each restore: two-phase transactions go on, and fencing tokens jump past all that were given.\n" +
			"See docs/operations/restores.md.",
		Example: "  fairlead doctor                                      # the server in this directory\n" +
			"  fairlead doctor --database-url postgres://db.internal/fairlead\n" +
			"  " + keyVariable + "=fl_admin_... fairlead doctor --url https://fairlead.example --json | jq .findings",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if accept {
				return t.acceptHistory(cmd)
			}
			d := diagnosis{Healthy: true, Findings: []postgres.Finding{}}
			examine := t.examineDatabase
			if t.url != "" {
				examine = t.examineServer
			}
			err := examine(cmd, &d)
			if cmd.Context().Err() != nil { // What was found then says nothing of the installation.
				return errors.New("interrupted: not everything was looked at")
			}
			if err != nil {
				return err
			}
			return conclude(cmd, t.json, d, d.Healthy, d.print)
		},
	}
	t.bind(cmd)
	cmd.Flags().BoolVar(&accept, "accept-history", false, "accept that commits are lost, so that two-phase transactions go on (needs the database)")
	return cmd
}

// acceptHistory is the operator's word that what is lost is lost.
func (t *target) acceptHistory(cmd *cobra.Command) error {
	if t.url != "" {
		return errors.New("--accept-history needs the database: --database-url, or --data of a running server")
	}
	url, err := t.databaseAddress()
	if err != nil {
		return err
	}
	db, err := postgres.Open(cmd.Context(), postgres.Options{URL: url, MaxConns: 2})
	if err != nil {
		return err
	}
	defer db.Close()
	floor, err := db.AdvanceTokens(cmd.Context())
	if err != nil {
		return err
	}
	accepted, err := db.AcceptHistory(cmd.Context())
	if err != nil {
		return err
	}
	if accepted == nil {
		accepted = []postgres.Loss{}
	}
	return show(cmd, t.json, map[string]any{"accepted": accepted, "token_floor": floor}, func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "all fencing tokens from now on are greater than %d\n", floor)
		for i := range accepted {
			_, _ = fmt.Fprintf(out, "accepted: %s\n", accepted[i].String())
		}
		if len(accepted) == 0 {
			_, _ = fmt.Fprintln(out, "no server has found that commits are lost")
		}
	})
}

// find adds a finding; a fatal one makes the patient ill.
func (d *diagnosis) find(check string, fatal bool, remedy, format string, args ...any) {
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = say(err)
		}
	}
	d.add(postgres.Finding{Check: check, Fatal: fatal, Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (d *diagnosis) add(f postgres.Finding) {
	d.Findings = append(d.Findings, f)
	d.Healthy = d.Healthy && !f.Fatal
}

// unread is find for what can't be read, and says where that is because another session keeps a table locked: there is another check for who does.
func (d *diagnosis) unread(check string, err error, what string) {
	if locked(err) {
		d.add(postgres.Unread(check, what))
		return
	}
	d.find(check, true, remedyForError(err), what+": %v", err)
}

// locked reports whether the database, or the server, has said that another session keeps a table locked.
func locked(err error) bool { return postgres.Locked(err) || client.CodeOf(err) == "row_locked" }

// look notes what is looked at from here on.
func (d *diagnosis) look(checks ...string) { d.Checked = append(d.Checked, checks...) }

// readyLimit is how soon a server must say whether it is ready. It knows within 2 s.
const readyLimit = 5 * time.Second

func (t *target) examineServer(cmd *cobra.Command, d *diagnosis) error {
	if _, err := t.server(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), readyLimit)
	defer cancel()
	_, ready, err := call[client.Health](ctx, t, http.MethodGet, "/readyz", nil)
	d.look("ready")
	if err != nil {
		d.find("ready", true, "start the server, or mend --url; what the server's log says, and docs/operations/runbook.md, \"When /readyz is 503\"", "%v", err)
		return nil
	}
	d.Server = ready
	t.examineWork(cmd.Context(), d)
	return t.examineBooks(cmd, d)
}

func (t *target) examineDatabase(cmd *cobra.Command, d *diagnosis) error {
	ctx := cmd.Context()
	url, err := t.databaseAddress()
	if err != nil {
		return err
	}
	d.look("database")
	db, err := postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 2, Sessions: fairlead.DefaultOptions().DatabaseSessions()})
	if refused, ok := errors.AsType[*postgres.PoolerError](err); ok {
		d.look("pooler")
		d.find("pooler", true, "give PostgreSQL's own address, or a pooler with pool_mode = session: docs/operations/servers.md", "%v", refused)
		return nil
	}
	if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
		d.find("database", true, remedyForError(why), "%s: %s", plainlyFor(why), oneLine(why.Err))
		return nil
	}
	if err != nil {
		return err
	}
	defer db.Close()
	// The same small write that /readyz makes.
	d.look("commits")
	err = db.Ready(ctx)
	var unconfirmed []postgres.Finding
	if why, ok := errors.AsType[*operator.UnreadyError](err); ok {
		d.find("commits", true, remedyForError(why), "%s: %s", plainlyFor(why), oneLine(why.Err))
		if why.Reason == operator.UnreadyCommit {
			if unconfirmed, err = db.Unconfirmed(ctx); err != nil {
				d.find("replication", true, remedyForError(err), "the standbys can't be read: %v", err)
			}
		}
	}
	// First, since a role that may not read stops the checks after it.
	d.look("privileges")
	privileges, err := db.Privileges(ctx)
	if err != nil {
		d.unread("privileges", err, "what the role may do can't be read")
	}
	for _, f := range privileges {
		d.add(f)
	}
	findings, err := db.Check(ctx)
	if err != nil {
		d.unread("database", err, "its settings can't be read")
		return nil
	}
	blocked, err := db.Blocked(ctx)
	if err != nil {
		d.unread("blocked", err, "the sessions that block others can't be read")
	}
	snapshots, err := db.OldSnapshots(ctx)
	if err != nil {
		d.unread("snapshots", err, "the sessions with old snapshots can't be read")
	}
	d.look(append(postgres.Checks, "blocked", "snapshots")...)
	for _, f := range slices.Concat(findings, unconfirmed, blocked, snapshots) {
		d.add(f)
	}
	if d.Settings, err = db.Settings(ctx); err != nil {
		d.unread("database", err, "its settings can't be read")
		return nil
	}
	if ready, err := d.examineSchema(ctx, db, url); err != nil || !ready {
		return err
	}
	losses, err := db.Losses(ctx)
	if err != nil && !postgres.Locked(err) {
		return err
	}
	d.look("history")
	if err != nil {
		d.unread("history", err, "what servers have found to be lost can't be read")
	}
	for i := range losses {
		d.find("history", true, "see docs/operations/restores.md, and then run fairlead doctor --accept-history", "%s", losses[i].String())
	}
	examineLog(ctx, d, db)
	t.examineWork(ctx, d)
	return t.examineBooks(cmd, d)
}

// examineSchema reports whether the schema has what the checks after it read, as far as it can be told.
func (d *diagnosis) examineSchema(ctx context.Context, db *postgres.DB, url string) (ready bool, err error) {
	d.look("schema")
	if d.Migrations, err = postgres.MigrationStatus(ctx, url); err != nil {
		d.unread("schema", err, "it can't be read")
		return postgres.Locked(err), nil
	}
	for _, m := range d.Migrations {
		if m.AppliedAt == nil {
			d.find("schema", true, "run fairlead migrate up", "migration %d is pending", m.Version)
			return false, nil
		}
	}
	stands, err := db.SchemaRange(ctx)
	switch {
	case postgres.Locked(err):
		d.unread("schema", err, "which versions of fairlead it serves can't be read")
		return true, nil
	case err != nil:
		return false, err
	}
	if d.Schema = &stands; stands.Oldest > stands.Newest {
		d.find("schema", true, "install the newer version of fairlead", "the schema serves versions that know step %d and later, and this one knows steps up to %d",
			stands.Oldest, stands.Newest)
	}
	return true, nil
}

// logCheckFor bounds the comparison of the public log with the tables; fairlead integrity compares all of it.
const logCheckFor = 10 * time.Second

// examineLog compares the public log with the tables, the newest topics first.
func examineLog(ctx context.Context, d *diagnosis, db *postgres.DB) {
	d.look("log")
	c, err := db.CheckLog(ctx, logCheckFor)
	switch {
	case err != nil:
		d.unread("log", err, "the public log can't be compared with the tables")
	case c.Difference != "":
		d.find("log", true, "find out who has changed the database by hand: docs/operations/runbook.md, \"The public log and the tables disagree\"", "%s", c.Difference)
	case c.Refused != "":
		d.find("log", true, "see docs/operations/restores.md, \"The public log\"", "no checkpoint of the public log is signed: %s", c.Refused)
	}
}

// oldClosing and oldRecount are what the doctor warns of, as FairleadBooksLate does with the default periods.
const (
	oldClosing = 15 * time.Minute
	oldRecount = 36 * time.Hour
)

func (t *target) examineBooks(cmd *cobra.Command, d *diagnosis) error {
	r, document, err := t.integrity(cmd, func(ctx context.Context, books *postgres.Ledger) (ledger.Integrity, error) {
		return books.Integrity(ctx)
	})
	d.look("integrity")
	switch {
	case locked(err):
		d.unread("integrity", err, "the books can't be checked")
		return nil
	case err != nil:
		d.find("integrity", true, remedyForError(err), "the books can't be checked: %v", err)
		return nil
	}
	d.Integrity = document
	if !r.Valid {
		d.find("integrity", true, "run fairlead integrity, which names the first bad account; somebody has changed the database by hand", "the balances do not agree with the entries")
	}
	d.examineClosings(r)
	return nil
}

// examineClosings looks how old that is what a check of the books rests on.
func (d *diagnosis) examineClosings(r *client.Integrity) {
	d.look("closings")
	const remedy = `see why the servers don't keep the books: docs/operations/runbook.md, "FairleadBooksLate"`
	if ago := r.CheckedAt.Sub(r.ClosedAt); ago > oldClosing {
		d.find("closings", false, remedy, "the books were last closed %s ago, and each check counts all entries since", ago.Round(time.Second))
	}
	if ago := r.CheckedAt.Sub(r.RecountedAt); ago > oldRecount {
		d.find("closings", false, remedy+"; nothing is wrong if --recount-every is longer", "all entries were last counted %s ago", ago.Round(time.Second))
	}
}

func (d *diagnosis) print(out io.Writer) {
	for _, s := range d.Settings {
		_, _ = fmt.Fprintf(out, "%-30s %s\n", s.Name, s.Value)
	}
	if s := d.Schema; s != nil {
		_, _ = fmt.Fprintf(out, "%-30s step %d, for versions that know step %d or later; this one knows up to %d\n", "schema", s.Schema, s.Oldest, s.Newest)
	}
	for _, name := range d.Checked {
		if !slices.ContainsFunc(d.Findings, func(f postgres.Finding) bool { return f.Check == name }) {
			_, _ = fmt.Fprintf(out, "ok: %s: %s\n", name, healthy(name))
		}
	}
	for _, f := range d.Findings {
		word := "warning"
		if f.Fatal {
			word = "WRONG"
		}
		_, _ = fmt.Fprintf(out, "%s: %s: %s\n", word, f.Check, f.Message)
		if f.Remedy != "" {
			_, _ = fmt.Fprintf(out, "    to mend it: %s\n", f.Remedy)
		}
	}
	verdict := "healthy: all checks passed"
	if !d.Healthy {
		verdict = "NOT HEALTHY"
	}
	_, _ = fmt.Fprintln(out, verdict)
}
