#!/usr/bin/env bash
# Builds what a release consists of into dist/: static binaries for Linux and
# macOS, an archive each with licence and README, a bill of materials each, and
# the checksums of all that. The same commit and Go make the same bytes. It needs jq.
#
#   scripts/release.sh v1.2.3
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: scripts/release.sh VERSION}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || { echo "release: $version is no version like v1.2.3" >&2; exit 1; }
[ -z "$(git status --porcelain)" ] || { echo "release: there are changes that are not committed" >&2; exit 1; }
export CGO_ENABLED=0 SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
rm -rf dist && mkdir -p dist
for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
	name=fairlead-$version-${target/\//-}
	mkdir "dist/$name"
	GOOS=${target%/*} GOARCH=${target#*/} go build -trimpath -ldflags='-s -w' -o "dist/$name/fairlead" ./cmd/fairlead
	cp LICENSE README.md "dist/$name/"
	[[ $target != linux/* ]] || cp deploy/fairlead.service deploy/fairlead.env.example "dist/$name/"
	go version -m -json "dist/$name/fairlead" | jq -f scripts/sbom.jq >"dist/$name.cdx.json"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C dist -cf - "$name" | gzip -n9 >"dist/$name.tar.gz"
	rm -r "dist/$name"
	echo "release: $name"
done
(cd dist && sha256sum ./*.tar.gz ./*.cdx.json >SHA256SUMS)
echo "release: dist/SHA256SUMS"
