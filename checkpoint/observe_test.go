package checkpoint_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/checkpoint"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// told is an observer that writes down what it is told of, without times.
type told []string

func (w *told) Stored(op checkpoint.Op, bytes int, took time.Duration, err error) {
	if took < 0 {
		err = errors.Join(err, errors.New("a time below zero"))
	}
	*w = append(*w, fmt.Sprintf("%s %d failed=%t", op, bytes, err != nil))
}

// noting notes the size of what is saved.
type noting struct {
	checkpoint.Memory

	sizes []int
	fails error // of the next save
}

func (n *noting) Save(ctx context.Context, key checkpoint.Key, s *checkpoint.Save) error {
	if err := n.fails; err != nil {
		n.fails = nil
		return err
	}
	n.sizes = append(n.sizes, len(s.Body))
	return n.Memory.Save(ctx, key, s)
}

// TestObserver reads what the log and the observer are told of a run, a failed save, a corrupt state and its end.
func TestObserver(t *testing.T) {
	t.Parallel()
	var (
		log    bytes.Buffer
		heard  told
		store  noting
		logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	)
	r, err := checkpoint.New(checkpoint.Definition[count, int64]{
		Name: "counting", Open: func(p count, seed checkpoint.Seed) (checkpoint.Steps[int64], error) {
			return &counted{p, seed, nil}, nil
		},
	}, &store, nil, checkpoint.Options{Every: 2, Logger: logger, Observer: &heard})
	testwait.Must(t, err)

	testwait.Must(t, second(r.Run(t.Context(), op, count{N: 3}, checkpoint.Call{})))
	if len(store.sizes) != 3 {
		t.Fatalf("saved %v", store.sizes)
	}
	want := told{"load 0 failed=false"}
	for _, size := range store.sizes {
		want = append(want, fmt.Sprintf("save %d failed=false", size))
	}
	store.fails = errPower
	last := store.sizes[2]
	wantError(t, "a save that fails", second(r.Rollback(t.Context(), op, checkpoint.Call{})), errPower)
	want = append(want, fmt.Sprintf("load %d failed=false", last), "save N failed=true")
	gone, giveUp := context.WithCancel(t.Context())
	giveUp()
	wantError(t, "a load that was given up", second(r.Load(gone, op)), context.Canceled)
	want = append(want, "load 0 failed=true")
	testwait.Must(t, store.Delete(t.Context(), op))
	testwait.Must(t, store.Memory.Save(t.Context(), op, &checkpoint.Save{Head: checkpoint.Head{Revision: 1}, Body: []byte(`{"what":1}`), TTL: time.Hour}))
	wantError(t, "a corrupt state", second(r.Load(t.Context(), op)), checkpoint.ErrCorrupt)
	testwait.Must(t, r.Delete(t.Context(), op))
	want = append(want, "load 10 failed=true", "delete 0 failed=false")

	for i := range heard {
		if i < len(want) && strings.Contains(want[i], " N ") {
			heard[i] = regexp.MustCompile(` [1-9]\d* `).ReplaceAllString(heard[i], " N ")
		}
	}
	if !slices.Equal(heard, want) {
		t.Errorf("the observer was told\n%s\nand should be\n%s", strings.Join(heard, "\n"), strings.Join(want, "\n"))
	}
	// The log has the same, each with the key and a time; its levels are those of failures.
	var levels []string
	line := regexp.MustCompile(`level=(DEBUG|ERROR) msg="checkpoint: operation(?: failed)?" operation=(load|save|delete) key=lottery:state:user_123:daily:op bytes=\d+ took=\S+( severity=\w+ error=.+)?\n`)
	for _, m := range line.FindAllStringSubmatch(log.String(), -1) {
		levels = append(levels, m[1])
	}
	if wanted := []string{"DEBUG", "DEBUG", "DEBUG", "DEBUG", "DEBUG", "ERROR", "DEBUG", "ERROR", "DEBUG"}; !slices.Equal(levels, wanted) {
		t.Errorf("levels %v, want %v:\n%s", levels, wanted, &log)
	}
}
