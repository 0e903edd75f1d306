# `make` prints what there is to do.

GO       ?= go
GOLANGCI  = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

ARGS      ?=
PKG       ?= ./integration ./relay ./... # first what takes longest, and what mostly waits
TESTS     ?= .
NATS      ?= v2.10.27
BENCH     ?= --runs 3 --seconds 3
BENCHTIME ?= 1s
FUZZTIME  ?= 30s
SECONDS   ?= 60
SEED      ?=
ONLY      ?=
PLANTED   ?=

# Without the race detector, which is about our code: it slows a broker to a fraction of its speed.
BROKER    = POSTROOM_TEST_BROKER=$(CURDIR)/bin/natsd
SCRATCH   = env $$(integration/scratch)
TESTFLAGS = -race -vet=off -timeout 15m # vet is one of the linters

.DEFAULT_GOAL := help
.PHONY: help setup demo example-webhook example-saga example-replay example-refunds test test-nats test-alerts servers test-containers images build lint fmt bench soak chaos mutants fuzz tidy check-tidy ci

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: ARGS for demo, examples, soak and chaos, SECONDS and SEED for chaos, ONLY and PLANTED for mutants, PKG for test and bench (./relay), TESTS, NATS, BENCH, BENCHTIME, FUZZTIME.'

setup: ## Install PostgreSQL, PgBouncer and a C compiler where they are missing (Debian, Ubuntu), and download modules
	@missing=; \
	command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v $${CC:-gcc} >/dev/null || missing="$$missing gcc libc6-dev"; \
	command -v pgbouncer >/dev/null || [ -x /usr/sbin/pgbouncer ] || ! command -v apt-get >/dev/null || missing="$$missing pgbouncer"; \
	if [ -z "$$missing" ]; then \
	    echo 'setup: PostgreSQL, PgBouncer and a C compiler are here'; \
	elif ! command -v apt-get >/dev/null; then \
	    echo "setup: missing:$$missing, and no apt-get to install it. Install PostgreSQL 14 or later and a C compiler"; \
	    echo "with this machine's packages; instead of PostgreSQL, Docker or POSTROOM_DATABASE_URL will do."; \
	    exit 1; \
	elif [ "$$(id -u)" = 0 ]; then \
	    apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y $$missing; \
	elif sudo -n true 2>/dev/null; then \
	    sudo -n apt-get update && sudo -n env DEBIAN_FRONTEND=noninteractive apt-get install -y $$missing; \
	else \
	    echo "setup: missing:$$missing, and no right to install it. Run this, then make setup again:"; \
	    echo "    sudo apt-get update && sudo apt-get install$$missing"; \
	    exit 1; \
	fi
	@$(GO) mod download
	@echo 'setup: modules are here'

demo: ## Run the quickstart: a shop, end to end, which proves itself (ARGS="--orders 2000")
	@[ -x bin/quickstart ] || echo 'building, which takes about a minute the first time'
	@$(GO) build -o bin/quickstart ./examples/quickstart
	@bin/quickstart $(ARGS)

example-webhook: ## Run the webhook example: a provider that repeats, shuffles and forges, a database that goes away
	@$(GO) build -o bin/webhook ./examples/webhook
	@bin/webhook $(ARGS)

example-saga: ## Run the saga example: three services that are killed in the midst of orders
	@$(GO) build -o bin/saga ./examples/saga
	@bin/saga $(ARGS)

example-replay: ## Run the replay example: events that die, and an operator who brings them back
	@$(GO) build -o bin/replay ./examples/replay
	@bin/replay $(ARGS)

example-refunds: ## Run the refunds example: requests that are repeated, a provider out of order, a service that is killed
	@$(GO) build -o bin/refunds ./examples/refunds
	@bin/refunds $(ARGS)

test: servers ## Run all tests, against real servers, with the race detector
	$(SCRATCH) $(BROKER) $(GO) test $(TESTFLAGS) $(PKG)

