# `make` prints what there is to do.

GO       ?= go
GOLANGCI  = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM = $(GO) run gotest.tools/gotestsum@v1.13.0 --format pkgname --format-hide-empty-pkg --hide-summary skipped

ARGS      ?=
ALL        = ./... ./cmd/postroom/... ./postmill/... ./postroomtest/containers/... ./examples/... ./integration/bench/... ./integration/... # the modules that go.work joins
PKG       ?= ./integration ./inbox $(ALL) # first what takes longest, and mostly waits
TESTS     ?= .
NATS      ?= v2.10.27
BENCH     ?= --runs 3 --seconds 3
BENCHTIME ?= 1s
FUZZTIME  ?= 30s
SECONDS   ?= 60
SEED      ?=
SCENARIO  ?=
ONLY      ?=
PLANTED   ?=

# Without the race detector, which is about our code: it slows a broker to a fraction of its speed.
BROKER    = POSTROOM_TEST_BROKER=$(CURDIR)/bin/natsd
SCRATCH   = env $$(integration/tools/scratch)
RACE      = GORACE=atexit_sleep_ms=50 # by default, each program with the race detector sleeps for a second at its end
TESTFLAGS = -race -vet=off -timeout 40m -p 3 # vet is one of the linters; three packages at a time, because some mostly wait
TEST      = $(SCRATCH) $(BROKER) $(RACE) $(GOTESTSUM) $(LOG) --raw-command -- $(GO) test -json $(TESTFLAGS) $(TESTED) # says at its end what failed, and why
TESTED    = $(if $(filter ./...,$(PKG)),$$($(GO) list $(PKG) | grep -Ev '/(internal/house|integration/mutants)$$'),$(PKG)) # make house runs these two

.DEFAULT_GOAL := help
.PHONY: help setup demo-setup demo quickstart example-webhook example-saga example-replay example-refunds test compiled house quick test-times test-nats test-alerts servers test-containers images build lint api pictures wrap fmt bench soak chaos mutants fuzz tidy check-tidy check-release ci

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: ARGS for demo, examples, soak and chaos, SECONDS, SEED and SCENARIO for chaos, ONLY and PLANTED for mutants, PKG for test and bench (./relay), TESTS, NATS, BENCH, BENCHTIME, FUZZTIME.'

setup: ## Install what is missing (Debian, Ubuntu), download modules, build the NATS server; tests do it first
	@GO=$(GO) integration/tools/setup tests

demo-setup: # what demos need is less than what tests need
	@GO=$(GO) integration/tools/setup demos

demo: demo-setup ## Run the shop, end to end, which proves itself (ARGS="--orders 2000")
	@[ -x bin/shop ] || echo 'building, which takes about a minute the first time'
	@$(GO) build -o bin/shop ./examples/shop
	@$(BROKER) bin/shop $(ARGS)

quickstart: demo-setup ## Run the shortest whole program, on servers of its own
	@$(BROKER) $(GO) run ./examples/quickstart

example-webhook: demo-setup ## Run the webhook example: a provider that repeats, shuffles and forges, a database that goes away
	@$(GO) build -o bin/webhook ./examples/webhook
	@$(BROKER) bin/webhook $(ARGS)

example-saga: demo-setup ## Run the saga example: three services that are killed in the midst of orders
	@$(GO) build -o bin/saga ./examples/saga
	@$(BROKER) bin/saga $(ARGS)

example-replay: demo-setup ## Run the replay example: events that die, and an operator who brings them back
	@$(GO) build -o bin/replay ./examples/replay
	@$(BROKER) bin/replay $(ARGS)

example-refunds: demo-setup ## Run the refunds example: requests that are repeated, a provider out of order, a service that is killed
	@$(GO) build -o bin/refunds ./examples/refunds
	@$(BROKER) bin/refunds $(ARGS)

test: compiled servers $(if $(filter ./...,$(PKG)),house) ## Run all tests, against real servers, with the race detector
	@echo 'test: building and running the tests of each package. A package is printed when its tests have ended; the first ones take minutes'
	$(TEST)

