package main

import (
	"testing"

	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
)

// TestIntegrityTellsOfTheLog: the document is not valid where the public log and the tables disagree, and keeps what it has otherwise.
func TestIntegrityTellsOfTheLog(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		log      *postgres.LogCheck
		document string
		want     string
	}{
		{nil, `{"valid":true,"difference":0}`, `{"valid":true,"difference":0}`},
		{
			&postgres.LogCheck{Leaves: 9, Topics: 2, Facts: 8}, `{"valid":false,"difference":123456789012345678901234567890}`,
			`{"difference":123456789012345678901234567890,"log":{"valid":true,"topics":2,"facts":8,"leaves":9,"difference":""},"valid":false}`,
		},
		{
			&postgres.LogCheck{Difference: "a leaf"}, `{"valid":true}`,
			`{"log":{"valid":false,"topics":0,"facts":0,"leaves":0,"difference":"a leaf"},"valid":false}`,
		},
	} {
		got, err := withLog([]byte(c.document), c.log)
		testwait.Must(t, err)
		if string(got) != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
