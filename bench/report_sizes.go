//go:build linux

package main

import (
	"cmp"
	"fmt"
	"slices"
)

// SizeTurn is by how much the database has grown with each of so many commands.
type SizeTurn struct {
	What            string   `json:"what"`
	Commands        int      `json:"commands"`
	WALBytesEach    float64  `json:"wal_bytes_each"`
	Tables          []SizeOf `json:"tables"`
	ServerPeakBytes int64    `json:"server_peak_bytes"`

	after map[string]relation
}

// SizeOf is what one table and its indexes have grown by, in bytes for each command.
type SizeOf struct {
	Table          string  `json:"table"`
	BytesEach      float64 `json:"bytes_each"`
	IndexBytesEach float64 `json:"index_bytes_each"`
}

func (t SizeOf) total() float64 { return t.BytesEach + t.IndexBytesEach }

func (t *SizeTurn) total() (sum float64) {
	for _, table := range t.Tables {
		sum += table.total()
	}
	return sum
}

func (r *Results) printSizes(out *printer) {
	for _, t := range r.Sizes {
		out.printf("\nSizes: %d %s. Each wrote %.0f bytes to the log. The server has had %d MiB of memory at most. Each has left behind:\n",
			t.Commands, t.What, t.WALBytesEach, t.ServerPeakBytes/mib)
		tables := slices.SortedFunc(slices.Values(t.Tables), func(a, b SizeOf) int { return cmp.Compare(b.total(), a.total()) })
		lines := []string{"\tbytes in the table\tin its indexes\tin all"}
		for _, table := range tables {
			lines = append(lines, fmt.Sprintf("%s\t%.0f\t%.0f\t%.0f", table.Table, table.BytesEach, table.IndexBytesEach, table.total()))
		}
		out.table(append(lines, fmt.Sprintf("all\t\t\t%.0f", t.total())))
	}
}
