package server

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon/beacontest"
	"github.com/fairlead-dev/fairlead/internal/logkeeper"
	"github.com/fairlead-dev/fairlead/internal/postgres"
	"github.com/fairlead-dev/fairlead/internal/testwait"
	"github.com/fairlead-dev/fairlead/translog"
	"github.com/fairlead-dev/fairlead/translog/seal"
)

// slowWitnesses cosign whatever they see, by clocks that are slow by so much: on a busy machine too, they sign before any round is due.
type slowWitnesses map[string]time.Duration

// key is a witness's, and line its cosignature of a checkpoint.
func (w slowWitnesses) key(name, checkpoint string) (vkey, line string, at time.Time) {
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	public := append([]byte{4}, key[32:]...)
	sum := sha256.Sum256(slices.Concat([]byte(name), []byte{'\n'}, public))
	at = time.Now().Add(-w[name]).Truncate(time.Second)
	text, _, _ := strings.Cut(checkpoint, "\n\n")
	message := fmt.Sprintf("cosignature/v1\ntime %d\n%s\n", at.Unix(), text)
	blob := slices.Concat(sum[:4], binary.BigEndian.AppendUint64(nil, uint64(at.Unix())), ed25519.Sign(key, []byte(message)))
	return fmt.Sprintf("%s+%x+%s", name, sum[:4], base64.StdEncoding.EncodeToString(public)),
		fmt.Sprintf("— %s %s\n", name, base64.StdEncoding.EncodeToString(blob)), at
}

// Cosign implements [logkeeper.Witnesses].
func (w slowWitnesses) Cosign(_ context.Context, checkpoint string, _ tlog.HashReader) (cosigned string, by []translog.Cosignature, err error) {
	var keys, lines []string
	for name := range w {
		key, line, at := w.key(name, checkpoint)
		keys, lines = append(keys, key), append(lines, line)
		by = append(by, translog.Cosignature{Name: name, Key: key, At: at, Line: line})
	}
	cosigned, err = translog.AddCosignatures(checkpoint, keys, lines...)
	return cosigned, by, err
}

// Count implements [logkeeper.Witnesses].
func (w slowWitnesses) Count() int { return len(w) }

// Latest implements [logkeeper.Witnesses].
func (slowWitnesses) Latest(context.Context) []logkeeper.Witnessed { return nil }

func (w slowWitnesses) keys() (vkeys []string) {
	for name := range w {
		vkey, _, _ := w.key(name, "")
		vkeys = append(vkeys, vkey)
	}
	return vkeys
}

// notSealed compares why a campaign has no seal that witnesses have seen.
func notSealed(r *reply, why string) {
	r.t.Helper()
	if got := r.problem(http.StatusNotFound, "not_sealed").str("detail"); !strings.Contains(got, why) {
		r.t.Errorf("%q, want %q", got, why)
	}
}

// sealed sells a campaign of three positions to alice, and waits until witnesses have seen its seal.
func (e *env) sealed(more string) (id string) {
	e.t.Helper()
	id = e.onSale(`"base_length":2`, more)
	for range 3 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	testwait.Eventually(e.t, patience, "the seal in the log, with a witness", func() bool { return e.get("/v1/campaigns/"+id+"/seal").status == http.StatusOK })
	return id
}

// TestASealThatWitnessesHaveSeen: from the witnesses' signatures on, everybody can have them, and the proof carries them.
func TestASealThatWitnessesHaveSeen(t *testing.T) {
	t.Parallel()
	e, random := newBeaconEnv(t)
	random.Set(beacontest.Absent)
	e.account("alice", "EUR", 1000)
	witnesses := slowWitnesses{"w1": 2 * time.Minute, "w2": time.Minute}
	e.keepLog(witnesses)

	instant := e.campaign(`"base_length":1`, "")
	notSealed(e.get("/v1/campaigns/"+instant+"/seal"), "instant")
	id := e.campaign(`"base_length":2`, `,"draw":"beacon"`)
	base := "/v1/campaigns/" + id
	e.campaignPost(id, "publish", ``).want(http.StatusOK)
	notSealed(e.get(base+"/seal"), "when the last position is sold")
	if public := e.get("/p/campaigns/" + id + "/state").want(http.StatusOK); public.at("seal") != nil {
		t.Errorf("%s", public.body)
	}
	for range 3 {
		e.buy(id, "alice").want(http.StatusCreated)
	}
	var sealed *reply
	testwait.Eventually(t, patience, "the seal in the log, with two witnesses", func() bool {
		sealed = e.get(base + "/seal")
		return sealed.status == http.StatusOK && sealed.num("witnesses") == 2
	})
	sealed.times("seen_at", "due_at")
	c := e.get(base).want(http.StatusOK)
	seen, err := time.Parse(time.RFC3339, sealed.str("seen_at"))
	must(t, err)
	due, err := time.Parse(time.RFC3339, sealed.str("due_at"))
	must(t, err)
	if sealed.str("campaign") != id || sealed.str("due_at") != c.str("beacon.due_at") || sealed.num("seconds_before") != int64(due.Sub(seen)/time.Second) {
		t.Errorf("%s\nof %s", sealed.body, c.body)
	}
	var public *reply
	testwait.Eventually(t, patience, "the seal on the public page", func() bool {
		public = e.get("/p/campaigns/" + id + "/state").want(http.StatusOK)
		return public.at("seal") != nil && public.num("seal.witnesses") == 2 // the page is kept for a moment, so it may still be of the time before
	})
	if public.num("seal.required") != 0 || public.num("seal.seconds_before") != sealed.num("seconds_before") || public.num("seal.round") != c.num("beacon.round") {
		t.Errorf("%s", public.body)
	}

	random.Set(beacontest.Healthy)
	e.sweepUntil(id, "drawn")
	document := e.get(base + "/proof").want(http.StatusOK)
	proof, err := fairdraw.ParseProof(document.body)
	must(t, err)
	must(t, proof.VerifyBeacon(beacon.Trust(random.Chain().Hash())))
	sighting, err := seal.Verify(proof, seal.Keys{Log: sealed.str("key"), Witnesses: witnesses.keys(), Quorum: 2})
	must(t, err)
	if proof.Versions.Document != fairdraw.SealedDocumentVersion || len(sighting.By) != 2 || sighting.Before() != due.Sub(seen) || !sighting.DueAt.Equal(due) {
		t.Errorf("%+v in %s", sighting, document.body)
	}
	if proof.Seal.Leaf != sealed.str("leaf") || proof.Seal.Index != sealed.num("index") || proof.Seal.Checkpoint != sealed.str("checkpoint") {
		t.Errorf("the proof has %+v, the seal is %s", proof.Seal, sealed.body)
	}

	// Where the log is signed with another key since, the old one still proves what it did.
	db, err := postgres.Open(t.Context(), postgres.Options{URL: e.dbURL, MaxConns: 2, Patience: patience, UnavailableAfter: patience})
	must(t, err)
	t.Cleanup(db.Close)
	other, err := translog.GenerateKey("fairlead.test/other")
	must(t, err)
	must(t, db.RenewLog(t.Context(), other.Verifier()))
	if again := e.get(base + "/seal").want(http.StatusOK); again.str("key") != sealed.str("key") || again.str("checkpoint") != sealed.str("checkpoint") {
		t.Errorf("%s, before %s", again.body, sealed.body)
	}
}
