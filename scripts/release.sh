#!/usr/bin/env bash
# Builds what a release consists of into dist/: static binaries for Linux and
# macOS, an archive each with licence and README, a bill of materials each, a
# container image for Linux, and the checksums of all that. The same commit and
# Go make the same bytes. It needs jq.
#
#   scripts/release.sh v1.2.3            builds the last commit as v1.2.3
#   scripts/release.sh v1.2.3 --check    and once more, elsewhere and with an
#                                        empty cache: the bytes must be the same
#
# It builds in a clone where the commit has the tag, which is how the binary knows
# its version; the tag of this repository is yours to make.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.tools/go/bin:$PATH
die() {
	echo "release: $*" >&2
	exit 1
}
version=${1:?usage: scripts/release.sh VERSION [--check]}
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]] || die "$version is no version like v1.2.3"
[ -z "$(git status --porcelain)" ] || die "there are changes that are not committed"
grep -q "^## \[${version#v}\]" CHANGELOG.md || die "CHANGELOG.md has no section [${version#v}]"
if tagged=$(git rev-parse --verify --quiet "refs/tags/$version^{commit}"); then
	[ "$tagged" = "$(git rev-parse HEAD)" ] || die "the tag $version is on another commit"
fi
command -v jq >/dev/null || die "jq is missing"

export CGO_ENABLED=0 GOFLAGS=-trimpath
at=$(git log -1 --format=%ct)
commit=$(git rev-parse HEAD)
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT

# build SOURCE OUT: builds everything in a new clone at SOURCE.
build() {
	local source=$1 out=$2 target name
	local -a images=()
	git clone --quiet --shared . "$source"
	git -C "$source" checkout --quiet "$commit"
	git -C "$source" -c user.name=release -c user.email=release@localhost tag --force "$version" >/dev/null
	rm -rf "$out" && mkdir -p "$out"
	for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do
		name=fairlead-$version-${target/\//-}
		mkdir "$out/$name"
		(cd "$source" && GOOS=${target%/*} GOARCH=${target#*/} go build -ldflags='-s -w' -o "$out/$name/fairlead" ./cmd/fairlead)
		cp "$source/LICENSE" "$source/README.md" "$source/CHANGELOG.md" "$out/$name/"
		if [[ $target == linux/* ]]; then
			cp "$source/deploy/fairlead.service" "$source/deploy/fairlead.env.example" "$out/$name/"
			cp "$out/$name/fairlead" "$source-${target#*/}" # Not into the clone, whose state the next binary is told.
			images+=("$target=$source-${target#*/}")
		fi
		go version -m -json "$out/$name/fairlead" | jq -f "$source/scripts/sbom.jq" >"$out/$name.cdx.json"
		[ "$(jq -r .metadata.component.version "$out/$name.cdx.json")" = "$version" ] || die "the binary of $target says another version"
		tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$at" -C "$out" -cf - "$name" | gzip -n9 >"$out/$name.tar.gz"
		rm -r "${out:?}/$name"
		echo "release: $name"
	done
	(cd "$source/scripts/image" && go run . --out "$out/fairlead-$version-image.tar" --version "$version" --revision "$commit" --at "$at" "${images[@]}")
	echo "release: fairlead-$version-image"
	(cd "$out" && sha256sum ./*.tar.gz ./*.tar ./*.cdx.json >SHA256SUMS)
}

build "$work/first" "$PWD/dist"
if [ "${2:-}" = --check ]; then
	GOCACHE=$work/cache build "$work/elsewhere/second" "$work/again"
	diff dist/SHA256SUMS "$work/again/SHA256SUMS" || die "a second build differs"
	echo "release: built twice, the bytes are the same"
fi
echo "release: dist/SHA256SUMS"
