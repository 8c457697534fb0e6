package server

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/services/publish"
)

// publicationsDoc documents a list that can be narrowed.
func publicationsDoc() operation {
	o := paged[publicationView]("List publications, oldest first")
	o.query = append(o.query, parameter{name: "status", doc: "only those of this status", schema: reflect.TypeFor[string]()})
	return o
}

func (s *Server) getPublications(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	status := publish.Status(query.Get("status"))
	if query.Has("status") && !slices.Contains(publish.Statuses(), status) {
		s.writeProblem(w, r, refuse("status must be one of %v", publish.Statuses()))
		return
	}
	// A cursor of one status is none of another: they are different lists.
	narrowed := &http.Request{URL: &url.URL{Path: r.URL.Path}}
	if status != "" {
		narrowed.URL.Path += "?status=" + string(status)
	}
	p, err := readPage(narrowed.URL.Path, r.URL.RawQuery)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	publications, err := s.publish.Publications(r.Context(), status, p.after, p.limit+1)
	answer(s, w, r, func(rows []publish.Publication) list[publicationView] {
		return newList(narrowed, rows, p.limit, func(p publish.Publication) publicationView { return viewPublication(&p) },
			func(p publish.Publication) int64 { return p.Number })
	})(publications, err)
}

func (s *Server) getPublication(w http.ResponseWriter, r *http.Request) {
	id, err := pathUUID(r.PathValue("id"), "publication")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	answer(s, w, r, viewPublicationDetail)(s.publish.Publication(r.Context(), id))
}

func (s *Server) getAttempts(w http.ResponseWriter, r *http.Request) {
	p, err := parsePage(r)
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	id, err := pathUUID(r.PathValue("id"), "publication")
	if err != nil {
		s.writeProblem(w, r, err)
		return
	}
	attempts, err := s.publish.Attempts(r.Context(), id, p.after, p.limit+1)
	answer(s, w, r, func(rows []publish.Attempt) list[attemptView] {
		return newList(r, rows, p.limit, viewAttempt, func(a publish.Attempt) int64 { return a.Version })
	})(attempts, err)
}
