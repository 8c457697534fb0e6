# Fairlead. `make help` lists what there is to make.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# A Go that scripts/setup.sh had to fetch is here, and goes first.
export PATH := $(CURDIR)/.tools/go/bin:$(PATH)

FUZZTIME ?= 10s
FAILOVERS ?= 100
# How much longer than a fault the servers may pause.
PAUSE ?= 1s
TESTTIMEOUT ?= 60m
# A program with the race detector sleeps for a second before it ends, and the tests run hundreds.
export GORACE ?= atexit_sleep_ms=10
# The packages that take longest begin first, lest they end alone.
PACKAGES ?= ./internal/sim ./cmd/fairlead ./internal/server ./internal/postgres ./internal/demo ./examples ./...
# What has tests that FAIRLEAD_TORTURE makes long or strict.
LONG ?= ./internal/sim/... ./internal/explore ./internal/postgres ./internal/server ./internal/replay ./internal/demo ./cmd/fairlead ./idempotency/... ./lock/... ./multidraw \
	./redisclient/... ./saga/... ./translog/...
# What make portable switches off: docs/operations/engines.md.
WITHOUT ?= notify,advisory-locks,ctid,xmin,functions,deferrable,implicit-transactions,prepare-transaction,partitions
ARGS ?=

.PHONY: run test promises build bench lint linters fmt help torture faults failover matrix portable pgbouncer fuzz mutants schedules specs generate topology cross site release clean

run: ## set up, build, and show the whole story: a draw, an auction, and what is guaranteed
	@scripts/setup.sh run
	@$(MAKE) --no-print-directory build
	bin/fairlead demo $(ARGS)

test: ## set up, and run all tests on real servers, with the race detector (PACKAGES=./lock/...)
	@scripts/setup.sh test
	go test -race -timeout $(TESTTIMEOUT) $(ARGS) $(PACKAGES)

promises: ## measure every promise about time, one test at a time, on a machine at rest, and list what was seen (ARGS=round-closes: that alone)
	@scripts/setup.sh test
	go run ./scripts/promises $(ARGS)

build: ## build bin/fairlead
	go build -o bin/fairlead ./cmd/fairlead

bench: ## measure beside the peers, in one run (ARGS=--quick for a smoke run)
	@scripts/setup.sh run
	bench/run.sh $(ARGS)

lint: ## vet, module tidiness, formatting, linters, import rules
	@scripts/setup.sh lint
	scripts/lint.sh

linters: ## build what lint needs, once
	@scripts/setup.sh lint
	scripts/lint.sh --install

fmt: ## format the code (needs golangci-lint, which lint builds)
	PATH="$$(ls -d .tools/golangci-lint-*/ 2>/dev/null | tail -n1):$$PATH" golangci-lint fmt

torture: ## the long tests, for a machine at rest, counted in docs/operations/faults.md; then failover (ROWS='server-killed crash-': these rows until their full counts, TRIES=5: a few tries; LONG=./lock/..., PAUSE=10s)
	@scripts/setup.sh torture
	FAIRLEAD_PAUSE=$(PAUSE) go run ./scripts/torture $(if $(TRIES),--tries $(TRIES)) $(if $(ROWS),$(ROWS),--long '$(ARGS) $(LONG)')
	@$(if $(ROWS),,$(MAKE) --no-print-directory failover)

faults: ## each alert in a real fault, seen by a Prometheus and ended by what the runbook says (about 3 minutes)
	@scripts/setup.sh faults
	FAIRLEAD_TORTURE=1 go test -count=1 -v -timeout 20m $(ARGS) ./internal/sim/faults

failover: ## servers under load on PostgreSQL with Patroni, whose primary is taken away FAILOVERS=100 times (about half a minute each)
	@scripts/setup.sh failover
	FAIRLEAD_FAILOVERS=$(FAILOVERS) FAIRLEAD_PAUSE=$(PAUSE) go test -count=1 -v -timeout 3h -run TestFailovers $(ARGS) ./internal/sim

matrix: ## the whole suite on PostgreSQL 14, 16, 17 and 18 (VERSIONS=17: on that alone)
	@scripts/setup.sh test
	scripts/matrix.sh $(VERSIONS)

portable: ## the whole suite on PostgreSQL without what distributed engines lack (WITHOUT=notify: without that alone)
	@scripts/setup.sh test
	PGOPTIONS='-c fairlead.without=$(WITHOUT)' go test -timeout $(TESTTIMEOUT) $(ARGS) $(PACKAGES)

pgbouncer: ## the tests behind connection poolers on the newest PgBouncer (SUITE=trixie: on that of this Debian)
	@scripts/setup.sh run
	scripts/pgbouncer.sh $(SUITE)

fuzz: ## every fuzzer for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

mutants: ## put each seeded bug into the source and see that the tests catch it (ARGS='--sample 5', --check, or bugs by name)
	@scripts/setup.sh test
	go run ./scripts/mutants $(or $(ARGS),--table docs/operations/mutants.md)

schedules: ## run the next 1,000 explored schedules of each scenario, and count them in docs/operations/explored.md (ARGS='--count 20000 accounts')
	@scripts/setup.sh test
	go run ./scripts/schedules $(ARGS)

specs: ## check the specifications of the hardest protocols with Spin, and that they catch seeded mistakes (ARGS=handover: that alone)
	@scripts/setup.sh specs
	scripts/specs.sh $(ARGS)

generate: ## write docs/openapi.json, problems.md, flags.md and the clients' types from the code
	@scripts/generate.sh

topology: ## three servers behind HAProxy, then nginx, as processes: kill one, stop one, check the books
	@scripts/setup.sh topology
	@$(MAKE) --no-print-directory build
	scripts/topology.sh haproxy $(ARGS)
	scripts/topology.sh nginx $(ARGS)

cross: ## check the types of all packages for macOS and Windows
	go run ./scripts/typecheck darwin/arm64 windows/amd64

release: ## archives, bills of materials, a container image and their checksums, in dist/ (VERSION=v0.1.0; ARGS=--check builds twice and compares)
	scripts/release.sh $(VERSION) $(ARGS)

site: ## build the documentation as a static site in bin/site (needs npm)
	scripts/site.sh

clean: ## remove what was built here, but not .tools/
	rm -rf bin dist

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
