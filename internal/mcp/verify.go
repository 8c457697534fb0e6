package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/fairdraw/beacon"
	"github.com/fairlead-dev/fairlead/multidraw"
	"github.com/fairlead-dev/fairlead/translog/seal"
)

// verdict is what a proof shows.
type verdict struct {
	Valid      bool     `json:"valid" jsonschema:"whether the results follow from the proof, and from what was compared"`
	Difference string   `json:"difference,omitzero" jsonschema:"the first thing that is not as it must be"`
	ID         string   `json:"id" jsonschema:"of the campaign or operation"`
	Commitment string   `json:"commitment" jsonschema:"hex SHA-256 of the seed, as the proof has it"`
	Compared   []string `json:"compared" jsonschema:"what the proof was held against"`
	Results    int64    `json:"results" jsonschema:"how many winners or draws were recomputed"`
	Positions  int      `json:"positions,omitzero" jsonschema:"of a campaign: among how many positions was drawn"`
	Round      uint64   `json:"beacon_round,omitzero" jsonschema:"of a campaign in beacon mode: the round of public randomness that decided; its signature was verified"`
	DueAt      string   `json:"beacon_due_at,omitzero"`
	Meaning    string   `json:"meaning"`
}

type verifyDrawInput struct {
	Campaign   id     `json:"campaign" jsonschema:"the campaign's id"`
	Commitment string `json:"commitment,omitzero" jsonschema:"the commitment as it was published before the sale, in hex, if you know it from then. When absent, what the server says now is compared, which proves less"`
}

type verifyMultidrawInput struct {
	Multidraw  id     `json:"multidraw" jsonschema:"the id of the operation"`
	Commitment string `json:"commitment,omitzero" jsonschema:"the seed_commitment as it was known before the draws, in hex, if you know it from then. When absent, what the server says now is compared, which proves less"`
}

// addVerifiers adds the tools that fetch a proof and recompute it here.
func (s *service) addVerifiers(b *builder) {
	add(b, tool{
		name: "verify_draw", title: "Verify a campaign's draw", annotations: isReading(), output: output[verdict](b), patience: verifyPatience,
		about: "Fetches the proof of a campaign's draw and recomputes the winners from it, outside of the server. With a commitment from before the sale it shows that the seed was chosen beforehand.",
	}, s.verifyDraw)
	add(b, tool{
		name: "verify_multidraw", title: "Verify an operation of many draws", annotations: isReading(), output: output[verdict](b), patience: verifyPatience,
		about: "Fetches the proof of an operation of many draws and repeats all of them, outside of the server.",
	}, s.verifyMultidraw)
}

func (s *service) verifyDraw(ctx context.Context, in verifyDrawInput) (any, error) {
	c, err := s.client.GetCampaign(ctx, string(in.Campaign))
	if err != nil {
		return nil, err
	}
	data, err := s.client.Proof(ctx, string(in.Campaign))
	if err != nil {
		return nil, err
	}
	v := &verdict{ID: c.ID}
	published := v.compare(in.Commitment, c.Commitment)
	proof, err := fairdraw.ParseProof(data)
	if err == nil {
		v.Commitment, v.Results, v.Positions = proof.Commitment, int64(len(proof.Winners)), len(proof.Positions)
		if source := proof.Source; source != nil {
			v.Round, v.DueAt = source.Round, source.Chain.TimeOf(source.Round).UTC().Format(time.RFC3339)
		}
		err = errors.Join(proof.VerifyBeacon(beacon.Trust()), proof.VerifyCommitment(published), sameCampaign(proof.Campaign, c.ID))
		if proof.Seal != nil && err == nil {
			_, err = seal.Verify(proof, seal.Keys{}) // Only the user can know which keys to trust.
		}
	}
	return v.conclude(err, "the winners"), nil
}

// sameCampaign refuses the proof of another one.
func sameCampaign(got, want string) error {
	if got != want {
		return fmt.Errorf("the proof is of campaign %s", got)
	}
	return nil
}

func (s *service) verifyMultidraw(ctx context.Context, in verifyMultidrawInput) (any, error) {
	m, err := s.client.GetMultidraw(ctx, string(in.Multidraw))
	if err != nil {
		return nil, err
	}
	data, err := s.client.MultidrawProof(ctx, string(in.Multidraw))
	if err != nil {
		return nil, err
	}
	v := &verdict{ID: m.ID}
	published := v.compare(in.Commitment, m.SeedCommitment)
	proof, err := multidraw.ParseProof(data)
	if err == nil {
		v.Commitment, v.Results = proof.Commitment, proof.Count
		err = errors.Join(proof.Verify(ctx), proof.VerifyCommitment(published))
	}
	if ctx.Err() != nil {
		return nil, &failure{
			Code: "too_slow", Detail: "the draws could not be repeated in time", Outcome: "not_applied",
			WhatToDo: "Save the proof and run fairlead verify, which takes as long as it needs.",
		}
	}
	return v.conclude(err, "the draws"), nil
}

// compare chooses the commitment that a proof must reveal.
func (v *verdict) compare(given, now string) string {
	if given != "" {
		v.Compared = []string{"the commitment that was given"}
		v.Meaning = "follow from the seed to which the given commitment was made. If that was known beforehand, nobody can have chosen the seed afterwards."
		return given
	}
	v.Compared = []string{"the commitment that the server shows now"}
	v.Meaning = "follow from the seed in the proof. That the seed was chosen beforehand is only shown by a commitment that was kept from then: give it as commitment."
	return now
}

func (v *verdict) conclude(err error, what string) *verdict {
	v.Valid = err == nil
	v.Meaning = "Valid: " + what + " " + v.Meaning
	if err != nil {
		v.Difference = err.Error()
		v.Meaning = "NOT VALID: " + what + " do not follow from what was published."
	}
	return v
}
