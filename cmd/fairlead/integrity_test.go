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
		damaged  bool // archives
		want     string
	}{
		{nil, `{"valid":true,"difference":0}`, false, `{"valid":true,"difference":0}`},
		{
			&postgres.LogCheck{Leaves: 9, Topics: 2, Facts: 8}, `{"valid":false,"difference":123456789012345678901234567890}`, false,
			`{"difference":123456789012345678901234567890,"log":{"valid":true,"topics":2,"facts":8,"leaves":9,"difference":""},"valid":false}`,
		},
		{
			&postgres.LogCheck{Difference: "a leaf"}, `{"valid":true}`, false,
			`{"log":{"valid":false,"topics":0,"facts":0,"leaves":0,"difference":"a leaf"},"valid":false}`,
		},
		{&postgres.LogCheck{}, `{"valid":true}`, true, `{"log":{"valid":true,"topics":0,"facts":0,"leaves":0,"difference":""},"valid":false}`},
	} {
		got, err := withLog([]byte(c.document), c.log, !c.damaged)
		testwait.Must(t, err)
		if string(got) != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
