package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
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

// startWitness runs fairlead witness with its files in a directory, and returns what it prints and where it listens.
func startWitness(t *testing.T, dir string, log io.Writer, args ...string) (cmd *exec.Cmd, vkey, addr string) {
	t.Helper()
	binary, err := exec.LookPath("fairlead") // testscript has put it there: this test's own binary.
	testwait.Must(t, err)
	args = append([]string{"witness", "--key", "w.key", "--state", "w.json", "--name", "w", "--addr-file", "addr", "--listen", "127.0.0.1:0"}, args...)
	cmd = exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir, cmd.Stderr = dir, log
	out, err := cmd.StdoutPipe()
	testwait.Must(t, err)
	testwait.Must(t, cmd.Start())
	vkey, err = bufio.NewReader(out).ReadString('\n')
	testwait.Must(t, err)
	raw, err := os.ReadFile(filepath.Join(dir, "addr"))
	testwait.Must(t, err)
	return cmd, strings.TrimSpace(vkey), strings.TrimSpace(string(raw))
}

// TestWitnessCommand: a witness cosigns for several logs, ends with status 0, and goes on from its state.
func TestWitnessCommand(t *testing.T) {
	t.Parallel()
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
		var log bytes.Buffer
		cmd, line, addr := startWitness(t, dir, &log, "--log-level", "debug", "--log", vkeys[0], "--log", vkeys[1])
		if start > 0 && line != vkey {
			t.Errorf("the key was %s and is %s", vkey, line)
		}
		vkey = line
		remote, err := witness.ParseRemote(vkey + "=http://" + addr)
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
		testwait.Check(t, cmd.Wait())
		// What was cosigned before is cosigned again, but not news.
		if n := strings.Count(log.String(), "checkpoint cosigned"); n != 2*(1-start) {
			t.Errorf("start %d: %d lines of cosigned sizes in %s", start, n, log.String())
		}
	}
}

// TestWitnessDrains: a request that is under way when the witness is told to end gets its cosignature.
func TestWitnessDrains(t *testing.T) {
	t.Parallel()
	key, err := translog.GenerateKey("log")
	testwait.Must(t, err)
	checkpoint, err := key.Sign(tlog.Tree{N: 1, Hash: tlog.RecordHash([]byte("a leaf"))})
	testwait.Must(t, err)
	cmd, vkey, addr := startWitness(t, t.TempDir(), nil, "--log", key.Verifier())
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	testwait.Must(t, err)
	defer conn.Close()
	body := "old 0\n\n" + checkpoint
	_, err = fmt.Fprintf(conn, "POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", len(body))
	testwait.Must(t, err)
	answers := bufio.NewReader(conn)
	line, err := answers.ReadString('\n') // It is sent once the handler reads the body.
	testwait.Must(t, err)
	if !strings.HasPrefix(line, "HTTP/1.1 100") {
		t.Fatal(line)
	}
	_, err = answers.ReadString('\n')
	testwait.Must(t, err)
	testwait.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	testwait.Eventually(t, patience, "the end of listening", func() bool {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	_, err = io.WriteString(conn, body)
	testwait.Must(t, err)
	res, err := http.ReadResponse(answers, nil)
	testwait.Must(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	testwait.Must(t, err)
	if found, err := translog.VerifyCosignatures(checkpoint, string(text), vkey); err != nil || len(found) != 1 {
		t.Errorf("%s: %q, %v", res.Status, text, err)
	}
	testwait.Check(t, cmd.Wait())
}
