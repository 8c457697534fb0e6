#!/bin/sh
# Runs the tests that use PgBouncer on the newest one that Debian has.
#
#   scripts/pgbouncer.sh [SUITE]   SUITE is of Debian's, such as trixie; default: sid
#
# The program and its libraries come from Debian's packages, whose signatures apt
# checks, and stay in .tools/. Nothing is installed. Needs Debian on x86-64.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.tools/go/bin:$PATH
suite=${1:-sid}
at=$PWD/.tools/pgbouncer-$suite

if [ ! -x "$at/pgbouncer" ]; then
	echo "pgbouncer: downloading PgBouncer of Debian $suite into .tools/"
	mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' 'Component: main' | grep -v security | head -n 1)
	[ -n "$mirror" ] || { echo "pgbouncer: apt knows no mirror of Debian here (apt-get update?)" >&2; exit 1; }
	rm -rf "$at" "$at.new"
	mkdir -p "$at.new/lists/partial" "$at.new/cache/archives/partial" "$at.new/sources" "$at.new/root"
	: >"$at.new/status"
	cat >"$at.new/sources/debian.sources" <<-SOURCES
		Types: deb
		URIs: $mirror
		Suites: $suite
		Components: main
		Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
	SOURCES
	# An apt of its own, beside the system's. A mirror that is some weeks old will do.
	cat >"$at.new/apt.conf" <<-CONF
		Dir::State "$at.new"; Dir::State::status "$at.new/status"; Dir::Cache "$at.new/cache";
		Dir::Etc::sourcelist "/dev/null"; Dir::Etc::sourceparts "$at.new/sources";
		Dir::Etc::parts "/dev/null"; Dir::Etc::preferencesparts "/dev/null";
		APT::Sandbox::User "root"; APT::Get::Assume-Yes "true"; Acquire::Languages "none"; Acquire::Check-Valid-Until "false";
	CONF
	(
		export APT_CONFIG="$at.new/apt.conf"
		apt-get update -qq
		# The libraries that it is linked with, and theirs; not the scripts of Debian's packages and what they need.
		direct=$(apt-cache depends --important pgbouncer | awk '$2 ~ /^lib/ { print $2 }')
		# shellcheck disable=SC2086 # Several names.
		all=$(apt-cache depends --recurse --important $direct | grep '^lib')
		cd "$at.new/cache"
		# shellcheck disable=SC2086 # Several names.
		apt-get download -qq pgbouncer $all
		for package in *.deb; do dpkg-deb -x "$package" "$at.new/root"; done
	)
	cat >"$at.new/pgbouncer" <<-RUN
		#!/bin/sh
		# Its libraries are newer than the system's.
		root=\$(dirname "\$0")/root
		exec "\$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "\$root/usr/lib/x86_64-linux-gnu" "\$root/usr/sbin/pgbouncer" "\$@"
	RUN
	chmod -R a+rX "$at.new" # PgBouncer may run as another user.
	chmod a+x "$at.new/pgbouncer"
	rm -rf "$at.new/lists" "$at.new/cache"
	mv "$at.new" "$at"
fi
"$at/pgbouncer" --version | head -n 1
# shellcheck disable=SC2086 # Several words.
FAIRLEAD_PGBOUNCER=$at/pgbouncer go test -count=1 ${ARGS:-} -run 'PgBouncer|Pooler|SharedConnections|TooFewConnections|SettingsOfEachConnection|ThroughSessions|GivenDatabase|BehindAPooler' \
	./internal/sim ./internal/postgres ./cmd/fairlead ./internal/demo ./lock/pglock
