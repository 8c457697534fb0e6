package mcp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLine is how long a line may be, in bytes.
const maxLine = 4 << 20

// Error codes of JSON-RPC 2.0, section 5.1.
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// Lines is a transport over messages that are a line each, as on standard input and output. A line that is no message is answered with an error, as
// JSON-RPC 2.0 has it. To the SDK's own transport it is the end of the session.
func Lines(in io.Reader, out io.Writer) sdk.Transport {
	answers := &answers{w: out}
	return &sdk.IOTransport{Reader: &lines{in: bufio.NewReader(in), answers: answers}, Writer: answers, MaxLineLength: 2 * maxLine}
}

// answers writes one line at a time. It closes nothing: standard output is the program's.
type answers struct {
	mu sync.Mutex
	w  io.Writer
}

func (a *answers) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.w.Write(p)
}

func (*answers) Close() error { return nil }

// lines lets the lines through that are messages.
type lines struct {
	in      *bufio.Reader
	answers io.Writer
	rest    []byte // of the line that is being read
	err     error
}

func (*lines) Close() error { return nil }

// Read implements [io.Reader].
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		var line []byte
		line, l.err = l.line()
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if code, err := wrong(line); err != nil {
			if err := refuse(l.answers, code, err); err != nil {
				return 0, err
			}
			continue
		}
		line = append(line, '\n')
		l.rest = line
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// line reads a line. Of one that is too long it returns the beginning, which is no message.
func (l *lines) line() (line []byte, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// wrong says why a line is no message, or no batch of messages.
func wrong(line []byte) (code int, err error) {
	if len(line) > maxLine {
		return codeInvalid, fmt.Errorf("a line is longer than %d bytes", maxLine)
	}
	value := jsontext.Value(line)
	if !value.IsValid() {
		return codeParse, errors.New("a line is not valid JSON")
	}
	all := []jsontext.Value{value}
	if value.Kind() == '[' {
		if err := json.Unmarshal(value, &all); err != nil || len(all) == 0 {
			return codeInvalid, errors.New("a batch has no message")
		}
	}
	for _, v := range all {
		if v.Kind() != '{' {
			return codeInvalid, errors.New("a message is no object")
		}
		if _, err := jsonrpc.DecodeMessage(v); err != nil {
			return codeInvalid, fmt.Errorf("no message of JSON-RPC 2.0: %w", err)
		}
	}
	return 0, nil
}

func refuse(w io.Writer, code int, why error) error {
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": nil, "error": map[string]any{"code": code, "message": why.Error()}}, json.Deterministic(true))
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	return err
}
