//go:build linux

package main

import "fmt"

// requiredBesideArchive is which part of its throughput a load keeps while history is archived.
const requiredBesideArchive = 0.9

// ArchiveTurn is a month's history that was archived beside transfers.
type ArchiveTurn struct {
	Transfers int          `json:"transfers"` // in the archive; it has twice as many entries
	Seconds   float64      `json:"archive_s"`
	Alone     TransferTurn `json:"alone"`
	Beside    TransferTurn `json:"beside"`
}

func (r *Results) printArchives(out *printer) {
	out.printf("\nTransfers alone, and while fairlead archive --rest %v takes a month's history out of the database, %d connections. Median (least … most) of %v turns.\n",
		r.Options["archive_rest"], singleConnections, r.Options["archive_pairs"])
	figure := func(f func(ArchiveTurn) float64, format string) string {
		return spread(pick(r.Archives, func(ArchiveTurn) bool { return true }, f), format)
	}
	lines := []string{"\tper second\tp50 ms\tp99 ms\tp99.9 ms"}
	for _, row := range []struct {
		name string
		of   func(ArchiveTurn) TransferTurn
	}{
		{"alone", func(t ArchiveTurn) TransferTurn { return t.Alone }},
		{"beside the archive", func(t ArchiveTurn) TransferTurn { return t.Beside }},
	} {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%s\t%s\t%s", row.name,
			figure(func(t ArchiveTurn) float64 { return row.of(t).PerSecond }, "%.0f"), figure(func(t ArchiveTurn) float64 { return row.of(t).P50MS }, "%.2f"),
			figure(func(t ArchiveTurn) float64 { return row.of(t).P99MS }, "%.2f"), figure(func(t ArchiveTurn) float64 { return row.of(t).P999MS }, "%.2f")))
	}
	out.table(lines)
	out.printf("Each archive had %s transfers, with two entries each, and took %s s.\n",
		figure(func(t ArchiveTurn) float64 { return float64(t.Transfers) }, "%.0f"), figure(func(t ArchiveTurn) float64 { return t.Seconds }, "%.0f"))
}

// judgeArchives compares within a turn.
func (r *Results) judgeArchives() {
	ratios := pick(r.Archives, func(ArchiveTurn) bool { return true }, func(t ArchiveTurn) float64 { return t.Beside.PerSecond / t.Alone.PerSecond })
	r.verdict("transfers a second beside an archive, against those alone, within a turn", median(ratios), 1, requiredBesideArchive)
}
