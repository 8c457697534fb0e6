package archive

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/fairlead-dev/fairlead/internal/postgres/partitions"
)

// File is a file of an archive: the rows of one partition as CSV (RFC 4180) with a line of column names, as PostgreSQL's COPY writes it, compressed by gzip.
type File struct {
	Table     string `json:"table"`
	Partition string `json:"partition"` // that it was made of
	Name      string `json:"name"`      // in the archive's directory
	Rows      int64  `json:"rows"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"` // of the compressed file, in hexadecimal
	// Upto is the first campaign whose purchases are not in it, or in a file before it. Other tables have none.
	Upto uuid.UUID `json:"upto,omitzero"`
}

// Manifest is what the file manifest.json of an archive says.
type Manifest struct {
	Archive int       `json:"archive"` // its number, from 1
	From    time.Time `json:"from"`    // of the oldest rows; 0001-01-01 in the first archive
	To      time.Time `json:"to"`      // of the first rows that are not in it
	Files   []File    `json:"files"`
}

const manifestName = "manifest.json"

// writer writes a file of an archive. Nothing has the file's name before all of it is on the disk.
type writer struct {
	path string
	file *os.File
	sum  hash.Hash
	zip  *gzip.Writer
}

func create(path string) (*writer, error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp")
	if err != nil {
		return nil, err
	}
	w := &writer{path: path, file: file, sum: sha256.New()}
	w.zip = gzip.NewWriter(io.MultiWriter(file, w.sum))
	return w, nil
}

// Write implements [io.Writer].
func (w *writer) Write(p []byte) (int, error) { return w.zip.Write(p) }

// finish gives the file its name, and returns its length and its hash.
func (w *writer) finish() (length int64, sum string, err error) {
	if err := errors.Join(w.zip.Close(), w.file.Sync()); err != nil {
		return 0, "", errors.Join(err, w.abandon())
	}
	if length, err = w.file.Seek(0, io.SeekCurrent); err != nil {
		return 0, "", errors.Join(err, w.abandon())
	}
	if err := errors.Join(w.file.Close(), os.Rename(w.file.Name(), w.path), syncDirectory(filepath.Dir(w.path))); err != nil {
		return 0, "", errors.Join(err, os.Remove(w.file.Name()))
	}
	return length, hex.EncodeToString(w.sum.Sum(nil)), nil
}

func (w *writer) abandon() error { return errors.Join(w.file.Close(), os.Remove(w.file.Name())) }

// syncDirectory has the names in a directory be on the disk.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// manifest is what the manifest of an archive says.
func (r *record) manifest() Manifest {
	return Manifest{r.Number, timeOf(r.From), partitions.Time(r.Upto), r.Files}
}

// checkManifest returns a [Damaged] error, or the file system's, where the manifest in an archive's directory is not its own.
func (r *record) checkManifest(directory string) error {
	path := filepath.Join(directory, manifestName)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var there Manifest
	if err := json.Unmarshal(text, &there); err != nil {
		return &Damaged{path, err.Error()}
	}
	want, err := json.Marshal(r.manifest())
	if err != nil {
		return err
	}
	if got, err := json.Marshal(there); err != nil || !bytes.Equal(got, want) {
		return &Damaged{path, fmt.Sprintf("it says %.300s, and of this archive is known %.300s", got, want)}
	}
	return nil
}

// writeManifest writes the manifest into an archive's directory.
func writeManifest(directory string, m Manifest) error {
	text, err := json.Marshal(m, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	path := filepath.Join(directory, manifestName)
	file, err := os.CreateTemp(directory, manifestName+".*.tmp")
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	return errors.Join(err, file.Sync(), file.Close(), os.Rename(file.Name(), path), syncDirectory(directory))
}

// Damaged is returned for a file of an archive that is not what was written.
type Damaged struct{ Path, Why string }

func (e *Damaged) Error() string { return fmt.Sprintf("%s is damaged: %s", e.Path, e.Why) }

// askedError is the database's when it was asked about a row: the file is not damaged by it.
type askedError struct{ error }

// read reads a file, gives each row to a function, as the columns that it asks for, and compares the file with what it was when it was written. pace is
// called after each row.
func (f File) read(ctx context.Context, directory string, columns []string, pace func() error, each func(row []string) error) (err error) {
	path := filepath.Join(directory, f.Name)
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	sum := sha256.New()
	zip, err := gzip.NewReader(io.TeeReader(file, sum))
	if err != nil {
		return &Damaged{path, err.Error()}
	}
	lines := csv.NewReader(zip)
	lines.ReuseRecord = true
	var places []int
	rows := int64(-1) // The first line has the names.
	for ; ; rows++ {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return errors.Join(ctx.Err(), &Damaged{path, err.Error()})
		}
		if rows < 0 {
			if places, err = find(columns, line); err != nil {
				return &Damaged{path, err.Error()}
			}
			continue
		}
		row := make([]string, len(places))
		for i, place := range places {
			row[i] = line[place]
		}
		err = each(row)
		if asked, is := errors.AsType[*askedError](err); is {
			return asked.error
		}
		if err != nil {
			return &Damaged{path, fmt.Sprintf("row %d: %v", rows+1, err)}
		}
		if err := pace(); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, io.TeeReader(file, sum)); err != nil {
		return err
	}
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case got != f.SHA256:
		return &Damaged{path, fmt.Sprintf("its SHA-256 is %s, and was %s", got, f.SHA256)}
	case max(rows, 0) != f.Rows:
		return &Damaged{path, fmt.Sprintf("it has %d rows, and had %d", rows, f.Rows)}
	}
	return nil
}

// find returns the places of columns in a line of names.
func find(columns, names []string) ([]int, error) {
	places := make([]int, len(columns))
	for i, column := range columns {
		if places[i] = slices.Index(names, column); places[i] < 0 {
			return nil, fmt.Errorf("it has no column %q", column)
		}
	}
	return places, nil
}
