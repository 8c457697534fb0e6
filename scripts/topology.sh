#!/usr/bin/env bash
# Runs what deploy/compose.yaml describes as processes of this machine: three
# servers on one PostgreSQL behind HAProxy, or nginx. It checks that the bids in an
# auction all reach one server, that an event stream passes, makes transfers through
# the proxy, kills one server in the middle and stops another, and checks the books.
#
#   scripts/topology.sh [haproxy|nginx]          the check, half a minute
#   scripts/topology.sh [haproxy|nginx] --stay   the servers, until Ctrl-C
#
# It needs bin/fairlead (make build), curl and the proxy.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
PATH=$PATH:/usr/sbin:/usr/local/sbin
kind=haproxy
case ${1:-} in haproxy | nginx) kind=$1 && shift ;; esac
command -v "$kind" >/dev/null || { echo "topology: install $kind" >&2; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/fairlead-topology-XXXXXX")
chmod 711 "$dir" # PostgreSQL may run as another user, who must get to its directory.
pids=()
cleanup() {
	trap - EXIT INT TERM
	# The first server has the database: it goes last.
	for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
		kill "${pids[i]}" 2>/dev/null || true
		wait "${pids[i]}" 2>/dev/null || true
	done
	rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
fail() {
	echo "topology: $*" >&2
	tail -n 5 "$dir"/*.log >&2 || true
	exit 1
}

FAIRLEAD_ADMIN_KEY=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export FAIRLEAD_ADMIN_KEY
# server NAME [options]: starts one and notes its address.
server() {
	local name=$1
	shift
	"$here/bin/fairlead" serve --listen 127.0.0.1:0 --addr-file "$dir/$name.addr" --data "$dir/$name" "$@" >"$dir/$name.log" 2>&1 &
	pids+=($!)
	for ((i = 0; i < 300; i++)); do
		[ -s "$dir/$name.addr" ] && curl -fs "http://$(cat "$dir/$name.addr")/readyz" >/dev/null && return
		kill -0 "${pids[-1]}" 2>/dev/null || fail "server $name ended"
		sleep 0.1
	done
	fail "server $name is not ready"
}
server one
socket="$dir/one/run"
[ -d "$socket" ] || fail "no socket in $socket"
url="postgres://fairlead@/fairlead?host=$socket"
server two --database-url "$url"
server three --database-url "$url"

ONE=$(cat "$dir/one.addr") TWO=$(cat "$dir/two.addr") THREE=$(cat "$dir/three.addr")
export ONE TWO THREE
run_haproxy() { exec haproxy -f "$here/deploy/haproxy.cfg"; }
run_nginx() {
	mkdir -p "$dir/nginx"
	{
		# The folders of Debian's defaults belong to its own nginx.
		printf 'daemon off; pid %s/pid; error_log stderr; events {}\nhttp { access_log off;\n' "$dir/nginx"
		for what in client_body proxy fastcgi uwsgi scgi; do printf '%s_temp_path %s/%s;\n' "$what" "$dir/nginx" "$what"; done
		sed -e "s/\${ONE}/$ONE/; s/\${TWO}/$TWO/; s/\${THREE}/$THREE/; s/\${FRONT}/$FRONT/" "$here/deploy/nginx.conf.template"
		echo '}'
	} >"$dir/nginx/conf"
	exec nginx -p "$dir/nginx" -c "$dir/nginx/conf"
}

# proxy PORT: starts it, unless the port is taken.
proxy() {
	front=http://127.0.0.1:$1
	export FRONT=127.0.0.1:$1
	run_"$kind" >"$dir/$kind.log" 2>&1 &
	for ((i = 0; i < 300; i++)); do
		curl -fs "$front/readyz" >/dev/null && pids+=($!) && return
		kill -0 $! 2>/dev/null || return 1
		sleep 0.1
	done
	kill $!
	fail "the proxy does not answer"
}
for ((try = 0; ; try++)); do
	proxy $((20000 + RANDOM % 10000)) && break
	[ "$try" -lt 5 ] || fail "the proxy ends at once"
done
echo "topology: three servers behind $front"
if [ "${1:-}" = --stay ]; then
	echo "topology: admin key $FAIRLEAD_ADMIN_KEY"
	wait
fi

# post PATH KEY BODY: prints the answer, and repeats the request, under its key, until there is a definite one.
post() {
	for ((try = 0; try < 50; try++)); do
		status=$(curl -s -m 10 -o "$dir/answer" -w '%{http_code}' "$front$1" -H "Authorization: Bearer $FAIRLEAD_ADMIN_KEY" \
			-H "Idempotency-Key: $2" -d "$3") || status=000
		case $status in
		2*) return 0 ;;
		000 | 5*) sleep 0.1 ;;
		*) fail "$1: $status $(cat "$dir/answer")" ;;
		esac
	done
	fail "$1: no answer, the last one was $status"
}
post /v1/accounts a1 '{"id":"ann","currency":"EUR"}'
post /v1/accounts a2 '{"id":"ben","currency":"EUR"}'
post /v1/deposits d1 '{"account":"ann","amount":1000}'

post /v1/auctions s1 '{"title":"lamp","currency":"EUR","seller":"ben","cooldown":"0s","rounds":[{"winners":1,"duration":"1h"}]}'
auction=$(grep -o '"id":"[^"]*"' "$dir/answer" | head -n 1 | cut -d '"' -f 4)
post "/v1/auctions/$auction/start" s2 '{}'
for ((n = 1; n <= 30; n++)); do
	post "/v1/auctions/$auction/bids" "b$n" "{\"account\":\"ann\",\"amount\":$n}"
done
bidders=0
for name in one two three; do
	curl -fs "http://$(cat "$dir/$name.addr")/metrics" >"$dir/metrics"
	! grep -q '^fairlead_auction_bids_total{outcome="accepted"} 30$' "$dir/metrics" || bidders=$((bidders + 1))
done
[ "$bidders" = 1 ] || fail "30 bids in one auction did not reach one server"
post "/v1/auctions/$auction/cancel" s3 '{}'
# A stream that is followed from its start comes at once, though it does not end.
grep -q -m 1 '^event: auction.cancelled' < <(curl -sN -m 20 "$front/v1/events?topic=auction:$auction" \
	-H "Authorization: Bearer $FAIRLEAD_ADMIN_KEY" -H 'Last-Event-ID: 0') || fail "the event stream does not pass the proxy"

for ((n = 1; n <= 200; n++)); do
	post /v1/transfers "t$n" '{"from":"ann","to":"ben","amount":1}'
	case $n in
	70) kill -KILL "${pids[1]}" ;;
	140) kill -TERM "${pids[2]}" ;;
	esac
done
available() { curl -fs "$front/v1/accounts/$1" -H "Authorization: Bearer $FAIRLEAD_ADMIN_KEY" | grep -o '"available":[0-9]*' | cut -d: -f2; }
[ "$(available ann) $(available ben)" = "800 200" ] || fail "ann has $(available ann), ben $(available ben); want 800 and 200"
"$here/bin/fairlead" integrity --database-url "$url" >"$dir/integrity.log" || fail "the books: $(cat "$dir/integrity.log")"
echo "topology: 200 transfers through $kind, one server killed, one stopped: each happened once, the books balance; 30 bids in one auction: all by one server"