compiled: setup # by itself, so that it can say how far it is; go test is silent meanwhile
	@echo 'test: compiling packages with the race detector, which takes minutes the first time'
	@$(GO) build -race -v $$($(GO) list -deps -test -f '{{if not (or .Standard .ForTest (eq .Name "main"))}}{{.ImportPath}}{{end}}' $(PKG)) 2>&1 | \
	awk '/[^A-Za-z0-9_.\/-]/ { print; next } ++n % 50 == 0 { print "test: " n " packages are compiled"; fflush() }'

house: ## Run the tests of the repository's form and of the lists of mutants, which only read files, without the race detector
	@$(GO) test -vet=off -count=1 ./internal/house ./integration/mutants

quick: ## Run the tests that need no server, without the race detector, in less than a minute
	@$(GO) test -vet=off $$($(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.TestImports}} {{.XTestImports}}{{end}}' $(ALL) | awk '!/internal\/dev(test|stack)|postroomtest/ { print $$1 }')

test-times: LOG = --jsonfile bin/test.json
test-times: TESTFLAGS += -count=1
test-times: servers ## Run all tests, and write how long they take to docs/reference/sizes.md
	$(TEST)
	$(GO) run ./integration/testtimes integration/results/test-times.txt <bin/test.json
	@$(MAKE) api

test-nats: ## Run the tests of what talks to the broker on another version of NATS (NATS=v2.10.27)
	@mkdir -p bin; cp integration/go.mod bin/natsd-$(NATS).mod; cp integration/go.sum bin/natsd-$(NATS).sum
	$(GO) mod edit -require=github.com/nats-io/nats-server/v2@$(NATS) bin/natsd-$(NATS).mod
	GOWORK=off $(GO) build -C integration -mod=mod -modfile=$(CURDIR)/bin/natsd-$(NATS).mod -o $(CURDIR)/bin/natsd-$(NATS) ./natsd
	$(SCRATCH) POSTROOM_TEST_BROKER=$(CURDIR)/bin/natsd-$(NATS) $(GO) test -count=1 -vet=off -timeout 40m ./integration ./natsjs/... ./relay ./inbox ./cmd/postroom ./internal/doctor ./internal/inspect ./deadletter

test-alerts: servers ## Evaluate the alerts and the dashboard of docs/operations on what running parts tell
	GOWORK=off $(SCRATCH) $(BROKER) $(GO) test -C integration/alerts -vet=off -timeout 5m

servers: setup ## Say which PostgreSQL and NATS the tests run on
	@said=$$($(SCRATCH) $(BROKER) $(GO) test -race -count=1 -v -run '^TestServers$$' ./internal/devtest 2>&1) || { echo "$$said"; exit 1; }; \
	echo "$$said" | awk '/^devtest: /;  /SKIPPED/ { sub(/^ */, ""); print }'

test-containers: setup ## Run integration on servers in containers, and the tests of such servers (TESTS=regexp for some)
	@set -e; \
	images=$$(integration/tools/images/find); \
	export $$images POSTROOM_TEST_SERVERS=containers POSTROOM_TEST_REQUIRE=1; \
	$(GO) test -count=1 ./postroomtest/containers; \
	$(GO) test -c -o bin/integration.test ./integration; \
	cd integration && ../bin/integration.test -test.timeout 40m -test.parallel 6 -test.run '$(TESTS)'

images: ## Make images of PostgreSQL and NATS from Debian packages and the Go module, where none can be pulled
	@integration/tools/images/build postgres
	@integration/tools/images/build nats

build: ## Build all packages, and the command line into bin/postroom
	$(GO) build $(ALL)
	$(GO) build -o bin/postroom ./cmd/postroom

lint: house ## Run the linters, check the formatting, and run the tests of internal/house
	$(GOLANGCI) run $(ALL)
	cd integration/alerts && GOWORK=off $(GOLANGCI) run

