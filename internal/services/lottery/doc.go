// Package lottery sells the positions of campaigns, and draws each campaign's winners once, in the transaction of its last
// sale. [Decide] is the pure core, [Service] the shell.
//
// # States
//
//	pending ──publish──► active ──last sale──► drawing ──► completed
//	   └──────cancel──────┴──► cancelled (with refunds)
//
// With an instant draw one transaction passes active, drawing and completed; nobody sees drawing. In beacon mode the last
// sale's transaction seals the campaign: it writes the root of what was sold, and names a round of a public beacon that is not
// published yet. The campaign is then drawing, and cannot be cancelled, until the round is published and verified. Any process
// asks for the round repeatedly ([Service.SweepRounds]), and any may draw. Root and round are written once, so every attempt
// draws the same winners. Nothing is drawn without the round. A campaign that is found drawing, after a manual intervention
// for example, is finished by the sweeper or by the next request for its draw.
//
// # Layers of defence against selling or drawing twice
//
//  1. One lane per campaign in each process decides its commands in turn.
//  2. A transaction-level advisory lock and the lock on the campaign's row make processes take turns.
//  3. The row is updated only from the version that was read under the lock, or that the process remembers, with the latest sale that it
//     remembers. It becomes drawing only from active, with everything sold, and never by what is remembered alone.
//  4. Unique rows: one purchase per position, one sale per number, one result per campaign.
//  5. CHECK (sold <= total) on the campaign and on each layer.
//
// # Positions
//
// Positions are numbered by layer and, within a layer, from 1. The ordinal is a position's place in that order, from 0. Only
// sold positions have rows. A process keeps what is free in an [Inventory]. It sells from that, and the transaction is undone where the
// campaign has other sales. Then the process brings the inventory up to date, under the campaign's lock, from the sales that it has not seen.
//
// # Invariants
//
//   - sold ≤ total at every instant, per campaign and per layer; a position is sold once.
//   - The escrow holds the price of every position sold while the campaign is active, and nothing after the end.
//   - A campaign has one result for ever; its winners are sold positions, distinct for each prize.
package lottery
