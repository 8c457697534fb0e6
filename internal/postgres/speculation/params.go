package speculation

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// Params encodes the parameters of statements in PostgreSQL's binary format, into memory that it uses again. It knows
// the types that speculative statements have, arrays of one dimension (src/backend/utils/adt/arrayfuncs.c, array_recv) and counts of
// rows, and costs a third of what the driver's encoding of any type does.
type Params struct {
	buf    []byte
	ends   []int    // of each parameter in buf
	values [][]byte // as next returns them
	taken  int
}

// Reset forgets the parameters.
func (p *Params) Reset() {
	p.buf, p.ends, p.values, p.taken = p.buf[:0], p.ends[:0], p.values[:0], 0
}

// Next returns the next n parameters, all of them having been appended before. They are valid until Reset.
func (p *Params) Next(n int) [][]byte {
	first := len(p.values)
	for i := p.taken; i < p.taken+n; i++ {
		start := 0
		if i > 0 {
			start = p.ends[i-1]
		}
		p.values = append(p.values, p.buf[start:p.ends[i]:p.ends[i]])
	}
	p.taken += n
	return p.values[first:]
}

// header is how many bytes an array has before its elements, and countAt where among these their number is.
const (
	header  = 5 * 4
	countAt = 3 * 4
)

// Append encodes one parameter. Several values become one that has all of them: arrays one behind the other, and the sum of counts.
// It returns an error for a value that is neither a count nor such an array.
func (p *Params) Append(values ...any) error {
	start := len(p.buf)
	for i, value := range values {
		at := len(p.buf)
		if err := p.encode(value); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		first, more := p.buf[start:at], p.buf[at:]
		switch value.(type) {
		case int:
			binary.BigEndian.PutUint64(first, binary.BigEndian.Uint64(first)+binary.BigEndian.Uint64(more))
			p.buf = p.buf[:at]
		default:
			count := binary.BigEndian.Uint32(first[countAt:]) + binary.BigEndian.Uint32(more[countAt:])
			binary.BigEndian.PutUint32(first[countAt:], count)
			p.buf = p.buf[:at+copy(more, more[header:])]
		}
	}
	p.ends = append(p.ends, len(p.buf))
	return nil
}

func (p *Params) encode(arg any) error {
	switch v := arg.(type) {
	case int: // Counts, which the statements take as bigint.
		p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(v)) //nolint:gosec // The bits count.
	case []string:
		p.array(pgtype.TextOID, len(v))
		for _, s := range v {
			p.length(len(s))
			p.buf = append(p.buf, s...)
		}
	case [][]byte:
		p.array(pgtype.ByteaOID, len(v))
		for _, b := range v {
			p.length(len(b))
			p.buf = append(p.buf, b...)
		}
	case [][16]byte:
		p.array(pgtype.UUIDOID, len(v))
		for i := range v {
			p.length(len(v[i]))
			p.buf = append(p.buf, v[i][:]...)
		}
	case []int64:
		p.array(pgtype.Int8OID, len(v))
		for _, n := range v {
			p.length(8)
			p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(n)) //nolint:gosec // The bits count.
		}
	case []int:
		p.array(pgtype.Int4OID, len(v))
		for _, n := range v {
			p.length(4)
			p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(n)) //nolint:gosec // The bits count, of what fits a column.
		}
	case []int16:
		p.array(pgtype.Int2OID, len(v))
		for _, n := range v {
			p.length(2)
			p.buf = binary.BigEndian.AppendUint16(p.buf, uint16(n)) //nolint:gosec // The bits count.
		}
	case []bool:
		p.array(pgtype.BoolOID, len(v))
		for _, b := range v {
			p.length(1)
			if b {
				p.buf = append(p.buf, 1)
			} else {
				p.buf = append(p.buf, 0)
			}
		}
	case []time.Time:
		p.array(pgtype.TimestamptzOID, len(v))
		for _, t := range v {
			p.length(8)
			p.time(t)
		}
	case []*time.Time:
		nullable(p, pgtype.TimestamptzOID, v, func(t time.Time) {
			p.length(8)
			p.time(t)
		})
	case []*[16]byte:
		nullable(p, pgtype.UUIDOID, v, func(id [16]byte) {
			p.length(len(id))
			p.buf = append(p.buf, id[:]...)
		})
	case []*int64:
		nullable(p, pgtype.Int8OID, v, func(n int64) {
			p.length(8)
			p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(n)) //nolint:gosec // The bits count.
		})
	default:
		return fmt.Errorf("a parameter of type %T", arg)
	}
	return nil
}

// array begins an array: one dimension, perhaps NULLs, the elements' type, their number and the first one's index. That
// there are no NULLs need not be said: array_recv looks.
func (p *Params) array(element uint32, n int) {
	p.length(1)
	p.length(0)
	p.buf = binary.BigEndian.AppendUint32(p.buf, element)
	p.length(n)
	p.length(1)
}

// nullable appends an array in which nil is NULL.
func nullable[T any](p *Params, element uint32, values []*T, put func(T)) {
	p.array(element, len(values))
	for _, v := range values {
		if v == nil {
			p.buf = binary.BigEndian.AppendUint32(p.buf, math.MaxUint32)
			continue
		}
		put(*v)
	}
}

func (p *Params) length(n int) {
	p.buf = binary.BigEndian.AppendUint32(p.buf, uint32(n)) //nolint:gosec // A request has a megabyte at most.
}

// time is the microseconds since 2000 began.
func (p *Params) time(t time.Time) {
	const epoch = 946_684_800 * 1_000_000
	p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(t.UnixMicro()-epoch)) //nolint:gosec // The bits count.
}
