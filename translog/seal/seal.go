// Package seal verifies that a draw was sealed before its beacon's round was due: that a public log has the seal, and that witnesses have
// signed a checkpoint over it in time. What is checked is specified in docs/design/fairdraw.md, section 9.1.
//
// A proof without such a seal shows that its list and its round give its winners, and not that both were fixed in time. The witnesses'
// signatures show that, if one of the witnesses has a true clock and is not the operator's.
package seal

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/fairlead-dev/fairlead/fairdraw"
	"github.com/fairlead-dev/fairlead/translog"
)

// Errors of verifying a seal. All errors wrap one of them, or one of package translog's.
var (
	// ErrMissing is wrapped where a proof has no seal.
	ErrMissing = errors.New("the proof has no seal in a public log")
	// ErrWrong is wrapped where the seal is another campaign's, says something else than the proof, or is not in the log.
	ErrWrong = errors.New("the seal does not follow")
	// ErrUnseen is wrapped where too few witnesses have signed in time.
	ErrUnseen = errors.New("too few witnesses have seen the seal before the round")
)

// Keys say whose signatures count. With the zero Keys, no signature is verified.
type Keys struct {
	// Log is the verifier key of the log; empty: its signature is not verified, and neither are those of witnesses.
	Log string
	// Witnesses are verifier keys, of which Quorum must have signed in time.
	Witnesses []string
	Quorum    int
}

// A Sighting is what is known of a seal.
type Sighting struct {
	Origin     string // the log's name, as the checkpoint has it
	Index      int64  // of the seal's entry
	Size       int64  // of the log, in the checkpoint
	SealedAt   time.Time
	DueAt      time.Time // when the round was due
	Signatures int       // of the checkpoint, known or not, the log's own among them
	Signed     bool      // the log's signature was verified
	// By are the signatures of the witnesses' keys that were certainly made before the round was due, the earliest first.
	By []translog.Cosignature
}

// Before is how long before the round the last of those witnesses had signed; 0 without any.
func (s *Sighting) Before() time.Duration {
	if len(s.By) == 0 {
		return 0
	}
	return s.DueAt.Sub(s.By[len(s.By)-1].At)
}

// Verify verifies a proof's seal. The proof itself must have been verified before, by [fairdraw.Proof.VerifyBeacon].
func Verify(p *fairdraw.Proof, keys Keys) (*Sighting, error) {
	if p.Seal == nil || p.Source == nil {
		return nil, ErrMissing
	}
	s := &Sighting{Index: p.Seal.Index, DueAt: p.Source.Chain.TimeOf(p.Source.Round)}
	var err error
	leaf, err := base64.StdEncoding.Strict().DecodeString(p.Seal.Leaf)
	if err != nil {
		return nil, wrong("leaf", "it is not base64")
	}
	if s.SealedAt, err = read(leaf, p); err != nil {
		return nil, err
	}
	if err := s.include(leaf, p.Seal); err != nil {
		return nil, err
	}
	return s, s.verify(p.Seal.Checkpoint, keys)
}

func wrong(member, format string, args ...any) error {
	return fmt.Errorf("seal.%s: %w: %s", member, ErrWrong, fmt.Sprintf(format, args...))
}

// lastDue is the last second that a leaf's time can write.
var lastDue = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) //nolint:gochecknoglobals // A constant.

// times is the form of a leaf's time.
var times = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$`)

// read reads the leaf, which is these bytes where its time alone is free.
func read(leaf []byte, p *fairdraw.Proof) (at time.Time, err error) {
	due := p.Source.Chain.TimeOf(p.Source.Round)
	if due.After(lastDue) {
		return at, wrong("leaf", "the round is due after the year 9999")
	}
	head := append(translog.AppendString([]byte(`{"type":"campaign.sealed","topic":`), "campaign:"+p.Campaign), `,"seq":2,"at":"`...)
	tail := fmt.Sprintf(`","data":{"positions":%d,"root":"%s","round":%d,"due_at":"%s"}}`, len(p.Positions), p.Root, p.Source.Round, due.Format(translog.TimeLayout))
	text, ok := strings.CutPrefix(string(leaf), string(head))
	if ok {
		text, ok = strings.CutSuffix(text, tail)
	}
	if !ok || !times.MatchString(text) {
		return at, wrong("leaf", "it does not say that this campaign was sealed with this root for this round: %.300q", leaf)
	}
	if at, err = time.Parse(translog.TimeLayout, text); err != nil {
		return at, wrong("leaf", "%q is no time", text)
	}
	if at.After(due.Add(-p.Source.Chain.Period())) {
		return at, wrong("leaf", "sealed at %s, less than a period before the round was due", text)
	}
	return at, nil
}

// heads is the form of a checkpoint: origin, size and root, and signatures by anybody.
var heads = regexp.MustCompile(`^([^\x00-\x1f\x7f]+)\n([1-9][0-9]{0,15})\n([A-Za-z0-9+/]{43}=)\n\n((?:— [^\x00-\x20\x7f+]+ [A-Za-z0-9+/=]+\n)+)$`)

// maxSize is the most leaves that a checkpoint may have: every JSON reader knows that many.
const maxSize = 1<<53 - 1

// include finds out whether the leaf is under the checkpoint's root.
func (s *Sighting) include(leaf []byte, seal *fairdraw.Seal) error {
	head := heads.FindStringSubmatch(seal.Checkpoint)
	if head == nil {
		return wrong("checkpoint", "it is not a signed checkpoint of a log")
	}
	size, _ := strconv.ParseInt(head[2], 10, 64)
	root, err := base64.StdEncoding.Strict().DecodeString(head[3])
	if err != nil || len(root) != sha256.Size || size > maxSize {
		return wrong("checkpoint", "its size or root can't be")
	}
	s.Origin, s.Size, s.Signatures = head[1], size, strings.Count(head[4], "\n")
	path := make(tlog.RecordProof, len(seal.Inclusion))
	for i, sibling := range seal.Inclusion {
		if n, err := hex.Decode(path[i][:], []byte(sibling)); err != nil || n != tlog.HashSize {
			return wrong(fmt.Sprintf("inclusion[%d]", i), "it is not a hash")
		}
	}
	if seal.Index < 0 || seal.Index >= size || tlog.CheckRecord(path, size, tlog.Hash(root), seal.Index, tlog.RecordHash(leaf)) != nil {
		return wrong("inclusion", "the leaf is not entry %d of the log's %d", seal.Index, size)
	}
	return nil
}

// verify verifies the signatures.
func (s *Sighting) verify(checkpoint string, keys Keys) error {
	if keys.Log == "" && len(keys.Witnesses) == 0 {
		return nil
	}
	opened, err := translog.Open(checkpoint, keys.Log, keys.Witnesses...)
	if err != nil {
		return fmt.Errorf("seal.checkpoint: %w", err)
	}
	s.Signed = true
	for _, c := range opened.Cosignatures {
		// Its time is cut to whole seconds, so it may have been made almost a second later.
		if !c.At.Add(time.Second).After(s.DueAt) {
			s.By = append(s.By, c)
		}
	}
	slices.SortFunc(s.By, func(a, b translog.Cosignature) int { return a.At.Compare(b.At) })
	if len(s.By) < keys.Quorum {
		return fmt.Errorf("seal.checkpoint: %w: %d of the %d that must have", ErrUnseen, len(s.By), keys.Quorum)
	}
	return nil
}