api: ## Write docs/api.txt and the generated pages of docs/reference
	@POSTROOM_UPDATE=1 $(GO) test -vet=off -count=1 -run 'APIIsListed|LayersPage|SizesPage|CLIReference|ConfigurationReference' ./internal/house ./cmd/postroom

pictures: ## Draw the pictures of docs/pictures from their texts (needs graphviz)
	docs/pictures/draw

wrap: ## Wrap lines of the documentation that are wider than 100 columns
	@POSTROOM_UPDATE=1 $(GO) test -vet=off -count=1 -run '^TestDocumentationIsWrapped$$' ./internal/house >/dev/null; git status --short -- '*.md'

fmt: ## Format all files
	$(GOLANGCI) fmt

bench: demo-setup ## Measure on throwaway servers, then run the micro-benchmarks (BENCH="--runs 5", BENCHTIME=1x for a trial)
	$(BROKER) $(GO) run ./integration/bench --dev $(BENCH)
	$(BROKER) $(GO) test -run '^$$' -bench . -benchtime=$(BENCHTIME) $(PKG)

soak: setup ## Prove what takes long: half an hour on throwaway servers, 200 draws of handlers, 40 of streams that lose events, the tests of Watermill at full length, then all mutants (ARGS="--only order --short")
	@$(GO) build -o bin/soak ./integration/soak
	@$(BROKER) bin/soak $(ARGS)
	@$(SCRATCH) $(BROKER) POSTROOM_OUTAGE=45s $(GO) test -count=1 -vet=off -timeout 20m -v -run TestVendorOutage ./integration/outage
	@$(if $(findstring --only,$(ARGS)),,$(SCRATCH) $(BROKER) $(GO) test -count=1 -vet=off -timeout 60m ./integration/behaviours -draws 200)
	@$(if $(findstring --only,$(ARGS)),,$(SCRATCH) $(BROKER) $(GO) test -count=1 -vet=off -timeout 60m -run TestStreamThatLosesAtRandom ./integration -draws 40)
	@$(if $(findstring --only,$(ARGS)),,$(SCRATCH) $(BROKER) POSTROOM_SOAK=1 $(GO) test -count=1 -vet=off -timeout 60m ./postmill)
	@$(if $(findstring --only,$(ARGS)),,$(SCRATCH) $(BROKER) POSTROOM_SOAK=1 $(GO) test -count=1 -vet=off -timeout 60m -v -run TestAccountsForMinutes ./webhook)
	@$(if $(findstring --only,$(ARGS)),,$(SCRATCH) $(BROKER) $(GO) run ./integration/mutants --report integration/results/mutants.md)

chaos: demo-setup ## Break processes, servers, network and disks, and see whether the guarantees hold (SECONDS=60 SEED=7 ARGS="--nodes 3"); status 3 is undecided. SCENARIO=saga: 1,000 sagas over three services that are killed
ifeq ($(SCENARIO),saga)
	@$(GO) build -o bin/saga ./examples/saga
	@$(BROKER) bin/saga --orders 1000 --rate 150 --kills 30 $(if $(SEED),--seed $(SEED)) $(ARGS)
else
	@$(GO) build -o bin/chaos ./integration/chaos
	@$(BROKER) bin/chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(ARGS)
endif

mutants: setup ## Remove each guard of integration/mutants, and see a test fail (ONLY=name; PLANTED=1: bugs that chaos has to find)
	$(SCRATCH) $(BROKER) $(GO) run ./integration/mutants $(if $(ONLY),--only $(ONLY)) $(if $(PLANTED),--planted) $(ARGS)

fuzz: ## Fuzz each target for FUZZTIME (30s), all in about ten minutes
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file target; do \
	    target=$${target#func }; \
	    echo "$$target in $$(dirname "$$file")"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

tidy: ## Bring go.mod and go.sum of all modules in line with the code
	@integration/tools/tidy

check-tidy: ## Fail where go.mod and go.sum of a module are not in line with the code
	@integration/tools/tidy --diff

check-release: ## Install the command line of the last commit as users do of a release, from modules in a directory
	@GO=$(GO) integration/tools/release

ci: ## Do what CI does
	.ci/run
