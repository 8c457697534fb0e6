package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// TestImage makes an image twice, and reads one of them back.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	var platforms []string
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		path := filepath.Join(dir, filepath.Base(platform))
		must(t, os.WriteFile(path, []byte("the binary for "+platform), 0o600))
		platforms = append(platforms, platform+"="+path)
	}
	o := options{version: "v1.2.3", revision: "abc", at: time.Unix(1_700_000_000, 0).UTC()}
	first, second := filepath.Join(dir, "first.tar"), filepath.Join(dir, "second.tar")
	must(t, run(first, o, platforms))
	must(t, run(second, o, platforms))
	a, err := os.ReadFile(first)
	must(t, err)
	b, err := os.ReadFile(second)
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Fatal("two images of the same binaries differ")
	}

	unpacked := filepath.Join(dir, "layout")
	for r := tar.NewReader(bytes.NewReader(a)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		path := filepath.Join(unpacked, h.Name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		content, err := io.ReadAll(r)
		must(t, err)
		must(t, os.WriteFile(path, content, 0o600))
	}
	outer, err := layout.ImageIndexFromPath(unpacked)
	must(t, err)
	manifest, err := outer.IndexManifest()
	must(t, err)
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Fatalf("%+v", manifest)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	must(t, err)
	must(t, validate.Index(index))
	list, err := index.IndexManifest()
	must(t, err)
	if len(list.Manifests) != 2 {
		t.Fatalf("%+v", list)
	}
	for i, want := range []string{"linux/amd64", "linux/arm64"} {
		image, err := index.Image(list.Manifests[i].Digest)
		must(t, err)
		config, err := image.ConfigFile()
		must(t, err)
		if config.OS+"/"+config.Architecture != want || list.Manifests[i].Platform.String() != want ||
			config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" || config.Config.User != "65532" {
			t.Errorf("%s: %+v", want, config)
		}
		if got := content(t, image, "usr/local/bin/fairlead"); got != "the binary for "+want {
			t.Errorf("%s has %q", want, got)
		}
	}
}

// content is what a file of an image has.
func content(t *testing.T, image v1.Image, name string) string {
	t.Helper()
	layers, err := image.Layers()
	must(t, err)
	reader, err := layers[0].Uncompressed()
	must(t, err)
	defer func() { must(t, reader.Close()) }()
	for r := tar.NewReader(reader); ; {
		h, err := r.Next()
		must(t, err)
		if h.Name == name {
			if h.Mode != 0o755 || h.Uid != 0 {
				t.Errorf("%+v", h)
			}
			all, err := io.ReadAll(r)
			must(t, err)
			return string(all)
		}
	}
}

func TestBadArguments(t *testing.T) {
	o := options{version: "v1.2.3"}
	for _, platforms := range [][]string{nil, {"linux/amd64"}, {"linux/amd64=" + filepath.Join(t.TempDir(), "absent")}} {
		if err := run(filepath.Join(t.TempDir(), "out.tar"), o, platforms); err == nil {
			t.Errorf("%v: no error", platforms)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
