package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead-dev/fairlead/fairdraw"
)

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

// proofFile writes a true proof of a small draw and returns its name and commitment.
func proofFile(t *testing.T) (name, commitment string) {
	t.Helper()
	in := fairdraw.Input{
		Campaign: "c", Seed: fairdraw.Seed{1}, Prizes: []fairdraw.Prize{{Name: "p", Quantity: 1}},
		Positions: []fairdraw.Position{{ID: "a", Layer: 1, Number: 1, Account: "ann"}, {ID: "b", Layer: 1, Number: 2, Account: "ben"}},
	}
	drawn, err := fairdraw.Draw(in)
	if err != nil {
		t.Fatal(err)
	}
	document, err := json.Marshal(fairdraw.NewProof(in, drawn))
	if err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "proof.json")
	if err := os.WriteFile(name, document, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, in.Seed.Commitment()
}

func TestVerify(t *testing.T) {
	proof, commitment := proofFile(t)
	altered := filepath.Join(t.TempDir(), "altered.json")
	document, err := os.ReadFile(proof)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(altered, bytes.Replace(document, []byte(`"ann"`), []byte(`"eve"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		code int // 0 valid, 1 not valid, 2 could not be checked
		says string
	}{
		{"true", []string{"verify", proof}, 0, "valid"},
		{"true, with its commitment", []string{"verify", proof, "--commitment", commitment}, 0, commitment},
		{"another commitment", []string{"verify", proof, "--commitment", strings.Repeat("0", 64)}, 1, "NOT VALID"},
		{"an empty commitment is no absent one", []string{"verify", proof, "--commitment", ""}, 2, "--commitment is empty"},
		{"altered", []string{"verify", altered}, 1, "NOT VALID"},
		{"as JSON", []string{"verify", altered, "--json"}, 1, `"valid": false`},
		{"absent", []string{"verify", filepath.Join(t.TempDir(), "none")}, 2, "no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := execute(t, c.args...)
			code := 0
			if err != nil {
				code = 2
				if exit, ok := errors.AsType[exitCode](err); ok {
					code = int(exit)
				} else {
					out += err.Error()
				}
			}
			if code != c.code || !strings.Contains(out, c.says) {
				t.Errorf("exit %d, want %d; printed %q, want %q in it", code, c.code, out, c.says)
			}
		})
	}
}

func TestFlagsAreCheckedFirst(t *testing.T) {
	for _, c := range []struct{ says, args string }{
		{"--drain-timeout", "serve --drain-timeout -5s"},
		{"--database-connections", "serve --database-connections 0"},
		{"--unavailable-after", "serve --unavailable-after 0s"},
		{"--user-rate", "serve --user-rate -1"},
		{"--idempotency-retention", "serve --idempotency-retention 1ms"},
		{"--saga-retention", "serve --saga-retention 1h"},
		{"--saga-retention", "serve --saga-retention 48h --idempotency-retention 72h"},
		{"--draw-stuck-after", "serve --draw-stuck-after -1s"},
		{"--pprof-addr", "serve --pprof-addr 0.0.0.0:6060"},
		{"--otlp-endpoint", "serve --otlp-endpoint collector:4318"},
		{"--listen", "serve --listen nonsense"},
		{"--jwt-public-key", "serve --listen 127.0.0.1:0 --jwt-public-key /nonexistent"},
		{"--log-format", "serve --log-format xml"},
		{"--name", "keys create --role service --name a\nb"},
		{"--role", "keys create --role king --name a"},
		{"unknown command", "keys nope"},
		{"is not the id of a key", "keys revoke nope"},
		{"no private PostgreSQL", "integrity"},
		{"needs an API key", "integrity --url http://127.0.0.1:1"},
	} {
		t.Run(c.args, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			t.Setenv("FAIRLEAD_DATA", data)
			t.Setenv(keyVariable, "")
			t.Setenv(adminKeyVariable, "")
			_, err := execute(t, strings.Split(c.args, " ")...)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %q in it", err, c.says)
			}
			if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something was written to the data directory: %v", err)
			}
		})
	}
}

func TestEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fairlead.env")
	if err := os.WriteFile(file, []byte("FAIRLEAD_LISTEN=from-file\nFAIRLEAD_LOG_FORMAT=json\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAIRLEAD_CONFIG", file)
	t.Setenv("FAIRLEAD_LISTEN", "from-environment")
	t.Setenv("FAIRLEAD_USER_RATE", "7")
	cmd := newServe()
	cmd.Flags().String("config", "", "")
	if err := cmd.Flags().Parse([]string{"--user-rate", "9"}); err != nil {
		t.Fatal(err)
	}
	if err := bindEnvironment(cmd.Flags()); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"listen": "from-environment", "log-format": "json", "user-rate": "9", "log-level": "info"} {
		if got := cmd.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	t.Setenv("FAIRLEAD_USER_RATE", "many")
	fresh := newServe()
	if err := bindEnvironment(fresh.Flags()); err == nil || !strings.Contains(err.Error(), "FAIRLEAD_USER_RATE") {
		t.Errorf("a bad number in the environment: %v", err)
	}
}
