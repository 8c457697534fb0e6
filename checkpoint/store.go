package checkpoint

import (
	"context"
	"strings"
	"time"

	"github.com/fairlead-dev/fairlead/lock"
)

// Limits of names and states.
const (
	// MaxIDLength is the longest id of an operation, in bytes.
	MaxIDLength = 64
	// MaxBytes is the largest state that is saved: 10 MiB. A store is written whole with each save, and should stay quick.
	MaxBytes = 10 << 20
)

// Key names an operation.
type Key struct {
	// LockKey is the key of the lock that operations of this name share: 1 to 200 characters without control characters.
	LockKey string
	// ID is 1 to 64 of the characters A–Z, a–z, 0–9, ".", "_", "@" and "-". It has no colon, so that a key in text has one
	// meaning.
	ID string
}

// keyPrefix begins the text form of all keys.
const keyPrefix = "lottery:state:"

// String is the text form, lottery:state:{lockKey}:{id}.
func (k Key) String() string { return keyPrefix + k.LockKey + ":" + k.ID }

// ParseKey reads what [Key.String] writes. It returns a [*ParameterError].
func ParseKey(text string) (Key, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	at := strings.LastIndexByte(rest, ':')
	if !ok || at < 0 {
		return Key{}, invalid("key", "must look like %s{lock key}:{id}", keyPrefix)
	}
	k := Key{LockKey: rest[:at], ID: rest[at+1:]}
	return k, k.Validate()
}

// Validate returns the first rule that the key breaks, as a [*ParameterError], or nil.
func (k Key) Validate() error {
	if !lock.ValidName(k.LockKey) {
		return invalid("lock key", "must have 1 to %d characters and no control characters", lock.MaxNameLength)
	}
	if k.ID == "" || len(k.ID) > MaxIDLength || strings.ContainsFunc(k.ID, func(r rune) bool { return !idRune(r) }) {
		return invalid("id", "must have 1 to %d letters, digits and characters of ._@-", MaxIDLength)
	}
	return nil
}

func idRune(r rune) bool {
	return (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') || strings.ContainsRune("._@-", r)
}

// Head guards a save.
type Head struct {
	Revision int64 `json:"revision"` // counts the saves of an operation from 1
	// Token is the fencing token of the lock under which it was saved, 0 where there is none.
	Token int64 `json:"token"`
	// Run names the run that saved it, so that it recognises a save whose answer was lost.
	Run string `json:"run"`
}

// Follows reports whether a save with this head may replace a saved state with that head.
func (h Head) Follows(that Head) bool { return h.Revision == that.Revision+1 && h.Token >= that.Token }

// Save is what a [Store] is to keep.
type Save struct {
	Head

	// Body is the state in JSON, which begins with the head.
	Body []byte
	// Ended says that nothing more is to come: the operation is completed or rolled back.
	Ended bool
	// TTL is for how long the state is kept at least. A store may keep for longer what has not ended.
	TTL time.Duration
	// Replaces, with revision 1, is what another program saved, which has no head and which this save takes the place of.
	Replaces []byte
}

// Store keeps states where all processes see them. Its methods are safe for concurrent use. They try again by themselves
// what failed for a passing reason, and return a [*ConnectionError] in the end.
type Store interface {
	// Load returns the state of an operation as it was saved, or nil where there is none.
	Load(ctx context.Context, key Key) ([]byte, error)
	// Save keeps a state, all or nothing, where its head follows that of the one that is there, or with revision 1 where none
	// is, or in place of exactly the bytes that it Replaces. It succeeds, too, where exactly this revision of this run is there
	// already. Otherwise it changes nothing, and returns [ErrLost] where none is there, a [*CorruptError] where what is there
	// has no head, and else a [*FencedError].
	Save(ctx context.Context, key Key, s *Save) error
	// Delete forgets the state of an operation, whatever it says. That there is none is a success.
	Delete(ctx context.Context, key Key) error
}

// Transactor is a [Store] whose saves can be committed with what else is written in the same database.
type Transactor interface {
	Store
	// SaveWith calls work within a transaction, whose context gives access to it, and commits what that writes with the save
	// that it returns, all or nothing, also when ctx has ended meanwhile. It calls work only where a save with the head next
	// may be made, and keeps others from making one meanwhile. It may call work again after undoing what it wrote, and does
	// not call it where exactly this revision of this run is there already.
	//
	// Where work returns an error with a save, too, a step has failed: SaveWith commits the save and returns nil, unless the
	// transaction can't be committed. It returns work's error as it is, after undoing all that work wrote, and else what Save does.
	SaveWith(ctx context.Context, key Key, next Head, work func(ctx context.Context) (*Save, error)) error
	// Step calls fn, a step, within work and with its context. Where fn fails, Step undoes what fn wrote, so that what was
	// written before it can be committed, and returns fn's error. Again reports that fn may succeed in another transaction.
	Step(ctx context.Context, fn func(ctx context.Context) error) (again bool, err error)
}
