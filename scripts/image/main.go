// Image makes a container image of Fairlead's static binaries, without a container engine: an OCI image layout in one tar, which
// `docker load`, `podman load` and `skopeo copy oci-archive:…` read. The same arguments and binaries make the same bytes.
//
//	image --out FILE --version v1.2.3 --revision COMMIT --at SECONDS linux/amd64=PATH linux/arm64=PATH
//
// Each platform has the binary, a user without a name's privileges, and empty /data and /tmp; no shell and no libraries.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is what distroless calls nonroot.
const user = 65532

// name is what an engine calls the image after it has loaded it.
const name = "fairlead"

type options struct {
	version, revision string
	at                time.Time
}

func main() {
	var (
		o   options
		out = flag.String("out", "", "the file to write")
		at  = flag.Int64("at", 0, "the time of all files, in seconds since 1970")
	)
	flag.StringVar(&o.version, "version", "", "the release, such as v1.2.3")
	flag.StringVar(&o.revision, "revision", "", "the commit")
	flag.Parse()
	o.at = time.Unix(*at, 0).UTC()
	if err := run(*out, o, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(out string, o options, platforms []string) (err error) {
	if out == "" || o.version == "" || len(platforms) == 0 {
		return errors.New("--out, --version and at least one PLATFORM=PATH are needed")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		platform, path, ok := strings.Cut(p, "=")
		if !ok {
			return fmt.Errorf("%q is no PLATFORM=PATH", p)
		}
		image, on, err := build(o, platform, path)
		if err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: on}})
	}
	dir, err := os.MkdirTemp("", "image")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := at.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": o.version, "io.containerd.image.name": name + ":" + o.version,
	})); err != nil {
		return err
	}
	return pack(out, dir, o.at)
}

// build makes the image of one platform.
func build(o options, platform, binary string) (v1.Image, *v1.Platform, error) {
	on, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, nil, err
	}
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, nil, err
	}
	files, err := files(o.at, content)
	if err != nil {
		return nil, nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, nil, err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: o.at}, CreatedBy: "fairlead " + o.version},
	})
	if err != nil {
		return nil, nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant, config.Created = on.OS, on.Architecture, on.Variant, v1.Time{Time: o.at}
	config.Config = v1.Config{
		User: fmt.Sprint(user), WorkingDir: "/", Env: []string{"PATH=/usr/local/bin"},
		Entrypoint: []string{"fairlead"}, Cmd: []string{"serve", "--listen", "0.0.0.0:8080", "--data", "/data", "--log-format", "json"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, StopSignal: "SIGTERM",
		Labels: map[string]string{
			"org.opencontainers.image.title": name, "org.opencontainers.image.version": o.version,
			"org.opencontainers.image.revision": o.revision, "org.opencontainers.image.created": o.at.Format(time.RFC3339),
		},
	}
	image, err = mutate.ConfigFile(image, config)
	return image, on, err
}

// files is the file system, as a tar.
func files(at time.Time, binary []byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(path string, kind byte, mode int64, owner int, content []byte) error {
		err := w.WriteHeader(&tar.Header{
			Name: path, Typeflag: kind, Mode: mode, Uid: owner, Gid: owner, Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX,
		})
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	}
	account := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%d:%[1]d:nonroot:/data:/sbin/nologin\n", user)
	group := fmt.Sprintf("root:x:0:\nnonroot:x:%d:\n", user)
	err := errors.Join(
		add("data/", tar.TypeDir, 0o700, user, nil),
		add("etc/", tar.TypeDir, 0o755, 0, nil),
		add("etc/group", tar.TypeReg, 0o644, 0, []byte(group)),
		add("etc/passwd", tar.TypeReg, 0o644, 0, []byte(account)),
		add("tmp/", tar.TypeDir, 0o1777, 0, nil),
		add("usr/", tar.TypeDir, 0o755, 0, nil),
		add("usr/local/", tar.TypeDir, 0o755, 0, nil),
		add("usr/local/bin/", tar.TypeDir, 0o755, 0, nil),
		add("usr/local/bin/fairlead", tar.TypeReg, 0o755, 0, binary),
		w.Close(),
	)
	return out.Bytes(), err
}

// pack writes the files of a directory into one tar, in the order of their names.
func pack(out, dir string, at time.Time) (err error) {
	var paths []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	}); err != nil {
		return err
	}
	slices.Sort(paths)
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := tar.NewWriter(file)
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		short, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{
			Name: filepath.ToSlash(short), Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: at, Format: tar.FormatPAX,
		}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}
