package archive_test

import (
	"compress/gzip"
	"io"
	"os"
	"testing"

	"github.com/fairlead-dev/fairlead/internal/testwait"
)

func unzip(t *testing.T, path string) io.Reader {
	t.Helper()
	file, err := os.Open(path)
	testwait.Must(t, err)
	t.Cleanup(func() { testwait.Check(t, file.Close()) })
	zip, err := gzip.NewReader(file)
	testwait.Must(t, err)
	return zip
}
