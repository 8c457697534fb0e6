package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"fairlead": main}) }

// TestScripts runs testdata/script, which is the manual of the command line. Beside testscript's own commands there are
//
//	status N fairlead ...      runs it, and wants that exit status
//	replace OLD NEW FROM TO    copies a file with one text replaced
//	await FILE                 waits for a server's address file, and sets URL
//	key FILE                   sets FAIRLEAD_KEY to the content of a file
//	log N [AT OLD NEW]         serves a public log, and sets LOG_URL, LOG_KEY and WITNESS
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/script", "")
}

// TestServerScripts runs those that have a server, on a database.
func TestServerScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "testdata/server", pgtest.Server(t).URL())
}

// databases counts those that scripts have to themselves.
var databases atomic.Int64

func createDatabase(ctx context.Context, server, name string) error {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `CREATE DATABASE `+name)
	return errors.Join(err, conn.Close(ctx))
}

func runScripts(t *testing.T, dir, database string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(e *testscript.Env) error {
			e.Values["log"] = new(publicLog)
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("PGOPTIONS", os.Getenv("PGOPTIONS")) // make portable has settings there.
			e.Setenv("FAIRLEAD_DATABASE_URL", database)
			if database != "" {
				absent, err := url.Parse(database)
				if err != nil {
					return err
				}
				absent.Path = "/absent"
				e.Setenv("ABSENT", absent.String())
				for _, name := range []string{"fresh", "other"} {
					made := *absent
					made.Path = fmt.Sprintf("/%s_%d", name, databases.Add(1))
					if err := createDatabase(t.Context(), database, made.Path[1:]); err != nil {
						return err
					}
					e.Setenv(strings.ToUpper(name), made.String())
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"status": func(ts *testscript.TestScript, _ bool, args []string) {
				err := ts.Exec(args[1], args[2:]...)
				status := "0"
				if exit, ok := errors.AsType[*exec.ExitError](err); ok {
					status = string(rune('0' + exit.ExitCode()))
				} else {
					ts.Check(err)
				}
				if status != args[0] {
					ts.Fatalf("exit status %s, want %s", status, args[0])
				}
			},
			"replace": func(ts *testscript.TestScript, _ bool, args []string) {
				text := strings.Replace(ts.ReadFile(args[2]), args[0], args[1], 1)
				ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(text), 0o600))
			},
			"await": func(ts *testscript.TestScript, _ bool, args []string) {
				for deadline := time.Now().Add(testwait.Patience); ; time.Sleep(20 * time.Millisecond) {
					if addr, err := os.ReadFile(ts.MkAbs(args[0])); err == nil {
						ts.Setenv("URL", "http://"+string(bytes.TrimSpace(addr)))
						ts.Setenv("ADDRESS", string(bytes.TrimSpace(addr)))
						return
					}
					if time.Now().After(deadline) {
						ts.Fatalf("no server has written %s", args[0])
					}
				}
			},
			"log": serveLog,
			"key": func(ts *testscript.TestScript, _ bool, args []string) {
				ts.Setenv(keyVariable, strings.TrimSpace(ts.ReadFile(args[0])))
			},
		},
	})
}

// execute runs a command line in this process and returns what it printed.
func execute(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(&out)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}
