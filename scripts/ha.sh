#!/usr/bin/env bash
# Runs PostgreSQL as deploy/ha/patroni.yml describes it, on this machine alone: an
# etcd and three PostgreSQL under Patroni, until Ctrl-C. It makes the role and the
# database that Fairlead needs, and writes the address into DIR/url:
#
#   scripts/ha.sh DIR &
#   fairlead serve --database-url "$(cat DIR/url)"
#
# Each node N (a, b, c) has its directory DIR/N: data in postgres/, Patroni's pid
# in patroni.pid, its REST address in rest. A Patroni that ends is started again,
# unless there is a file DIR/N/down. Needs Patroni, etcd, psql and PostgreSQL.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
[ $# = 1 ] || { echo "usage: scripts/ha.sh DIR" >&2; exit 2; }
mkdir -p "$1" && rm -f "$1/stop"
dir=$(cd "$1" && pwd)
PATH=$PATH:/usr/sbin:/usr/local/sbin
bin=${FAIRLEAD_PG_BIN:-$(dirname "$(ls -v /usr/lib/postgresql/*/bin/initdb | tail -n 1)")}
for program in patroni etcd psql "$bin/postgres"; do
	command -v "$program" >/dev/null || { echo "ha: install $program" >&2; exit 1; }
done
as=()
if [ "$(id -u)" = 0 ]; then # PostgreSQL refuses root.
	chmod 711 "$dir"
	as=(setpriv --reuid=postgres --regid=postgres --init-groups)
fi

pids=()
cleanup() {
	trap - EXIT INT TERM
	touch "$dir/stop"
	for name in a b c; do
		kill -CONT "$(cat "$dir/$name/patroni.pid" 2>/dev/null || echo 0)" 2>/dev/null || true
		kill "$(cat "$dir/$name/patroni.pid" 2>/dev/null || echo 0)" 2>/dev/null || true
	done
	for pid in "${pids[@]:1}"; do
		wait "$pid" 2>/dev/null || true
	done
	for name in a b c; do # Its PostgreSQL outlives a Patroni that was killed.
		! pid=$(head -n 1 "$dir/$name/postgres/postmaster.pid" 2>/dev/null) || kill -QUIT "$pid" 2>/dev/null || true
	done
	kill "${pids[0]}" 2>/dev/null || true
	wait "${pids[0]}" 2>/dev/null || true
}
fail() {
	echo "ha: $*" >&2
	tail -n 5 "$dir"/*.log "$dir"/*/patroni.log >&2 || true
	exit 1
}

# Ports below those that the system hands out by itself.
port=$((10000 + RANDOM % 20000))
etcd=127.0.0.1:$port
# Before 3.0.3, a Patroni that was frozen overwrites its successor's leader key when it wakes up, but not by etcd's API of version 2.
version=$(patroni --version | awk '{ print $2 }') api=ETCD3 v2=()
[ "$(printf '%s\n' 3.0.3 "$version" | sort -V | head -n 1)" = 3.0.3 ] || api=ETCD v2=(--enable-v2)
etcd "${v2[@]}" --name ha --data-dir "$dir/etcd" --listen-client-urls "http://$etcd" --advertise-client-urls "http://$etcd" \
	--listen-peer-urls "http://127.0.0.1:$((port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
	--initial-cluster "ha=http://127.0.0.1:$((port + 1))" --unsafe-no-fsync >"$dir/etcd.log" 2>&1 &
pids+=($!)
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
# node NAME NUMBER: runs Patroni, and runs it again.
node() {
	local at=$dir/$1 postgres=127.0.0.1:$((port + 10 + $2)) rest=127.0.0.1:$((port + 20 + $2)) child
	trap - EXIT INT TERM
	while :; do
		if [ ! -e "$at/down" ]; then
			env PATRONI_NAME="$1" "PATRONI_${api}_HOSTS=$etcd" PATRONI_RESTAPI_LISTEN=$rest PATRONI_RESTAPI_CONNECT_ADDRESS=$rest \
				PATRONI_POSTGRESQL_LISTEN=$postgres PATRONI_POSTGRESQL_CONNECT_ADDRESS=$postgres \
				PATRONI_POSTGRESQL_DATA_DIR=$at/postgres PATRONI_POSTGRESQL_BIN_DIR=$bin PATRONI_POSTGRESQL_PGPASS=$at/pgpass \
				PATRONI_SUPERUSER_USERNAME=postgres PATRONI_SUPERUSER_PASSWORD=$password \
				PATRONI_REPLICATION_USERNAME=replicator PATRONI_REPLICATION_PASSWORD=$password \
				"${as[@]}" patroni "$here/deploy/ha/patroni.yml" >>"$at/patroni.log" 2>&1 &
			child=$!
			echo "$child" >"$at/patroni.pid"
			wait "$child" 2>/dev/null || true
		fi
		[ ! -e "$dir/stop" ] || return
		sleep 0.2
	done
}
number=0
for name in a b c; do
	mkdir -p "$dir/$name"
	rm -f "$dir/$name/down"
	[ ${#as[@]} = 0 ] || chown postgres: "$dir/$name"
	echo "127.0.0.1:$((port + 20 + number))" >"$dir/$name/rest"
	node "$name" "$number" &
	pids+=($!)
	number=$((number + 1))
done

hosts=127.0.0.1:$((port + 10)),127.0.0.1:$((port + 11)),127.0.0.1:$((port + 12))
export PGPASSWORD=$password PGCONNECT_TIMEOUT=2
admin="host=127.0.0.1,127.0.0.1,127.0.0.1 port=$((port + 10)),$((port + 11)),$((port + 12)) user=postgres target_session_attrs=read-write"
for ((i = 0; ; i++)); do
	psql "$admin dbname=postgres" -qAtc 'SELECT 1' >/dev/null 2>&1 && break
	kill -0 "${pids[0]}" 2>/dev/null || fail "etcd ended"
	[ "$i" -lt 300 ] || fail "there is no primary"
	sleep 0.2
done
psql "$admin dbname=postgres" -qv ON_ERROR_STOP=1 -c "CREATE ROLE fairlead LOGIN PASSWORD '$password'" -c 'CREATE DATABASE fairlead OWNER fairlead' ||
	fail "the database could not be made"
echo "postgres://fairlead:$password@$hosts/fairlead?target_session_attrs=read-write" >"$dir/url.new"
mv "$dir/url.new" "$dir/url"
echo "ha: three PostgreSQL under Patroni; the address is in $dir/url"
wait
