#!/bin/sh
# Writes what is generated: docs/openapi.json and docs/problems.md from the server's code, docs/flags.md from the verbs of
# cmd/fairlead, the server's page /p/check from docs/check-this-draw.md, and from openapi.json client/types.gen.go and the generated files of clients/python and, if Node.js is there,
# clients/typescript. The generator of Go is run by its pinned version and is no dependency of the module; the others are ours. With --check
# it writes nothing and fails when a file is not what would be generated.
set -eu

cd "$(dirname "$0")/.."
generator=github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2

case ${1-} in
'') check= ;;
--check) check=yes ;;
*)
	echo "usage: scripts/generate.sh [--check]" >&2
	exit 2
	;;
esac

# Everything is made aside first, so that a failure leaves the tree as it was.
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
go run ./client/internal/document openapi >"$made/openapi.json"
go run ./client/internal/document problems >"$made/problems.md"
go run ./client/internal/document check >"$made/check.html"
go run ./cmd/fairlead flags >"$made/flags.md"
# The module's own flags and versions must not decide what a tool outside it is built from.
GOFLAGS= go run "$generator" -config client/oapi-codegen.yaml -o "$made/types.gen.go" "$made/openapi.json"
if command -v python3 >/dev/null; then
	python3 clients/python/generate.py "$made/openapi.json" "$made/python"
else
	echo "generate: Python is missing: the files of clients/python are NOT MADE and NOT CHECKED" >&2
fi
if command -v node >/dev/null; then
	node clients/typescript/scripts/generate.mjs "$made/openapi.json" "$made/problems.md" "$made/types.gen.ts"
else
	echo "generate: Node.js is missing: clients/typescript/src/types.gen.ts is NOT MADE and NOT CHECKED" >&2
fi

status=0
place() {
	if cmp -s "$1" "$2"; then
		return
	fi
	if [ -n "$check" ]; then
		echo "generate: $2 is not what the code makes: run scripts/generate.sh" >&2
		status=1
	else
		mkdir -p "$(dirname "$2")"
		cp "$1" "$2"
		echo "generate: wrote $2"
	fi
}
place "$made/openapi.json" docs/openapi.json
place "$made/problems.md" docs/problems.md
place "$made/flags.md" docs/flags.md
place "$made/check.html" internal/console/static/check.html
place "$made/types.gen.go" client/types.gen.go
if [ -d "$made/python" ]; then
	for file in types.py _operations.py _async_operations.py; do
		place "$made/python/$file" clients/python/src/fairlead/$file
	done
fi
[ ! -f "$made/types.gen.ts" ] || place "$made/types.gen.ts" clients/typescript/src/types.gen.ts
if [ -z "$check" ]; then
	FAIRLEAD_WRITE_DOCUMENTS=1 go test -count=1 ./internal/server -run '^TestMetricsDocument$' >/dev/null && chmod 644 docs/operations/metrics.md
fi
exit $status
