#!/bin/sh
# Builds Fairlead and its peers from this tree and compares them; README.md says how. Options are passed on:
#   bench/run.sh --quick        a smoke run
#   bench/run.sh --check        exit 1 when a ratio is below its threshold
#   bench/run.sh --save         also write bench/results/TIME.json
#   bench/run.sh --help         the rest
set -eu

here=$(cd "$(dirname "$0")" && pwd)
bin=$(mktemp -d "${TMPDIR:-/tmp}/fairlead-bench-bin-XXXXXX")
trap 'rm -rf "$bin"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

json=
for option; do
	shift
	case $option in
	--save)
		mkdir -p "$here/results"
		json="$here/results/$(date -u +%Y%m%dT%H%M%SZ).json"
		;;
	*) set -- "$@" "$option" ;;
	esac
done

(cd "$here/.." && go build -o "$bin/fairlead" ./cmd/fairlead)
(cd "$here" && go build -o "$bin/bench" . && go build -o "$bin/peer" ./peer && go build -o "$bin/contend" ./contend && go build -o "$bin/queue" ./queue)
"$bin/bench" --product "$bin/fairlead" --peer "$bin/peer" --contend "$bin/contend" --queue "$bin/queue" ${json:+--json "$json"} "$@"
if [ -n "$json" ]; then
	echo "Wrote $json"
fi
