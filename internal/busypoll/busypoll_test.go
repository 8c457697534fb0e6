//go:build unix

package busypoll

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair connects two, the first of them wrapped.
func pair(t *testing.T, network string) (client *conn, server net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	client, ok := wrap(a).(*conn)
	if !ok {
		t.Fatal("not wrapped")
	}
	return client, server
}

// answer writes a text after a pause.
func answer(t *testing.T, to net.Conn, after time.Duration, text string) {
	t.Helper()
	timer := time.NewTimer(after)
	defer timer.Stop()
	<-timer.C
	if _, err := to.Write([]byte(text)); err != nil {
		t.Error(err)
	}
}

// Answers arrive whole and in order, whether they come at once or late, and whether they were awaited or not.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			client, server := pair(t, network)
			for i := range 300 {
				if i%3 < 2 {
					if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
						t.Fatal(err)
					}
				} else if err := client.SetDeadline(time.Time{}); err != nil {
					t.Fatal(err)
				}
				want := bytes.Repeat([]byte{byte(i)}, 1+i*17)
				var sent sync.WaitGroup
				sent.Go(func() { answer(t, server, time.Duration(i%7)*50*time.Microsecond, string(want)) })
				got := make([]byte, len(want))
				if _, err := io.ReadFull(client, got); err != nil || !bytes.Equal(got, want) {
					t.Fatalf("answer %d: %v, %v", i, got, err)
				}
				sent.Wait()
			}
		})
	}
}

// The ends of a connection and of a deadline are told as without the package.
func TestEnds(t *testing.T) {
	t.Parallel()
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		client, _ := pair(t, "tcp")
		for _, d := range []time.Duration{-time.Second, 0, patience / 2, 50 * time.Millisecond} {
			began := time.Now()
			if err := client.SetDeadline(began.Add(d)); err != nil {
				t.Fatal(err)
			}
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < d {
				t.Errorf("%v: read %d, %v after %v", d, n, err, time.Since(began))
			}
		}
	})
	t.Run("of the other", func(t *testing.T) {
		t.Parallel()
		for _, early := range []bool{false, true} {
			client, server := pair(t, "unix")
			if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var closed sync.WaitGroup
			if early {
				_ = server.Close()
			} else {
				closed.Go(func() {
					time.Sleep(10 * time.Millisecond) // until patience is over; nothing tells when
					_ = server.Close()
				})
			}
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("read %d, %v", n, err)
			}
			closed.Wait()
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		client, server := pair(t, "tcp")
		abrupt, ok := server.(*net.TCPConn)
		if !ok {
			t.Fatalf("a %T", server)
		}
		if err := errors.Join(client.SetDeadline(time.Now().Add(time.Minute)), abrupt.SetLinger(0), abrupt.Close()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond) // The reset is on its way, and nothing tells that it has come.
		var failed *net.OpError
		if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.As(err, &failed) || failed.Op != "read" || failed.Addr == nil {
			t.Errorf("read %d, %v", n, err)
		}
	})
	t.Run("of its own", func(t *testing.T) {
		t.Parallel()
		for i := range 50 {
			client, _ := pair(t, "unix")
			if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			var closed sync.WaitGroup
			closed.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Microsecond) // at each moment of a look, and after it
				_ = client.Close()
			})
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("read %d, %v", n, err)
			}
			closed.Wait()
		}
	})
}

// Answers that take long are soon not looked for any more, and are looked for again when they come at once.
func TestFindsOutHowLongAnswersTake(t *testing.T) {
	t.Parallel()
	client, server := pair(t, "unix")
	if err := client.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	read := func() {
		client.awaited.Store(true)
		if _, err := client.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	slow := 0
	for client.usual <= worth {
		var sent sync.WaitGroup
		sent.Go(func() { answer(t, server, 5*time.Millisecond, "x") })
		read()
		sent.Wait()
		if slow++; slow > 10 {
			t.Fatal("slow answers are looked for for ever")
		}
	}
	quick := 0
	for client.usual > worth {
		answer(t, server, 0, "x")
		read()
		if quick++; quick > 100*again {
			t.Fatal("quick answers are not looked for any more")
		}
	}
	if quick < again {
		t.Errorf("they were looked for after %d, want %d at least", quick, again)
	}
	if client.SetDeadline(time.Time{}) != nil || client.awaited.Load() {
		t.Error("an answer is awaited without a deadline")
	}
}

// What can't be looked at is left as it is.
func TestNotWrapped(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if Wrap(a) != a {
		t.Error("a pipe was wrapped")
	}
	if secure := tls.Client(a, &tls.Config{ServerName: "x", MinVersion: tls.VersionTLS12}); Wrap(secure) != net.Conn(secure) {
		t.Error("a connection with TLS was wrapped")
	}
}
