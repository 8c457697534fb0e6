#!/usr/bin/env bash
# Checks the specifications in specs/ exhaustively, within their bounds, with Spin (docs/design/specs.md):
#
#   scripts/specs.sh [NAME ...]
#
# Each must hold; and each must fail, by the guarantee that it names, with every MISTAKE and GAP that its head lists. A
# counterexample of what must hold is printed. Without Spin or a C compiler it says so and exits with 3.
set -euo pipefail
cd "$(dirname "$0")/../specs"
here=$PWD

for tool in spin cc; do
	command -v $tool >/dev/null || {
		echo "specs: there is no $tool: the specifications are NOT CHECKED (scripts/setup.sh specs installs it)" >&2
		exit 3
	}
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# search SPEC [DEFINITION] looks for a state that breaks a guarantee. It writes the guarantee's name, or "holds", and how many states
# there are, into a file named answer.
search() {
	local spec=$1 flags=()
	cd "$work/$1.${2:-whole}"
	[ $# = 1 ] || flags=("-D$2")
	cp "$here/common.h" "$here/$spec.pml" .
	spin "${flags[@]}" -a "$spec.pml" >log 2>&1 || return 0
	# One process: there is no order to be reduced by. Memory is bounded to 6 GB. Optimised code takes longer to compile than it saves.
	cc -O0 -w -DSAFETY -DNOREDUCE -DMEMLIM=6000 -o pan pan.c >log 2>&1 || return 0
	./pan -E -n -m5000000 -w22 >log 2>&1 || : # -E: it is no error when no step is left.
	if [ -f "$spec.pml.trail" ]; then
		spin -t "${flags[@]}" "$spec.pml" >trail 2>&1 || :
		sed -n 's/^ *broken: \([A-Z0-9]*\).*/\1/p' trail | head -n1 >answer
	elif grep -q 'errors: 0' log && ! grep -q 'max search depth too small\|Search not completed\|aborted' log; then
		echo holds >answer
	fi
	awk '/states, stored/ { print $1; exit }' log >>answer
}

status=0
report() { printf 'specs: %-12s %-20s %-34s %s states\n' "$1" "$2" "$3" "${found[1]:-no}"; }
listed() { sed -nE 's,^// (MISTAKE|GAP|HARMLESS) ([A-Z_]+):?( breaks ([A-Z0-9]+))?.*,\1 \2 \4,p' "$1.pml"; }

[ $# -gt 0 ] || set -- speculation gathering handover twophase
for spec; do
	while read -r name; do
		mkdir "$work/$spec.${name:-whole}"
		while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-$(nproc)}" ]; do wait -n; done
		(search "$spec" ${name:+"$name"}) &
	done < <(echo; listed "$spec" | cut -d' ' -f2)
done
wait
for spec; do
	mapfile -t found < <(cat "$work/$spec.whole/answer")
	if [ "${found[0]:-}" = holds ]; then
		report "$spec" "" holds
	else
		report "$spec" "" "BROKEN: ${found[0]:-the search failed}"
		cat "$work/$spec.whole/log"
		[ ! -f "$work/$spec.whole/trail" ] || sed '/^#processes/,$d' "$work/$spec.whole/trail"
		status=1
	fi
	while read -r kind name wanted; do
		mapfile -t found < <(cat "$work/$spec.$name/answer" || :)
		case ${found[0]:-} in
		"${wanted:-holds}")
			case $kind in
			MISTAKE) report "$spec" "$name" "is caught, by $wanted" ;;
			GAP) report "$spec" "$name" "breaks $wanted, which is known" ;;
			HARMLESS) report "$spec" "$name" "holds all the same" ;;
			esac
			;;
		*)
			report "$spec" "$name" "UNEXPECTED: ${found[0]:-the search failed}, not ${wanted:-holds}"
			[ -n "${found[0]:-}" ] || cat "$work/$spec.$name/log"
			status=1
			;;
		esac
	done < <(listed "$spec")
done
exit $status
