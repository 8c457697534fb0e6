package top

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/client"
)

// LockView is one key that is held.
type LockView struct {
	Key         string  `json:"key"`
	Owner       string  `json:"owner"`
	Token       int64   `json:"token"`
	HeldSeconds float64 `json:"held_seconds"`
	Waiters     int     `json:"waiters"`
	WaitSeconds float64 `json:"longest_wait_seconds"`
}

// Busiest returns up to n held keys: those with the most waiters first, then those held longest. now is by the database's
// clock, as near as the caller knows it; nothing is shown as younger than nothing.
func Busiest(l *client.Locks, n int, now time.Time) []LockView {
	waiters, since := map[string]int{}, map[string]time.Time{}
	for _, w := range l.Waiters {
		for _, key := range w.Keys {
			waiters[key]++
			if first, ok := since[key]; !ok || w.Since.Before(first) {
				since[key] = w.Since
			}
		}
	}
	views := []LockView{}
	for _, h := range l.Holders {
		for key, token := range h.Tokens {
			v := LockView{Key: key, Owner: h.Owner, Token: token, HeldSeconds: max(0, now.Sub(h.GrantedAt).Seconds()), Waiters: waiters[key]}
			if v.Waiters > 0 {
				v.WaitSeconds = max(0, now.Sub(since[key]).Seconds())
			}
			views = append(views, v)
		}
	}
	slices.SortFunc(views, func(a, b LockView) int {
		return cmp.Or(b.Waiters-a.Waiters, cmp.Compare(b.HeldSeconds, a.HeldSeconds), strings.Compare(a.Key, b.Key))
	})
	return views[:min(n, len(views))]
}
