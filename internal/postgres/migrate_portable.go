package postgres

import (
	"context"
	"errors"
	"io/fs"
	"regexp"
	"strings"
	"sync"

	"github.com/fairlead-dev/fairlead/internal/pgkit"
)

// portable are the steps for the engine of a database. What a step has that the engine lacks is left out: unique constraints are then
// checked row by row, which those who write expect, columns keep the compression that they have by default, and the key of an auction has no
// chapter. The engine is probed when
// the first step is read.
func portable(ctx context.Context, url string, files fs.FS) fs.FS {
	return &portableSteps{files, sync.OnceValues(func() (found pgkit.Capabilities, err error) {
		conn, err := connect(ctx, url)
		if err != nil {
			return found, err
		}
		found, err = pgkit.Probe(ctx, conn, pgkit.Functions, pgkit.Deferrable, pgkit.RowVersions)
		return found, errors.Join(err, conn.Close(ctx))
	})}
}

type portableSteps struct {
	fs.FS

	engine func() (pgkit.Capabilities, error)
}

// Open implements [fs.FS].
func (p *portableSteps) Open(name string) (fs.File, error) {
	file, err := p.FS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".sql") {
		return file, err
	}
	text, err := fs.ReadFile(p.FS, name)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	engine, err := p.engine()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &portableStep{file, strings.NewReader(without(string(text), engine))}, nil
}

// versioned begins what is only for engines whose rows have versions.
const versioned = "-- Only where rows have versions.\n"

// block is one that PL/pgSQL executes.
var block = regexp.MustCompile(`(?s)-- \+goose StatementBegin\nDO .*?-- \+goose StatementEnd\n`)

// without leaves out of a step what an engine lacks.
func without(step string, engine pgkit.Capabilities) string {
	if !engine.Has(pgkit.Deferrable) {
		step = strings.ReplaceAll(step, " DEFERRABLE INITIALLY IMMEDIATE", "")
	}
	if at := strings.Index(step, versioned); at >= 0 && !engine.Has(pgkit.RowVersions) {
		step = step[:at]
	}
	if !engine.Has(pgkit.Functions) {
		step = block.ReplaceAllString(step, "")
	}
	return step
}

// portableStep is a step's file with another text.
type portableStep struct {
	fs.File

	text *strings.Reader
}

// Read implements [fs.File].
func (s *portableStep) Read(p []byte) (int, error) { return s.text.Read(p) }
