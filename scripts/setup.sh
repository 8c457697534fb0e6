#!/bin/sh
# Installs what is missing to run or to test Fairlead; does nothing, and quickly,
# when nothing is.
#
#   scripts/setup.sh run     Go and PostgreSQL's server programs
#   scripts/setup.sh test    the same, a C compiler (the race detector needs
#                            one), Redis, etcd, PgBouncer, Chromium, Node.js with
#                            npm, Python, curl, and axe-core from npm
#   scripts/setup.sh lint    Go, and promtool for the alert rules
#   scripts/setup.sh topology    what run needs, HAProxy and nginx
#   scripts/setup.sh torture what test needs, and libfaketime
#   scripts/setup.sh faults  what run needs, Prometheus, psql and curl
#   scripts/setup.sh specs    Spin and a C compiler
#   scripts/setup.sh failover    what run needs, Patroni, etcd, psql and a C compiler
#
# On Debian and Ubuntu it installs packages with apt-get, as root or by sudo. It
# starts no services and leaves none enabled: Fairlead starts a PostgreSQL of
# its own, and the tests start their servers themselves. Elsewhere it says what
# to install. A Go that is missing or too old is put into .tools/ of this
# directory; the system's own stays as it is.
set -eu

here=$(cd "$(dirname "$0")/.." && pwd)
mode=${1:-run}
go_dir=$here/.tools/go
go_url=${FAIRLEAD_GO_URL:-https://dl.google.com/go}
wanted_go=$(awk '$1 == "go" { print $2; exit }' "$here/go.mod")
PATH=$go_dir/bin:$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'setup: %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$*" >&2
	exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# have_postgres looks where the server does, see internal/localpg.
have_postgres() {
	if [ -n "${FAIRLEAD_PG_BIN:-}" ]; then
		[ -x "$FAIRLEAD_PG_BIN/postgres" ] && [ -x "$FAIRLEAD_PG_BIN/initdb" ]
		return
	fi
	have postgres && have initdb && return
	for program in /usr/lib/postgresql*/bin/initdb /usr/lib/postgresql/*/bin/initdb /usr/pgsql-*/bin/initdb \
		/usr/libexec/postgresql*/initdb /usr/local/pgsql/bin/initdb \
		/opt/homebrew/opt/postgresql@*/bin/initdb /usr/local/opt/postgresql@*/bin/initdb \
		/opt/local/lib/postgresql*/bin/initdb /Applications/Postgres.app/Contents/Versions/*/bin/initdb; do
		[ -x "$program" ] && return
	done
	return 1
}

# at_least says whether version $1 is $2 or newer; both like 1.26.8.
at_least() {
	[ "$1" = "$2" ] || [ "$(printf '%s\n%s\n' "$1" "$2" | sort -t. -k1,1n -k2,2n -k3,3n | head -n1)" = "$2" ]
}

# have_go asks inside the module, where a Go of 1.21 or newer fetches the
# version that go.mod wants by itself.
have_go() {
	have go || return 1
	version=$(cd "$here" && go version 2>/dev/null | awk '{ print $3 }') || return 1
	version=${version#go}
	[ -n "$version" ] && at_least "${version%%[-a-z]*}" "$wanted_go"
}

install_go() {
	case $(uname -m) in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	*) die "install Go $wanted_go or newer from https://go.dev/dl/ (there is no ready one for $(uname -m) that this script knows)" ;;
	esac
	[ "$(uname -s)" = Linux ] || die "install Go $wanted_go or newer: brew install go, or https://go.dev/dl/"
	archive=go$wanted_go.linux-$arch.tar.gz
	if have go; then
		say "Go here is too old ($(go version 2>/dev/null | awk '{ print $3 }')); go.mod asks for $wanted_go, newer than what apt has."
	else
		say "There is no Go here; go.mod asks for $wanted_go, newer than what apt has."
	fi
	say "Downloading $go_url/$archive into .tools/go (nothing outside this directory changes) ..."
	tmp=$here/.tools/download
	rm -rf "$tmp" && mkdir -p "$tmp"
	if ! curl -fsSL --retry 3 -o "$tmp/$archive" "$go_url/$archive" ||
		! curl -fsSL --retry 3 -o "$tmp/sum" "$go_url/$archive.sha256"; then
		rm -rf "$tmp"
		die "the download failed. Install Go $wanted_go or newer yourself, see https://go.dev/doc/install, and try again."
	fi
	if ! printf '%s  %s\n' "$(cut -c1-64 "$tmp/sum")" "$tmp/$archive" | sha256sum -c - >/dev/null; then
		rm -rf "$tmp"
		die "$archive doesn't have the checksum that its publisher gives: not installed."
	fi
	tar -C "$tmp" -xzf "$tmp/$archive"
	rm -rf "$go_dir" && mv "$tmp/go" "$go_dir" && rm -rf "$tmp"
	hash -r
	have_go || die "the Go in .tools/go doesn't run."
	say "Go $wanted_go is in .tools/go."
}

# install_packages installs Debian packages without letting their services start.
install_packages() {
	if [ "$(id -u)" = 0 ]; then
		sudo=
	elif have sudo; then
		sudo=sudo
	else
		die "these packages are missing: $*. Run this as root, or install sudo."
	fi
	say "Installing with apt-get: $*"
	say "No service is started or enabled by that, and no PostgreSQL cluster is made."
	$sudo apt-get update -qq

	# Debian's packages start their services unless policy-rc.d says no; one that
	# is there already has its owner's reasons.
	policy=/usr/sbin/policy-rc.d
	ours=
	if [ ! -e $policy ]; then
		printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
		$sudo chmod 755 $policy
		ours=$policy
	fi
	# postgresql makes and enables a cluster when it is installed, unless told not
	# to. The file is removed again, so that later installations do as they always do.
	no_cluster=/etc/postgresql-common/createcluster.d/fairlead-setup.conf
	case " $* " in
	*" postgresql "*)
		$sudo mkdir -p "${no_cluster%/*}"
		echo 'create_main_cluster = false' | $sudo tee $no_cluster >/dev/null
		ours="$ours $no_cluster"
		;;
	esac
	# shellcheck disable=SC2064 # The names are meant to be expanded now.
	trap "$sudo rm -f $ours" EXIT
	trap 'exit 130' INT TERM

	$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
		die "apt-get couldn't install: $*"
	if have systemctl; then
		for package; do
			case $package in
			redis-server) $sudo systemctl disable -q redis-server 2>/dev/null || : ;;
			etcd-server | etcd) $sudo systemctl disable -q etcd 2>/dev/null || : ;;
			pgbouncer) $sudo systemctl disable -q pgbouncer 2>/dev/null || : ;;
			prometheus) $sudo systemctl disable -q prometheus 2>/dev/null || : ;;
			haproxy) $sudo systemctl disable -q haproxy 2>/dev/null || : ;;
			nginx-light) $sudo systemctl disable -q nginx 2>/dev/null || : ;;
			patroni) $sudo systemctl disable -q patroni 2>/dev/null || : ;;
			esac
		done
	fi
	# shellcheck disable=SC2086 # Several names.
	$sudo rm -f $ours
	trap - EXIT
	say "Installed: $*"
}

missing=
brew=
other=
need() { # need NAME-FOR-HUMANS DEBIAN-PACKAGE HOMEBREW-FORMULA
	other="$other${other:+, }$1"
	missing="$missing $2"
	brew="$brew $3"
}

# need_curl asks for it once, and for what it checks servers with.
need_curl() {
	case $missing in *" curl "*) return ;; esac
	have curl || need curl "curl ca-certificates" curl
}

case $mode in
run | test | lint | topology | torture | faults | failover | specs) ;;
*) die "usage: scripts/setup.sh run|test|lint|topology|torture|faults|failover|specs" ;;
esac

if [ "$mode" != lint ] && [ "$mode" != specs ]; then
	have_postgres || need "PostgreSQL 14 or newer (server)" postgresql postgresql@17
fi
if [ "$mode" = test ] || [ "$mode" = torture ]; then
	have redis-server || need "Redis (server)" redis-server redis
	have chromium || have chromium-browser || have google-chrome || need Chromium chromium "--cask chromium"
	have etcd || need "etcd 3.4 or newer" etcd-server etcd
	have pgbouncer || need PgBouncer pgbouncer pgbouncer
	have promtool || need promtool prometheus prometheus
	have cc || have gcc || have clang || need "a C compiler" "gcc libc6-dev" gcc
	have python3 || need "Python 3.10 or newer" python3 python@3.13
	{ have node && have npm; } || need "Node.js 20 or newer with npm" "nodejs npm" node
	need_curl
fi
if [ "$mode" = lint ]; then
	have promtool || need promtool prometheus prometheus
fi
if [ "$mode" = specs ]; then
	have spin || need Spin spin spin
	{ have gcc && have cc; } || need "a C compiler" "gcc libc6-dev" gcc # Spin runs gcc's preprocessor.
fi
if [ "$mode" = faults ]; then
	have prometheus || need Prometheus prometheus prometheus
	have psql || need psql postgresql-client libpq
	need_curl
fi
if [ "$mode" = failover ]; then
	have patroni || need "Patroni 3 or newer" "patroni python3-etcd" patroni
	have etcd || need "etcd 3.4 or newer" etcd-server etcd
	have psql || need psql postgresql-client libpq
	have cc || have gcc || have clang || need "a C compiler" "gcc libc6-dev" gcc
fi
if [ "$mode" = torture ] && have apt-get; then # Where there is none, the tests that need it are skipped.
	set -- /usr/lib/*/faketime/libfaketime.so.1
	[ -e "$1" ] || need libfaketime libfaketime libfaketime
fi
if [ "$mode" = topology ]; then
	have haproxy || need HAProxy haproxy haproxy
	have nginx || need nginx nginx-light nginx
fi
go_missing=
if [ "$mode" != specs ] && ! have_go; then
	go_missing=yes
	[ "$(uname -s)" != Linux ] || need_curl
fi

if [ -n "$missing" ]; then
	if [ "$(uname -s)" = Darwin ]; then
		[ -z "$go_missing" ] || brew="$brew go"
		die "missing: $other. Install with: brew install$brew"
	elif have apt-get; then
		# Before Debian 12 and Ubuntu 23.04 the package was called etcd.
		case $missing in
		*etcd-server*) apt-cache show etcd-server >/dev/null 2>&1 || ! apt-cache show etcd >/dev/null 2>&1 ||
			missing=$(echo "$missing" | sed 's/etcd-server/etcd/') ;;
		esac
		# shellcheck disable=SC2086 # Several names.
		install_packages $missing
	else
		die "missing: $other. Install them with your system's package manager."
	fi
fi
[ -z "$go_missing" ] || install_go

# axe-core looks at the console's pages (cmd/fairlead/console_axe_test.go).
axe=axe-core-4.14.1
axe_sum=e6b0ce02b84d892e2e33e403485e7f3d6c29e2be6df65daf44d89ba564139745
if [ "$mode" = test ] && [ ! -f "$here/.tools/$axe/axe.min.js" ]; then
	say "Downloading $axe into .tools/"
	tmp=$here/.tools/$axe.new
	rm -rf "$tmp" && mkdir -p "$tmp"
	if curl -fsSL --retry 3 -o "$tmp/package.tgz" "${FAIRLEAD_NPM_REGISTRY:-https://registry.npmjs.org}/axe-core/-/$axe.tgz"; then
		printf '%s  %s\n' "$axe_sum" "$tmp/package.tgz" | { if have sha256sum; then sha256sum -c -; else shasum -a 256 -c -; fi; } >/dev/null || die "$axe.tgz does not have the sum that is written in this script: not installed."
		tar -C "$tmp" -xzf "$tmp/package.tgz" --strip-components=1 package/axe.min.js package/LICENSE
		rm "$tmp/package.tgz"
		rm -rf "$here/.tools/$axe" && mv "$tmp" "$here/.tools/$axe"
	else
		rm -rf "$tmp"
		printf 'setup: %s\n' "npm's registry can't be reached: the console's accessibility is NOT TESTED with axe-core." >&2
	fi
fi

# What the TypeScript client is built and tested with (clients/typescript).
client=$here/clients/typescript
if [ "$mode" = test ] && ! cmp -s "$client/package-lock.json" "$client/node_modules/.installed"; then
	say "Installing the packages of clients/typescript into its node_modules/"
	if (cd "$client" && npm ci --no-audit --no-fund --ignore-scripts --registry="${FAIRLEAD_NPM_REGISTRY:-https://registry.npmjs.org}") >&2; then
		cp "$client/package-lock.json" "$client/node_modules/.installed"
	else
		printf 'setup: %s\n' "npm could not install them (its message is above): the TypeScript client is NOT TESTED." >&2
	fi
fi
