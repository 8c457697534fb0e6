//go:build unix

package explore

import (
	"bytes"
	"encoding/binary"
	"regexp"
	"strings"
)

// cancelCode begins a request to cancel a statement, in the place of the protocol's version.
const cancelCode = 80877102

// unit returns how long the first whole unit is, or 0.
func unit(out []byte, started bool) int {
	if !started {
		if len(out) < 8 || len(out) < int(binary.BigEndian.Uint32(out)) {
			return 0
		}
		return int(binary.BigEndian.Uint32(out))
	}
	for n := 0; len(out) >= n+5; {
		kind := out[n]
		n += 1 + int(binary.BigEndian.Uint32(out[n+1:]))
		if len(out) < n {
			return 0
		}
		if kind == 'S' || kind == 'Q' || kind == 'X' {
			return n
		}
	}
	return 0
}

// eachMessage calls f with the type and the body of each message of a unit.
func eachMessage(u []byte, f func(kind byte, body []byte)) {
	for len(u) >= 5 {
		n := 1 + int(binary.BigEndian.Uint32(u[1:]))
		f(u[0], u[5:n])
		u = u[n:]
	}
}

// startParameters reads the parameters of a session's start.
func startParameters(u []byte) map[string]string {
	words := strings.Split(string(u[8:]), "\x00")
	out := map[string]string{}
	for i := 0; i+1 < len(words) && words[i] != ""; i += 2 {
		out[words[i]] = words[i+1]
	}
	return out
}

// cstring reads a string that ends with a zero.
func cstring(b []byte) (text string, rest []byte) {
	text, after, _ := strings.Cut(string(b), "\x00")
	return text, []byte(after)
}

// verb is how a statement begins, for people who read a trace.
var verb = regexp.MustCompile(`(?i)^\s*(?:WITH\s+(\w+)|(SELECT\s+(?:\w+\()?|INSERT\s+INTO\s+|UPDATE\s+|DELETE\s+FROM\s+|PREPARE\s+TRANSACTION|\w+\s*)(\w*))`)

func brief(sql string) string {
	m := verb.FindStringSubmatch(sql)
	if m == nil {
		return "?"
	}
	text := strings.Join(strings.Fields(strings.ToLower(m[2]+m[3])), " ")
	if m[1] != "" {
		text = "with " + m[1]
	}
	return text
}

// tell says in a few words what a unit does. statements are the prepared statements of the session, which a Parse is added to.
func tell(u []byte, statements map[string]string) string {
	var all []string
	var portal string // what the last Bind was of
	add := func(text string) {
		if len(all) == 0 || all[len(all)-1] != text {
			all = append(all, text)
		}
	}
	eachMessage(u, func(kind byte, body []byte) {
		switch kind {
		case 'Q':
			sql, _ := cstring(body)
			add(brief(sql))
		case 'P':
			name, rest := cstring(body)
			sql, _ := cstring(rest)
			statements[name] = sql
			portal = sql
		case 'D':
			if len(body) > 0 && body[0] == 'S' {
				add("describe " + brief(portal))
			}
		case 'B':
			_, rest := cstring(body)
			name, _ := cstring(rest)
			portal = statements[name]
		case 'E':
			add(brief(portal))
		case 'X':
			add("terminate")
		}
	})
	if len(all) > 4 {
		all = append(all[:3:3], "…", all[len(all)-1])
	}
	return strings.Join(all, "; ")
}

// prepares says that a unit prepares statements and executes none. Which connections of a pool have prepared what is the machine's choice.
func prepares(u []byte) bool {
	found := false
	eachMessage(u, func(kind byte, _ []byte) {
		switch kind {
		case 'P', 'D', 'S':
		default:
			found = true
		}
	})
	return !found && u[0] == 'P'
}

// pings says that a unit only asks whether the session is alive. Which connections of a pool have been idle for so long that they are asked
// is the machine's choice.
func pings(u []byte) bool {
	if u[0] != 'Q' {
		return false
	}
	sql, _ := cstring(u[5:])
	return sql == "-- ping"
}

// statementsIn are the statements that a unit executes.
func statementsIn(u []byte, statements map[string]string) (all []string) {
	portal := ""
	eachMessage(u, func(kind byte, body []byte) {
		switch kind {
		case 'Q':
			sql, _ := cstring(body)
			all = append(all, sql)
		case 'P':
			_, rest := cstring(body)
			portal, _ = cstring(rest)
		case 'B':
			_, rest := cstring(body)
			name, _ := cstring(rest)
			portal = statements[name]
		case 'E':
			all = append(all, portal)
		}
	})
	return all
}

// ownLimit is how the transactions of the libraries say for how long they wait for a lock.
var ownLimit = regexp.MustCompile(`(?i)(set local lock_timeout = )(\d+)`)

// withoutLimit takes such a limit out of a unit: the gate keeps it, by the scheduler's time.
func withoutLimit(u []byte) (without []byte, limit string) {
	if u[0] != 'Q' {
		return u, ""
	}
	sql, _ := cstring(u[5:])
	found := ownLimit.FindStringSubmatch(sql)
	if found == nil {
		return u, ""
	}
	sql = ownLimit.ReplaceAllString(sql, "${1}0")
	without = binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+5)) //nolint:gosec // It is short.
	return append(append(without, sql...), 0), found[2]
}

// withCode replaces the SQLSTATE and the text of an ErrorResponse.
func withCode(m []byte, code, text string) []byte {
	var body bytes.Buffer
	eachField(m, func(field byte, value string) {
		switch field {
		case 'C':
			value = code
		case 'M':
			value = text
		}
		body.WriteByte(field)
		body.WriteString(value)
		body.WriteByte(0)
	})
	body.WriteByte(0)
	return append(binary.BigEndian.AppendUint32([]byte{m[0]}, uint32(body.Len()+4)), body.Bytes()...) //nolint:gosec // It is short.
}
