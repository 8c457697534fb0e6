package main

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
)

// faresOfTargets sends to targets that fail in every way, are slowed, tripped, paused and well, and looks at what the pages say of each.
func (s *scene) faresOfTargets(b *browser) {
	s.t.Helper()
	var busy atomic.Bool
	busy.Store(true)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/broken":
			w.WriteHeader(http.StatusNotImplemented)
		case r.URL.Path == "/busy", r.URL.Path == "/slow" && busy.Load():
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	s.t.Cleanup(receiver.Close)
	silent, err := new(net.ListenConfig).Listen(s.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = silent.Close() })
	targets := []struct {
		name, url string
		posts     int
		state     string
		says      []string
	}{
		{"well", receiver.URL + "/well", 1, "delivering", []string{"delivering", "none"}},
		{"slow", receiver.URL + "/slow", 1, "slowed", []string{"slowed", "Status 429", "never"}},
		{"overrun", receiver.URL + "/busy", 6, "circuit_open", []string{"circuit tripped", "Status 429", "never"}},
		{"broken", receiver.URL + "/broken", 1, "failing", []string{"failing", "Status 501", "never"}},
		{"unknown", "http://nowhere.invalid/", 1, "failing", []string{"failing", "DNS", "never"}},
		{"closed", "http://127.0.0.1:9/", 1, "failing", []string{"failing", "Connection refused", "never"}},
		{"plain", strings.Replace(receiver.URL, "http:", "https:", 1), 1, "failing", []string{"failing", "TLS", "never"}},
		{"silent", "http://" + silent.Addr().String(), 1, "failing", []string{"failing", "Timeout", "never"}},
		{"held back", receiver.URL, 0, "paused", []string{"paused", "by an operator, for", "never"}},
	}
	ids := map[string]string{}
	for _, t := range targets {
		ids[t.name] = s.id("POST", "/v1/targets", obj{"name": t.name, "kind": "webhook", "url": t.url, "timeout": "1s"})
		for range t.posts {
			s.call("POST", "/v1/publications/"+s.newPublication(t.name, false)+"/publish", nil)
		}
	}
	s.call("POST", "/v1/targets/"+ids["held back"]+"/pause", nil)
	for _, t := range targets {
		s.eventually(t.name+" is "+t.state, func() bool {
			health, _ := s.call("GET", "/v1/targets/"+ids[t.name], nil)["health"].(obj)
			return health["state"] == t.state
		})
	}
	b.visit("/console/targets")
	for _, t := range targets {
		for _, word := range t.says {
			b.await(t.name+": "+word, fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].find((e) => e.querySelector("td.lead").textContent === %q)?.textContent.includes(%q)`, t.name, word))
		}
	}
	b.everywhere("targets-states")
	for name, word := range map[string]string{"overrun": "Its circuit is tripped after", "slow": "It has answered 429: it is sent one publication at a time", "plain": "The last attempt failed", "held back": "An operator paused it"} {
		b.visit("/console/targets/" + ids[name])
		b.await(word, fmt.Sprintf(`document.querySelector("main .note")?.textContent.includes(%q)`, word))
		b.everywhere("target-" + strings.ReplaceAll(name, " ", "-"))
	}
	// It accepts again, and the page follows.
	b.visit("/console/targets/" + ids["slow"])
	busy.Store(false)
	b.await("it delivers", `document.querySelector(".page-head .badge").textContent === "delivering" && document.querySelector("dl").textContent.includes("ago")`)
}
