#!/bin/sh
# Runs every native fuzzer of the module for a while (FUZZTIME, 10s unless set),
# one after the other, and stops at the first that finds something. The input
# that it found is then under testdata/fuzz of its package: fix, and commit it.
set -eu

cd "$(dirname "$0")/.."
time=${FUZZTIME:-10s}
count=0

# Only packages whose test files name a fuzzer are compiled.
dirs=$(grep -rl --include='*_test.go' --exclude-dir=bench --exclude-dir=.tools '^func Fuzz' . | xargs -r -n1 dirname | sort -u)
for dir in $dirs; do
	list=$(go test -list '^Fuzz' "$dir")
	for name in $(printf '%s\n' "$list" | grep '^Fuzz' || :); do
		printf 'fuzz: %s %s for %s\n' "$dir" "$name" "$time"
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "$dir"
		count=$((count + 1))
	done
done
if [ "$count" = 0 ]; then
	echo 'fuzz: no fuzzers found' >&2
	exit 1
fi
echo "fuzz: $count fuzzers ran for $time each, none found anything"
