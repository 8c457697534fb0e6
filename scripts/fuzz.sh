#!/bin/sh
# Runs every native fuzzer of the module for a while (FUZZTIME, 10s unless set),
# one after the other, and stops at the first that finds something. The input
# that it found is then under testdata/fuzz of its package: fix, and commit it.
#
# FUZZTIME=2000x makes 2000 inputs of each. Those come without the instrumentation that
# guides a fuzzer: compiling all packages with it takes minutes, and guidance pays only
# over far more inputs.
set -eu

cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}
count=0
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
cache=$(go env GOCACHE)/fuzz
guided='-fuzz .'
case $time in *x) guided= ;; esac

# Only packages whose test files name a fuzzer are compiled, each once for all its fuzzers.
dirs=$(grep -rl --include='*_test.go' --exclude-dir=bench --exclude-dir=.tools '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
for dir in $dirs; do
	# shellcheck disable=SC2086 # Two words, or none.
	go test -c $guided -o "$bin/test" "$dir"
	package=$(go list "$dir")
	for name in $(cd "$dir" && "$bin/test" -test.list '^Fuzz' | grep '^Fuzz' || :); do
		printf 'fuzz: %s %s for %s\n' "$dir" "$name" "$time"
		(cd "$dir" && "$bin/test" -test.run '^$' -test.fuzz "^$name\$" -test.fuzztime "$time" -test.fuzzcachedir "$cache/$package")
		count=$((count + 1))
	done
done
if [ "$count" = 0 ]; then
	echo 'fuzz: no fuzzers found' >&2
	exit 1
fi
echo "fuzz: $count fuzzers ran for $time each, none found anything"
