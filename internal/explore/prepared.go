//go:build unix

package explore

import (
	"bytes"
	"slices"
	"strings"
)

// Sessions keep their prepared statements from one schedule to the next: to prepare them takes longer than to run them. When a server
// prepares one again on a connection that is new to it, it gets PostgreSQL's answer of the first time.

// known returns the answer to a unit whose statements the session has prepared, or nil.
func (b *backend) known(u []byte) []byte {
	answer := b.prepared[string(u)]
	if answer == nil || b.status == 'E' {
		return nil
	}
	return append(slices.Clip(answer), b.status)
}

// forget prepares the session for a unit: of statements that another unit has prepared by the same names, and of those that the unit ends.
func (b *backend) forget(u []byte) (err error) {
	b.asked = ""
	if prepares(u) {
		b.asked = string(u)
	}
	drop := func(name string) bool {
		by, had := b.names[name]
		delete(b.prepared, by)
		delete(b.names, name)
		return had
	}
	eachMessage(u, func(kind byte, body []byte) {
		switch name, _ := cstring(body); {
		case kind == 'P' && name != "" && drop(name):
			_, err = b.query(`DEALLOCATE "` + name + `"`)
		case kind == 'C' && name != "" && name[0] == 'S':
			drop(name[1:])
		case kind == 'Q' && strings.Contains(strings.ToLower(name), "deallocate"), kind == 'P' && name == "":
			b.asked = ""
		}
	})
	return err
}

// note notes PostgreSQL's answer to the unit that is under way.
func (b *backend) note(answer []byte) {
	b.status = answer[len(answer)-1]
	if b.asked == "" {
		return
	}
	failed := false
	eachMessage(answer, func(kind byte, _ []byte) { failed = failed || kind == 'E' })
	if failed { // Some of them may be there.
		b.stale = true
	} else {
		b.prepared[b.asked] = bytes.Clone(answer[:len(answer)-1])
		eachMessage([]byte(b.asked), func(kind byte, body []byte) {
			if name, _ := cstring(body); kind == 'P' {
				b.names[name] = b.asked
			}
		})
	}
	b.asked = ""
}
