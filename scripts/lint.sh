#!/bin/sh
# Everything that is checked without running the program. golangci-lint is built
# once, by its pinned version, into .tools/ (two or three minutes); it is no
# dependency of the module. With --install that is all that is done.
set -eu

cd "$(dirname "$0")/.."
version=v2.15.0
lint=$PWD/.tools/golangci-lint-$version/golangci-lint

if [ "$(golangci-lint version --short 2>/dev/null || :)" = "${version#v}" ]; then
	lint=golangci-lint
elif [ ! -x "$lint" ]; then
	echo "lint: building golangci-lint $version into .tools/ ..."
	GOBIN=${lint%/*} GOFLAGS= GOGC=400 go install "github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$version"
fi
[ "${1:-}" != --install ] || exit 0

status=0
step() {
	printf 'lint: %s\n' "$*"
	"$@" || status=1
}
step go mod tidy -diff
step "$lint" fmt --diff
step "$lint" run
step scripts/vulncheck.sh
step go -C scripts/image test ./... # A module of its own, for releases alone.
step sh -n scripts/setup.sh
step bash -n scripts/release.sh
! command -v helm >/dev/null || step helm lint deploy/helm/fairlead --strict --set existingSecret=fairlead
step promtool test rules docs/operations/alerts_test.yaml
exit $status
