package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/fairlead-dev/fairlead"
	"github.com/fairlead-dev/fairlead/internal/localpg"
	"github.com/fairlead-dev/fairlead/internal/postgres"
)

// target is what an administrative verb works on: a server, or a database.
type target struct {
	url         string
	databaseURL string
	data        string
	json        bool
}

const requestTimeout = 2 * time.Minute

// keyVariable holds the key for --url.
const keyVariable = "FAIRLEAD_KEY"

func (t *target) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.url, "url", "", "a running server, for example http://127.0.0.1:8080; needs "+keyVariable)
	t.bindDatabase(cmd)
}

func (t *target) bindDatabase(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.databaseURL, "database-url", "", "the database itself")
	f.StringVar(&t.data, "data", fairlead.DefaultOptions().Data, "data directory of a running server with a private PostgreSQL")
	f.BoolVar(&t.json, "json", false, "print one JSON document")
}

// database opens the database that the flags name.
func (t *target) database(ctx context.Context) (*postgres.DB, error) {
	url, err := t.databaseAddress() //nolint:contextcheck // It reads one small file.
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{URL: url, MaxConns: 2})
}

func (t *target) databaseAddress() (string, error) {
	if t.databaseURL != "" {
		return t.databaseURL, nil
	}
	url, err := localpg.URLOf(t.data)
	if err != nil {
		return "", fmt.Errorf("%w; or give --database-url, or --url", err)
	}
	return url, nil
}

// call sends a request to the server and returns the answer's body. A problem becomes an error with its detail.
func (t *target) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	key := os.Getenv(keyVariable)
	if key == "" {
		key = os.Getenv(adminKeyVariable)
	}
	if key == "" {
		return nil, errors.New("--url needs an API key in " + keyVariable)
	}
	var reader io.Reader = http.NoBody
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		reader = strings.NewReader(string(b))
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(t.url, "/")+path, reader)
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	if method != http.MethodGet {
		req.Header.Set("Idempotency-Key", uuid.NewString())
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var problem struct {
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}
		if json.Unmarshal(answer, &problem) != nil || problem.Code == "" {
			return nil, fmt.Errorf("%s %s: %s", method, path, resp.Status)
		}
		return nil, fmt.Errorf("%s %s: %s (%s)", method, path, problem.Detail, problem.Code)
	}
	return answer, nil
}

// printJSON prints one document.
func printJSON(cmd *cobra.Command, v any) error {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), string(b))
	return err
}
