//go:build unix

package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/pgtest"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// faster is by how much the rules' time is shortened.
const faster = 60

// The files under test.
const (
	rulesFile   = "../../../docs/operations/alerts.yaml"
	runbookFile = "../../../docs/operations/runbook.md"
)

var (
	alertName  = regexp.MustCompile(`(?m)^\s*- alert: (\w+)$`)
	forPattern = regexp.MustCompile(`(?m)^(\s*for: )(\d+)([smh])$`)
	window     = regexp.MustCompile(`(\[|offset )(\d+)([smh])\b`)
	holding    = regexp.MustCompile(`(fairlead_lock_hold_seconds_bucket\[\w+\]\)\)\) > )30\b`)
	lasting    = regexp.MustCompile(`(fairlead_\w+_seconds(?:\{[^}]*\})?\) > )(\d+)`)
)

// rules returns the rules as they are written.
func rules(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(rulesFile)
	testwait.Must(t, err)
	return string(raw)
}

// alerts are the names of all alerts.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range alertName.FindAllStringSubmatch(rules(t), -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatal("no alerts")
	}
	return names
}

// shorten makes a second of every minute.
func shorten(text string) string {
	duration := func(number, unit string) string {
		d, err := time.ParseDuration(number + unit)
		if err != nil {
			panic(err) // The patterns allow nothing else.
		}
		return fmt.Sprintf("%dms", (d / faster).Milliseconds())
	}
	text = forPattern.ReplaceAllStringFunc(text, func(s string) string {
		m := forPattern.FindStringSubmatch(s)
		return m[1] + duration(m[2], m[3])
	})
	text = window.ReplaceAllStringFunc(text, func(s string) string {
		m := window.FindStringSubmatch(s)
		return m[1] + duration(m[2], m[3])
	})
	text = holding.ReplaceAllString(text, "${1}0.5")
	return lasting.ReplaceAllStringFunc(text, func(s string) string {
		m := lasting.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[2])
		if err != nil {
			panic(err)
		}
		return m[1] + strconv.Itoa(n/faster)
	})
}

// prometheus is a process that scrapes servers each second.
type prometheus struct {
	url string
	log string
}

// startPrometheus starts one with the shortened rules, and ends it with the test.
func startPrometheus(t *testing.T, targets ...string) *prometheus {
	t.Helper()
	binary, err := exec.LookPath("prometheus")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		fmt.Fprintf(os.Stderr, "\n*** NOT TESTED: %s needs prometheus on the path\n\n", t.Name())
		t.Skip(err)
	}
	dir := t.TempDir()
	address := fmt.Sprintf("127.0.0.1:%d", pgtest.Port(t))
	for name, content := range map[string]string{
		"alerts.yaml": shorten(rules(t)),
		"prometheus.yaml": fmt.Sprintf("global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 500ms}\n"+
			"rule_files: [alerts.yaml]\nscrape_configs:\n  - job_name: fairlead\n    static_configs: [{targets: ['%s']}]\n", strings.Join(targets, "', '")),
	} {
		testwait.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	p := &prometheus{url: "http://" + address, log: filepath.Join(dir, "log")}
	log, err := os.Create(p.log)
	testwait.Must(t, err)
	defer func() { _ = log.Close() }() // The process has its own.
	cmd := exec.Command(binary, "--config.file", filepath.Join(dir, "prometheus.yaml"), "--web.listen-address", address,
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--log.level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	testwait.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	// The first scrape of every target must be over, so that what then grows is seen to grow.
	p.await(t, "the first scrapes", func(ctx context.Context) bool {
		var answer struct {
			Data struct {
				ActiveTargets []struct{ Health string }
			}
		}
		if p.get(ctx, "/api/v1/targets", &answer) != nil || len(answer.Data.ActiveTargets) != len(targets) {
			return false
		}
		for _, target := range answer.Data.ActiveTargets {
			if target.Health != "up" {
				return false
			}
		}
		return true
	})
	return p
}

func (p *prometheus) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return json.NewDecoder(response.Body).Decode(into)
}

// firing lists the alerts that fire, each once; nil and false when Prometheus can't say.
func (p *prometheus) firing(ctx context.Context) ([]string, bool) {
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels map[string]string
				State  string
			}
		}
	}
	if err := p.get(ctx, "/api/v1/alerts", &answer); err != nil {
		return nil, false
	}
	names := []string{}
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	slices.Sort(names)
	return slices.Compact(names), true
}

// await polls until something holds, and returns how long that took.
func (p *prometheus) await(t *testing.T, what string, holds func(context.Context) bool) time.Duration {
	t.Helper()
	began := time.Now()
	ctx := testwait.Context(t, patience)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !holds(ctx) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(p.log) // Whatever there is of it.
			names, _ := p.firing(t.Context())
			t.Fatalf("%s: not within %v; firing: %v\nprometheus: %s", what, patience, names, log)
		}
	}
	return time.Since(began)
}
