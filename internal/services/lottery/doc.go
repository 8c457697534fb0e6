// Package lottery sells the positions of campaigns, and draws a campaign's winners once, in the transaction of its last
// sale.
//
// # States
//
//	pending ──publish──► active ──last sale──► drawing ──► completed
//	   └──────cancel──────┴──► cancelled (with refunds)
//
// With an instant draw, active, drawing and completed are passed in one transaction; nobody sees drawing. In beacon mode the
// last sale's transaction seals the campaign: it writes the root of what was sold and names a round of a public beacon
// that is not published yet. The campaign is drawing until that round is there and verified, and cannot be cancelled any
// more; any process asks for the round, again and again ([Service.SweepRounds]), and any may draw. Root and round are
// written once, so whoever draws, and however often, draws the same. Without the round nothing is drawn. A campaign
// that is found drawing (after a manual intervention, or with a draw that waits for something) is finished by the
// sweeper or by whoever asks for its draw.
//
// # Layers of defence against selling or drawing twice
//
//  1. One lane a campaign in each process: its commands are decided one after the other.
//  2. A transaction-level advisory lock, and the lock on the campaign's row: processes take turns.
//  3. A guarded transition: the row is updated only from the version that was read under the lock, and becomes drawing
//     only from active with everything sold.
//  4. Unique rows: one purchase a position, one sale a number, one result a campaign.
//  5. CHECK (sold <= total) on the campaign and on each layer.
//
// # Positions
//
// A campaign's positions are numbered by layer and, within it, from 1; the ordinal is a position's place in that order,
// from 0. Only sold positions have rows: what is free follows from what is sold, which a process keeps in an
// [Inventory] and brings up to date, under the campaign's lock, from the sales it has not seen yet.
//
// # Invariants
//
//   - sold ≤ total at every instant, per campaign and per layer; a position is sold once.
//   - The escrow holds the price of every position sold while the campaign is active, and nothing after it ended.
//   - One result a campaign, for ever; its winners are sold positions, distinct for each prize.
//
// [Decide] is the pure core, [Service] the shell.
package lottery
