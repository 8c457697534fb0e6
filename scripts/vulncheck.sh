#!/bin/sh
# Looks for known vulnerabilities in what the module calls, with a pinned
# govulncheck, which is built once into .tools/ and is no dependency of the
# module. Without the database, or without a way to build govulncheck, nothing
# is checked: the script says so on stderr and succeeds, so that work without a
# network goes on. With the database, a finding fails.
#
#   GOVULNDB=https://mirror.example scripts/vulncheck.sh    another database
#   VULNCHECK=required scripts/vulncheck.sh                 a skip fails, too
set -eu

cd "$(dirname "$0")/.."
version=v1.9.0
tool=$PWD/.tools/govulncheck-$version/govulncheck
database=${GOVULNDB:-https://vuln.go.dev}

skip() {
	echo "vulncheck: SKIPPED: $*" >&2
	echo 'vulncheck: SKIPPED: known vulnerabilities were NOT looked for' >&2
	[ "${VULNCHECK:-}" != required ]
	exit
}

case $database in
file://*) [ -r "${database#file://}/index/db.json" ] || skip "there is no database in $database" ;;
*) curl -fsS --max-time 10 -o /dev/null "$database/index/db.json" || skip "$database cannot be reached" ;;
esac
if [ ! -x "$tool" ]; then
	echo "vulncheck: building govulncheck $version into .tools/ ..."
	GOBIN=${tool%/*} GOFLAGS='' go install "golang.org/x/vuln/cmd/govulncheck@$version" || skip 'govulncheck could not be built'
fi
"$tool" -db "$database" "$@" ./...
