package main

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/witness"
)

// TestWitnessCommand: a witness cosigns for the logs that the environment names, ends with status 0, and goes on from its state.
func TestWitnessCommand(t *testing.T) {
	t.Parallel()
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	dir := t.TempDir()
	var logs []*translog.Key
	var vkeys []string
	for _, origin := range []string{"first", "second"} {
		key, err := translog.GenerateKey(origin)
		testwait.Must(t, err)
		logs, vkeys = append(logs, key), append(vkeys, key.Verifier())
	}
	var vkey string
	leaf := tlog.RecordHash([]byte("a leaf"))
	one := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) { return []tlog.Hash{leaf}, nil })
	for start := range 2 {
		cmd := exec.CommandContext(t.Context(), binary, "witness", "--key", "w.key", "--state", "w.json", "--name", "w", "--addr-file", "addr", "--log-level", "debug")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "FAIRLEAD_LISTEN=127.0.0.1:0", "FAIRLEAD_LOG="+strings.Join(vkeys, " \n"))
		var log bytes.Buffer
		cmd.Stderr = &log
		out, err := cmd.StdoutPipe()
		testwait.Must(t, err)
		testwait.Must(t, cmd.Start())
		reader := bufio.NewReader(out)
		line, err := reader.ReadString('\n')
		testwait.Must(t, err)
		if start > 0 && line != vkey {
			t.Errorf("the key was %s and is %s", vkey, line)
		}
		vkey = line
		addr, err := os.ReadFile(filepath.Join(dir, "addr"))
		testwait.Must(t, err)
		remote, err := witness.ParseRemote(strings.TrimSpace(vkey) + "=http://" + strings.TrimSpace(string(addr)))
		testwait.Must(t, err)
		for _, key := range logs {
			checkpoint, err := key.Sign(tlog.Tree{N: 1, Hash: leaf})
			testwait.Must(t, err)
			c, err := witness.NewCollector(witness.CollectorOptions{Log: key.Verifier(), Witnesses: []witness.Remote{remote}, Timeout: patience})
			testwait.Must(t, err)
			_, answers, err := c.Ask(t.Context(), checkpoint, one)
			c.Close()
			testwait.Must(t, err)
			testwait.Check(t, answers[0].Err)
		}
		testwait.Must(t, cmd.Process.Signal(syscall.SIGTERM))
		rest, err := io.ReadAll(reader)
		testwait.Must(t, err)
		if err := cmd.Wait(); err != nil || len(rest) > 0 {
			t.Errorf("%v, more on standard output: %q", err, rest)
		}
		// What was cosigned before is cosigned again, but not news.
		if n := strings.Count(log.String(), "checkpoint cosigned"); n != 2*(1-start) {
			t.Errorf("start %d: %d lines of cosigned sizes in %s", start, n, log.String())
		}
	}
}
