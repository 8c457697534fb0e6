package main

import (
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	rows := []row{{"accounts", 3000, 512345, 2.5, "2026-01-02, `abc`"}, {"late bids", 0, 0, 0, ""}}
	read, err := parse("before\n" + begin + table(rows) + end + "after\n")
	if err != nil || !slices.Equal(read, rows) {
		t.Errorf("%+v, %v", read, err)
	}
	if _, err := parse("no table"); err == nil {
		t.Error("a page without a table")
	}
}

func TestAdd(t *testing.T) {
	r := row{scenario: "accounts", schedules: 10, steps: 5}
	const out = "    explore_test.go:99: 20 schedules, 400 steps, in 4.5s\n"
	if err := r.add(out, 20); err != nil || r.schedules != 30 || r.steps != 405 || r.rate < 4.4 || r.rate > 4.5 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{"ok\n", out} {
		if err := r.add(bad, 21); err == nil || r.schedules != 30 {
			t.Errorf("%q was counted: %+v", bad, r)
		}
	}
}
