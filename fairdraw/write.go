package fairdraw

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
)

// WriteJSON writes the document that [ParseProof] reads, with the positions that are given in place of p's, one at a time:
// a million of them are never in memory together. It ends with the first error of positions or of w.
func (p *Proof) WriteJSON(w io.Writer, positions iter.Seq2[Position, error]) error {
	out := proofWriter{to: bufio.NewWriterSize(w, proofBuffer)}
	out.encoder = json.NewEncoder(&out.buf)
	out.encoder.SetEscapeHTML(false)
	if err := out.value(p.head(), "", "}"); err != nil {
		return err
	}
	separator := `,"positions":[`
	for position, err := range positions {
		if err != nil {
			return fmt.Errorf("fairdraw: write a proof: %w", err)
		}
		out.text(separator)
		if err := out.value(position, "", ""); err != nil {
			return err
		}
		separator = ","
	}
	if separator != "," {
		out.text(separator)
	}
	out.text("],")
	tail := p.tail()
	winners := make([]winnerJSON, len(tail.Winners))
	for i := range tail.Winners {
		winners[i] = tail.Winners[i].document()
	}
	err := out.value(struct {
		Prizes  []Prize      `json:"prizes"`
		Winners []winnerJSON `json:"winners"`
	}{tail.Prizes, winners}, "{", "")
	if err != nil {
		return err
	}
	if err := out.to.Flush(); err != nil {
		return fmt.Errorf("fairdraw: write a proof: %w", err)
	}
	return nil
}

// proofBuffer is how much is written at a time.
const proofBuffer = 64 << 10

type proofWriter struct {
	to      *bufio.Writer
	encoder *json.Encoder // to buf
	buf     bytes.Buffer
}

// text writes; a failure is kept by the buffered writer, and told by its Flush.
func (w *proofWriter) text(s string) { _, _ = w.to.WriteString(s) }

// value writes a value without the given beginning and end.
func (w *proofWriter) value(v any, begin, end string) error {
	w.buf.Reset()
	if err := w.encoder.Encode(v); err != nil {
		return fmt.Errorf("fairdraw: write a proof: %w", err)
	}
	b := bytes.TrimSuffix(w.buf.Bytes(), []byte("\n"))
	b = bytes.TrimSuffix(bytes.TrimPrefix(b, []byte(begin)), []byte(end))
	if _, err := w.to.Write(b); err != nil {
		return fmt.Errorf("fairdraw: write a proof: %w", err)
	}
	return nil
}
