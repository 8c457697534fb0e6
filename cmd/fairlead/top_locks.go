package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// lockView is one key that is held.
type lockView struct {
	Key         string  `json:"key"`
	Owner       string  `json:"owner"`
	Token       int64   `json:"token"`
	HeldSeconds float64 `json:"held_seconds"`
	Waiters     int     `json:"waiters"`
	WaitSeconds float64 `json:"longest_wait_seconds"`
}

// busiest returns up to n held keys: those with the most waiters first, then those held longest. now is by the database's
// clock, as near as the caller knows it; nothing is shown as younger than nothing.
func busiest(l *client.Locks, n int, now time.Time) []lockView {
	waiters, since := map[string]int{}, map[string]time.Time{}
	for _, w := range l.Waiters {
		for _, key := range w.Keys {
			waiters[key]++
			if first, ok := since[key]; !ok || w.Since.Before(first) {
				since[key] = w.Since
			}
		}
	}
	views := []lockView{}
	for _, h := range l.Holders {
		for key, token := range h.Tokens {
			v := lockView{Key: key, Owner: h.Owner, Token: token, HeldSeconds: max(0, now.Sub(h.GrantedAt).Seconds()), Waiters: waiters[key]}
			if v.Waiters > 0 {
				v.WaitSeconds = max(0, now.Sub(since[key]).Seconds())
			}
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b lockView) int {
		return cmp.Or(b.Waiters-a.Waiters, cmp.Compare(b.HeldSeconds, a.HeldSeconds), strings.Compare(a.Key, b.Key))
	})
	return views[:min(n, len(views))]
}
