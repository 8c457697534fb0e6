package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/client"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/server"
)

// target is what an administrative verb works on: a server, or a database.
type target struct {
	url         string
	takesURL    bool // the verb has the flag --url
	databaseURL string
	data        string
	json        bool
	key         string // kept in data, for when the environment has none
}

const requestTimeout = 2 * time.Minute

// keyVariable holds the key for --url.
const keyVariable = "FAIRLEAD_KEY"

// namesTarget is the annotation of flags of which one names what a verb works on.
const namesTarget = "names a target"

// besideOthers is the annotation's value for flags of which several may be given.
const besideOthers = "beside others"

// bind is for verbs that work on a server or on a database.
func (t *target) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.url, "url", "", "a running server, such as "+defaultURL+"; needs a key in "+keyVariable)
	_ = f.SetAnnotation("url", namesTarget, nil)
	t.takesURL = true
	t.bindDatabase(cmd)
}

// bindDatabase is for verbs that work on a database.
func (t *target) bindDatabase(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.databaseURL, "database-url", "", "the database itself, as postgres://USER:PASSWORD@HOST:5432/DATABASE")
	f.StringVar(&t.data, "data", fairlead.DefaultOptions().Data, "data directory of a running server with a private PostgreSQL")
	f.BoolVar(&t.json, "json", false, "print one JSON document")
	for _, name := range []string{"database-url", "data"} {
		_ = f.SetAnnotation(name, namesTarget, nil)
	}
}

// bindServer is for verbs that need a server.
func (t *target) bindServer(f *pflag.FlagSet) {
	f.StringVar(&t.url, "url", "", "a running server; needs a key in "+keyVariable+" (default the server of --data, or "+defaultURL+")")
	f.StringVar(&t.data, "data", fairlead.DefaultOptions().Data, "data directory of a server on this machine, which has its URL, and its first admin key")
	for _, name := range []string{"url", "data"} {
		_ = f.SetAnnotation(name, namesTarget, nil)
	}
}

// defaultURL is where a server listens unless told otherwise.
const defaultURL = "http://127.0.0.1:8080"

// addressFile names the file in a data directory that has the URL of the server that runs on it.
func addressFile(data string) string { return filepath.Join(data, "address") }

// kept returns the content of a small file in the data directory, empty where there is none.
func kept(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}

// findServer finds the server of the data directory, and its key, unless --url names one. An admin key that was kept is sent
// nowhere but to the address that was kept beside it.
func (t *target) findServer(cmd *cobra.Command) error {
	if t.url != "" {
		return nil
	}
	t.url = kept(addressFile(t.data))
	switch {
	case t.url != "":
		t.key = kept(fairlead.AdminKeyFile(t.data))
	case cmd.Flags().Changed("data"):
		return fmt.Errorf("no server runs on %s: start one with fairlead serve --data %[1]s, or give --url", t.data)
	default:
		t.url = defaultURL
	}
	return nil
}

// database opens the database that the flags name. Its schema must not be too new; one that can't be read is what its next reader tells.
func (t *target) database(ctx context.Context) (*postgres.DB, error) {
	url, err := t.databaseAddress() //nolint:contextcheck // It reads one small file.
	if err != nil {
		return nil, err
	}
	db, err := postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 2, ReadConns: 2})
	if err != nil {
		return nil, err
	}
	if stands, err := db.SchemaRange(ctx); err == nil {
		if err := stands.Supported(); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

func (t *target) databaseAddress() (string, error) {
	if t.databaseURL != "" {
		return t.databaseURL, nil
	}
	url, err := localpg.URLOf(t.data)
	if err != nil {
		if t.takesURL {
			return "", fmt.Errorf("%w; or give --database-url, or --url", err)
		}
		return "", fmt.Errorf("%w; or give --database-url", err)
	}
	return url, nil
}

// credential is the key for the server.
func (t *target) credential() string {
	return cmp.Or(os.Getenv(keyVariable), os.Getenv(adminKeyVariable), t.key)
}

// whichKey ends the error of a key that is missing. A server that was given its first key keeps no file of it.
func (t *target) whichKey() string {
	file := fairlead.AdminKeyFile(cmp.Or(t.data, fairlead.DefaultOptions().Data))
	if kept(file) != "" {
		return fmt.Sprintf(", such as %s=$(cat %s)", keyVariable, file)
	}
	return fmt.Sprintf(": the one that the server was given in %s, or one that fairlead keys create makes", adminKeyVariable)
}

// server makes the Go client of the server that --url names. Without other options it tries once: a person can try again.
func (t *target) server(opts ...client.Option) (*client.Client, error) {
	key := t.credential()
	if key == "" {
		return nil, fmt.Errorf("the server at %s needs an API key in %s%s", t.url, keyVariable, t.whichKey())
	}
	opts = append([]client.Option{client.WithRetry(client.Retry{Attempts: 1}), client.WithHTTPClient(&http.Client{Timeout: requestTimeout})}, opts...)
	c, err := client.New(t.url, key, opts...)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	return c, nil
}

// call sends a request to the server. It returns the answer, and the document that it was read from.
func call[Out any](ctx context.Context, t *target, method, path string, in any) (*Out, jsontext.Value, error) {
	c, err := t.server()
	if err != nil {
		return nil, nil, err
	}
	var answer client.Answer
	out, err := client.Call[Out](ctx, c, method, path, in, client.Into(&answer))
	if err != nil {
		return nil, nil, t.failed(method, path, err)
	}
	return out, answer.Body, nil
}

// failed says of a request to the server that it has failed.
func (t *target) failed(method, path string, err error) error {
	if dial, ok := errors.AsType[*net.OpError](err); ok && dial.Op == "dial" {
		return fmt.Errorf("no server answers at %s: %w", t.url, dial)
	}
	return fmt.Errorf("%s %s: %w", method, path, err)
}

// ask sends a request to the server and prints the answer, which people see as text.
func ask[Out any](cmd *cobra.Command, t *target, method, path string, people func(io.Writer, *Out)) error {
	if err := t.findServer(cmd); err != nil {
		return err
	}
	out, document, err := call[Out](cmd.Context(), t, method, path, nil)
	if err != nil {
		return err
	}
	return show(cmd, t.json, document, func(w io.Writer) { people(w, out) })
}

// show prints a result: as one document, or as people read it.
func show(cmd *cobra.Command, asJSON bool, result any, people func(out io.Writer)) error {
	if asJSON {
		return printJSON(cmd, result)
	}
	var text bytes.Buffer
	people(&text)
	_, err := text.WriteTo(cmd.OutOrStdout())
	return err
}

// conclude shows a verdict, which is also the exit status.
func conclude(cmd *cobra.Command, asJSON bool, verdict any, good bool, people func(out io.Writer)) error {
	err := show(cmd, asJSON, verdict, people)
	if err == nil && !good {
		err = exitCode(1)
	}
	return err
}

// spelled is how documents are spelled: times as the server's routes spell them, in UTC with microseconds.
var spelled = json.JoinOptions(json.Deterministic(true), json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error { //nolint:gochecknoglobals // A constant, but for the type.
	return e.WriteToken(jsontext.String(server.Timestamp(t)))
})))

// printJSON prints one document. A duration is a number of nanoseconds, and its name ends in _ns.
func printJSON(cmd *cobra.Command, v any) error {
	b, err := json.Marshal(v, spelled, jsonv1.FormatDurationAsNano(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(b))
	return err
}
