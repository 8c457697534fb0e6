package audittest

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Log is a log's server, and its operator, who can change what it serves. Its methods may be called concurrently.
type Log struct {
	signer note.Signer
	key    string

	mu         sync.Mutex
	entries    [][]byte
	levels     [][]tlog.Hash // the hashes at the bottom of each level of tiles, as published last
	size       int64
	checkpoint []byte
	witnesses  []note.Signer
	answer     func(w http.ResponseWriter, r *http.Request) bool
	served     map[string]int
}

// NewLog makes an empty log with a key of its own, and publishes it.
func NewLog(origin string) *Log {
	secret, key, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		panic(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		panic(err)
	}
	l := &Log{signer: signer, key: key, served: map[string]int{}}
	l.Publish()
	return l
}

// Key is the log's verifier key.
func (l *Log) Key() string { return l.key }

// NewWitness makes a witness, which signs each checkpoint from now on, and returns its verifier key.
func (l *Log) NewWitness(name string) string {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	signer, err := torchwood.NewCosignatureSigner(name, private)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.witnesses = append(l.witnesses, signer)
	return signer.Verifier().String()
}

// Append adds leaves. They are served once they are published.
func (l *Log) Append(leaves ...Leaf) {
	for _, leaf := range leaves {
		l.AppendEntries(leaf.Entries()...)
	}
}

// AppendEntries adds entries as they are.
func (l *Log) AppendEntries(entries ...[]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, entries...)
}

// Cheat lets the operator change the entries. What was published before stays signed, until [Log.Publish].
func (l *Log) Cheat(change func(entries [][]byte) [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = change(l.entries)
}

// Publish rebuilds the tree over all entries, and signs it.
func (l *Log) Publish() { l.PublishWith("") }

// PublishWith is Publish with further lines in the checkpoint.
func (l *Log) PublishWith(extension string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.size = int64(len(l.entries))
	l.levels = [][]tlog.Hash{make([]tlog.Hash, len(l.entries))}
	for i, entry := range l.entries {
		l.levels[0][i] = tlog.RecordHash(entry)
	}
	for {
		below := l.levels[len(l.levels)-1]
		var level []tlog.Hash
		for at := 0; at+torchwood.TileWidth <= len(below); at += torchwood.TileWidth {
			level = append(level, root(below[at:at+torchwood.TileWidth]))
		}
		if len(level) == 0 {
			break
		}
		l.levels = append(l.levels, level)
	}
	text := torchwood.Checkpoint{Origin: l.signer.Name(), Tree: tlog.Tree{N: l.size, Hash: root(l.levels[0])}, Extension: extension}.String()
	signed, err := note.Sign(&note.Note{Text: text}, append([]note.Signer{l.signer}, l.witnesses...)...)
	if err != nil {
		panic(err)
	}
	l.checkpoint = signed
}

// Checkpoint is the one that was published last.
func (l *Log) Checkpoint() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.checkpoint
}

// Sign signs any text as the log's checkpoint.
func (l *Log) Sign(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	signed, err := note.Sign(&note.Note{Text: text}, l.signer)
	if err != nil {
		panic(err)
	}
	l.checkpoint = signed
}

// Answer lets a function answer requests instead, those for which it returns true.
func (l *Log) Answer(answer func(w http.ResponseWriter, r *http.Request) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = answer
}

// Served is how often each path was asked for.
func (l *Log) Served(path string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.served[path]
}

// root is the root of the tree over leaves' hashes, as RFC 6962 §2.1 defines it.
func root(hashes []tlog.Hash) tlog.Hash {
	switch len(hashes) {
	case 0:
		empty, err := tlog.TreeHash(0, nil)
		if err != nil {
			panic(err)
		}
		return empty
	case 1:
		return hashes[0]
	}
	k := 1
	for k*2 < len(hashes) {
		k *= 2
	}
	return tlog.NodeHash(root(hashes[:k]), root(hashes[k:]))
}

// ServeHTTP implements [http.Handler]. The log is under /log.
func (l *Log) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	l.served[r.URL.Path]++
	answer := l.answer
	l.mu.Unlock()
	if answer != nil && answer(w, r) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/log/")
	if !ok {
		http.NotFound(w, r)
		return
	}
	l.mu.Lock()
	data := l.resource(path)
	l.mu.Unlock()
	if data == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(data) // The client may be gone.
}

func (l *Log) resource(path string) []byte {
	switch path {
	case "checkpoint":
		return l.checkpoint
	case "key":
		return []byte(l.key + "\n")
	}
	tile, err := torchwood.ParseTilePath(path)
	if err != nil {
		return nil
	}
	from, to := int(tile.N)*torchwood.TileWidth, int(tile.N)*torchwood.TileWidth+tile.W
	if tile.L < 0 {
		if to > min(len(l.entries), int(l.size)) {
			return nil
		}
		var bundle []byte
		for _, entry := range l.entries[from:to] {
			bundle = append(binary.BigEndian.AppendUint16(bundle, uint16(len(entry))), entry...) //nolint:gosec // The tests' entries fit.
		}
		return bundle
	}
	if tile.L >= len(l.levels) || to > len(l.levels[tile.L]) {
		return nil
	}
	data := make([]byte, 0, tile.W*tlog.HashSize)
	for _, hash := range l.levels[tile.L][from:to] {
		data = append(data, hash[:]...)
	}
	return data
}

// String names the log.
func (l *Log) String() string { return fmt.Sprintf("log %s of %d leaves", l.signer.Name(), l.size) }
