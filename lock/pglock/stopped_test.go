package pglock

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairlead-dev/fairlead/internal/tally"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/lock"
)

// holderURL makes the test binary a holder on that database.
const holderURL = "FAIRLEAD_TEST_HOLDER_URL"

// stoppedTTL is short, so that a stop of some TTLs is.
const stoppedTTL = 200 * time.Millisecond

// TestHolderProcess is no test: it is the process that TestStoppedHolderWritesNothing stops. For each line that it reads
// it acquires the lock, sees that it holds it, says so, and after one more line writes.
func TestHolderProcess(t *testing.T) {
	url := os.Getenv(holderURL)
	if url == "" {
		t.Skip("run by another test")
	}
	writes := pool(t, url)
	b := open(t, url, Options{})
	l := lock.New(b, lock.LockerOptions{})
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		h, err := l.Acquire(t.Context(), []string{"k"}, lock.Options{TTL: stoppedTTL, Wait: lock.Forever})
		if err != nil {
			fmt.Println("error", err)
			return
		}
		if h.Context().Err() != nil {
			fmt.Println("late")
			continue
		}
		fmt.Println("held", h.Token("k"))
		if !in.Scan() {
			return
		}
		err = pgx.BeginFunc(t.Context(), writes, func(tx pgx.Tx) error {
			if err := testSchema.Fence(t.Context(), tx, "k", h.Token("k")); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO written VALUES ($1)`, h.Token("k"))
			return err
		})
		switch {
		case err == nil:
			fmt.Println("written")
		case errors.Is(err, lock.ErrStaleToken):
			fmt.Println("stale")
		default:
			fmt.Println("error", err)
		}
		_ = h.Release(t.Context()) // Lost, mostly.
	}
}

// TestStoppedHolderWritesNothing stops a holder between its check and its write for 1.5 to 5 TTLs, while another takes
// the lock over and writes.
func TestStoppedHolderWritesNothing(t *testing.T) {
	t.Parallel()
	counted := testwait.Recorder(t)
	url := database(t)
	writes := pool(t, url)
	testwait.Must(t, testwait.Err(writes.Exec(t.Context(), `CREATE TABLE written (token bigint PRIMARY KEY)`)))
	b := open(t, url, Options{})
	l := lock.New(b, lock.LockerOptions{})
	holder := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHolderProcess$")
	holder.Env = append(os.Environ(), holderURL+"="+url)
	holder.Stderr = os.Stderr
	to, err := holder.StdinPipe()
	testwait.Must(t, err)
	from, err := holder.StdoutPipe()
	testwait.Must(t, err)
	testwait.Must(t, holder.Start())
	t.Cleanup(func() {
		_ = holder.Process.Kill() // It may be stopped.
		_ = holder.Wait()         // Killed is no success.
	})
	answers := bufio.NewReader(from)
	tell := func() {
		testwait.Must(t, testwait.Err(io.WriteString(to, "go\n")))
	}
	hear := func(verb string) (word string, token int64) {
		line, err := answers.ReadString('\n')
		if err != nil {
			t.Fatalf("the holder ended, %s: %v", verb, err)
		}
		_, _ = fmt.Sscan(line, &word, &token) // Not all words come with a token.
		return word, token
	}
	rounds, stale := testwait.Count(4, 200), 0
	for tries := 0; stale < rounds && tries < 10*rounds; tries++ { // On a slow machine, the holder may see that it comes too late.
		tell()
		word, old := hear("acquiring")
		if word == "late" {
			continue
		}
		if word != "held" {
			t.Fatalf("the holder says %s", word)
		}
		testwait.Must(t, holder.Process.Signal(syscall.SIGSTOP))
		began := time.Now()
		counted.Fault(tally.LeasePaused, began)
		pause := stoppedTTL*3/2 + rand.N(stoppedTTL*7/2)
		h := acquire(t, l, "k", lock.Options{Wait: testwait.Patience})
		counted.Answered(began, time.Now(), true)
		if h.Token("k") <= old {
			t.Errorf("token %d after %d", h.Token("k"), old)
		}
		if err := pgx.BeginFunc(t.Context(), writes, func(tx pgx.Tx) error {
			return testSchema.Fence(t.Context(), tx, "k", h.Token("k"))
		}); err != nil {
			t.Fatal(err)
		}
		timer := time.NewTimer(pause - time.Since(began))
		<-timer.C
		testwait.Must(t, holder.Process.Signal(syscall.SIGCONT))
		tell()
		if word, _ := hear("writing"); word != "stale" {
			t.Errorf("a write of token %d after one of token %d: %s", old, h.Token("k"), word)
		}
		stale++
		testwait.Check(t, h.Release(t.Context()))
	}
	var accepted int
	testwait.Must(t, writes.QueryRow(t.Context(), `SELECT count(*) FROM written`).Scan(&accepted))
	t.Logf("%d stale writes attempted, %d accepted", stale, accepted)
	counted.Differ(0, accepted)
	if accepted != 0 || stale < rounds {
		t.Errorf("%d stale writes attempted, %d accepted", stale, accepted)
	}
}
