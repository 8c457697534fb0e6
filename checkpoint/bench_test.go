package checkpoint

import (
	"context"
	"encoding/json"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// benchEvery is how many results there are between two saves.
const benchEvery = 1000

// largest is a run of an operation whose state is as large as one may be, and what is saved of it. The last steps are not saved yet.
func largest[R any](b *testing.B, result func(step int) R) (j *job[struct{}, R], body []byte) {
	b.Helper()
	var text []byte
	ends := []int{0} // of each result in text
	for step := 0; len(text) < MaxBytes-2<<10; step++ {
		if step > 0 {
			text = append(text, ',')
		}
		one, err := json.Marshal(result(step))
		testwait.Must(b, err)
		text = append(text, one...)
		ends = append(ends, len(text))
	}
	steps := len(ends) - 2
	state := func(n int) *State {
		return &State{
			LockKey: "k", ID: "op", Kind: "bench", Status: StatusRunning, Parameters: []byte("{}"), ParametersHash: hashOf("bench", steps, []byte("{}")),
			TotalCount: steps, CompletedCount: n, ReachedCount: n, Head: Head{Revision: 1, Run: "r"}, StartTime: time.Now().Unix(), ResultsName: NameResults,
			Results: append(append([]byte("["), text[:ends[n]]...), ']'),
		}
	}
	r, err := New(Definition[struct{}, R]{
		Name: "bench", Open: func(struct{}, Seed) (Steps[R], error) { return nil, context.Canceled },
	}, &Memory{}, nil, Options{})
	testwait.Must(b, err)
	if j, err = r.job(state(steps-benchEvery), nil, 1, Call{}); err != nil {
		b.Fatal(err)
	}
	j.text = append(j.text, text[ends[steps-benchEvery]:ends[steps]]...)
	j.state.CompletedCount, j.state.ReachedCount = steps, steps
	save, err := j.encode(j.next())
	testwait.Must(b, err)
	b.SetBytes(int64(len(save.Body)))
	b.ReportAllocs()
	return j, save.Body
}

// eachShape runs a benchmark with states of integers of one digit, of any integers, and of prizes as objects.
func eachShape(b *testing.B, integers func(*testing.B, func(int) int64), objects func(*testing.B, func(int) prizeObject)) {
	b.Helper()
	b.Run("digits", func(b *testing.B) { integers(b, func(step int) int64 { return int64(step % 10) }) })
	b.Run("integers", func(b *testing.B) {
		integers(b, func(step int) int64 { return int64(uint64(step+1) * 0x9e3779b97f4a7c15) })
	})
	b.Run("objects", func(b *testing.B) {
		objects(b, func(step int) prizeObject {
			return prizeObject{"prize-" + strconv.Itoa(step%100), "A prize", int64(step%7 + 1), 100}
		})
	})
}

type prizeObject struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Weight int64  `json:"weight"`
	Value  int64  `json:"value"`
}

// BenchmarkEncode10MiB encodes a save of a state of 10 MiB, with the digest of the thousand results that are new.
func BenchmarkEncode10MiB(b *testing.B) {
	eachShape(b, encodes[int64], encodes[prizeObject])
}

func encodes[R any](b *testing.B, result func(int) R) {
	b.Helper()
	j, _ := largest(b, result)
	for b.Loop() {
		testwait.Must(b, testwait.Err(j.encode(j.next())))
	}
}

// BenchmarkDecode10MiB reads and checks such a state, as Load does.
func BenchmarkDecode10MiB(b *testing.B) {
	eachShape(b, decodes[int64], decodes[prizeObject])
}

func decodes[R any](b *testing.B, result func(int) R) {
	b.Helper()
	_, body := largest(b, result)
	for b.Loop() {
		testwait.Must(b, testwait.Err(Decode(body)))
	}
}

// BenchmarkResume10MiB makes a run of such a state, as Resume does before its first step. It reports what a run holds in memory.
func BenchmarkResume10MiB(b *testing.B) {
	eachShape(b, resumes[int64], resumes[prizeObject])
}

func resumes[R any](b *testing.B, result func(int) R) {
	b.Helper()
	made, body := largest(b, result)
	var j *job[struct{}, R]
	without := heap()
	for b.Loop() {
		s, err := Decode(body)
		testwait.Must(b, err)
		if j, err = made.r.job(s, nil, 1, Call{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(heap()-without)/(1<<20), "MiB-held")
	for _, kept := range []any{made, body, j} {
		runtime.KeepAlive(kept)
	}
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // What had a finalizer.
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