test-nats: ## Run the tests of what talks to the broker on another version of NATS (NATS=v2.10.27)
	@mkdir -p bin; cp go.mod bin/natsd-$(NATS).mod; cp go.sum bin/natsd-$(NATS).sum
	$(GO) mod edit -require=github.com/nats-io/nats-server/v2@$(NATS) bin/natsd-$(NATS).mod
	$(GO) build -mod=mod -modfile=bin/natsd-$(NATS).mod -o bin/natsd-$(NATS) ./integration/natsd
	$(SCRATCH) POSTROOM_TEST_BROKER=$(CURDIR)/bin/natsd-$(NATS) $(GO) test -count=1 -vet=off -timeout 15m ./integration ./relay ./inbox ./cmd/postroom ./doctor ./inspect ./deadletter

test-alerts: servers ## Evaluate the alerts and the dashboard of docs/operations on what running parts tell
	$(SCRATCH) $(BROKER) $(GO) test -C integration/alerts -vet=off -timeout 5m

servers: ## Say which PostgreSQL and NATS the tests run on
	@$(GO) build -o bin/natsd ./integration/natsd
	@said=$$($(SCRATCH) $(BROKER) $(GO) test -race -count=1 -v -run '^TestServers$$' ./internal/devtest 2>&1) || { echo "$$said"; exit 1; }; \
	echo "$$said" | awk '/^devtest: /;  /SKIPPED/ { sub(/^ */, ""); print }'

test-containers: ## Run integration on servers in containers, and the tests of such servers (TESTS=regexp for some)
	@set -e; \
	images=$$(integration/images/find); \
	export $$images POSTROOM_TEST_SERVERS=containers POSTROOM_TEST_REQUIRE=1; \
	$(GO) test -count=1 -run 'Container|NATS' ./internal/devstack; \
	$(GO) test -c -o bin/integration.test ./integration; \
	cd integration && ../bin/integration.test -test.timeout 20m -test.parallel 6 -test.run '$(TESTS)'

images: ## Make images of PostgreSQL and NATS from Debian packages and the Go module, where none can be pulled
	@integration/images/build postgres
	@integration/images/build nats

build: ## Build all packages, and the command line into bin/postroom
	$(GO) build ./...
	$(GO) build -o bin/postroom ./cmd/postroom

lint: ## Run the linters and check the formatting
	$(GOLANGCI) run
	cd integration/alerts && $(GOLANGCI) run

fmt: ## Format all files
	$(GOLANGCI) fmt

bench: ## Measure on throwaway servers, then run the micro-benchmarks (BENCH="--runs 5", BENCHTIME=1x for a trial)
	$(GO) run ./cmd/postroom bench --dev $(BENCH)
	$(GO) test -run '^$$' -bench . -benchtime=$(BENCHTIME) $(PKG)

soak: ## Prove on throwaway servers what takes long, half an hour in all (ARGS="--only order --short")
	@$(GO) build -o bin/soak ./integration/soak
	@bin/soak $(ARGS)

chaos: ## Break processes, servers, network and disks, and see whether the guarantees hold (SECONDS=60 SEED=7 ARGS="--nodes 3"); status 3 is undecided
	@$(GO) build -o bin/chaos ./integration/chaos
	@bin/chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)

mutants: ## Remove each guard of integration/mutants, and see a test fail (ONLY=name; PLANTED=1: bugs that chaos has to find)
	@$(GO) build -o bin/natsd ./integration/natsd
	$(SCRATCH) $(BROKER) $(GO) run ./integration/mutants $(if $(ONLY),--only $(ONLY)) $(if $(PLANTED),--planted) $(ARGS)

fuzz: ## Fuzz each target for FUZZTIME (30s), all in about ten minutes
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file target; do \
	    target=$${target#func }; \
	    echo "$$target in $$(dirname "$$file")"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

tidy: ## Bring go.mod and go.sum in line with the code
	$(GO) mod tidy
	cd integration/alerts && $(GO) mod tidy

check-tidy: ## Fail where go.mod and go.sum are not in line with the code
	$(GO) mod tidy -diff

ci: ## Do what CI does
	.ci/run
