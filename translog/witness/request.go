package witness

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/translog"
)

const (
	// sizeType is the type of a conflict's body.
	sizeType = "text/x.tlog.size"
	// maxProofLines is what tlog-witness allows, and enough for any tree.
	maxProofLines = 63
	// maxRequestBytes has room for the longest proof, whose lines have 45 bytes, and the longest checkpoint.
	maxRequestBytes = translog.MaxNoteBytes + 4<<10
)

// request is what a log sends: a checkpoint, and the proof that its tree extends the one of the old size.
type request struct {
	old        int64
	proof      tlog.TreeProof
	checkpoint string
}

// String is the body of the request.
func (r request) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", r.old)
	for _, h := range r.proof {
		b.WriteString(h.String() + "\n")
	}
	b.WriteString("\n" + r.checkpoint)
	return b.String()
}

// parseRequest reads a body. Sizes and hashes must be written in the one way that there is.
func parseRequest(body string) (request, error) {
	head, checkpoint, found := strings.Cut(body, "\n\n")
	if !found {
		return request{}, errors.New("no empty line")
	}
	lines := strings.Split(head, "\n")
	text, found := strings.CutPrefix(lines[0], "old ")
	if !found {
		return request{}, errors.New(`the first line must be "old SIZE"`)
	}
	old, err := parseSize(text)
	if err != nil {
		return request{}, err
	}
	r := request{old: old, checkpoint: checkpoint}
	if len(lines)-1 > maxProofLines {
		return request{}, fmt.Errorf("a proof of %d lines, more than %d", len(lines)-1, maxProofLines)
	}
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil || h.String() != line {
			return request{}, errors.New("a line of the proof is not a hash in base64")
		}
		r.proof = append(r.proof, h)
	}
	return r, nil
}

// parseSize reads a tree's size: a decimal number without leading zeroes.
func parseSize(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return 0, errors.New("a size must be a decimal number without leading zeroes")
	}
	return n, nil
}

// refusal is the answer to a request that is not met. Its text is for the log's operator.
type refusal struct {
	status int
	text   string
	size   int64 // of a conflict
}

func (r *refusal) Error() string { return r.text }

// check decides whether a witness that has cosigned one tree may cosign another: whether the old size is its own, and the
// proof shows that the next tree extends it. It is pure.
func check(last tlog.Tree, r request, next tlog.Tree) *refusal {
	switch {
	case r.old > next.N:
		return &refusal{status: http.StatusBadRequest, text: "the old size is larger than the checkpoint's"}
	case r.old != last.N:
		return &refusal{status: http.StatusConflict, text: "the old size is not that of the latest cosigned checkpoint", size: last.N}
	case r.old == 0 && len(r.proof) > 0:
		return &refusal{status: http.StatusUnprocessableEntity, text: "nothing is to be proved of the empty tree"}
	case r.old == 0:
		return nil
	}
	if err := tlog.CheckTree(r.proof, next.N, next.Hash, last.N, last.Hash); err != nil {
		return &refusal{status: http.StatusUnprocessableEntity, text: "the checkpoint does not extend the latest cosigned one, or the proof is wrong"}
	}
	return nil
}
