# `make` prints what there is to do.

GO       ?= go
GOLANGCI  = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

ARGS      ?=
PKG       ?= ./...
BENCH     ?= --runs 3 --seconds 3
BENCHTIME ?= 1s
FUZZTIME  ?= 10s

.DEFAULT_GOAL := help
.PHONY: help setup demo test build lint fmt bench soak fuzz tidy check-tidy ci

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Variables: ARGS for demo and soak, PKG for test and bench (./relay), BENCH, BENCHTIME, FUZZTIME.'

setup: ## Install PostgreSQL and a C compiler where they are missing (Debian, Ubuntu), and download modules
	@missing=; \
	command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v $${CC:-gcc} >/dev/null || missing="$$missing gcc libc6-dev"; \
	if [ -z "$$missing" ]; then \
	    echo 'setup: PostgreSQL and a C compiler are here'; \
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

test: ## Run all tests, against real servers, with the race detector
	$(GO) test -race $(PKG)

build: ## Build all packages, and the command line into bin/postroom
	$(GO) build ./...
	$(GO) build -o bin/postroom ./cmd/postroom

lint: ## Run the linters and check the formatting
	$(GOLANGCI) run

fmt: ## Format all files
	$(GOLANGCI) fmt

bench: ## Measure on throwaway servers, then run the micro-benchmarks (BENCH="--runs 5", BENCHTIME=1x for a trial)
	$(GO) run ./cmd/postroom bench --dev $(BENCH)
	$(GO) test -run '^$$' -bench . -benchtime=$(BENCHTIME) $(PKG)

soak: ## Prove on throwaway servers what takes long, half an hour in all (ARGS="--only order --short")
	@$(GO) build -o bin/soak ./integration/soak
	@bin/soak $(ARGS)

fuzz: ## Fuzz each target for FUZZTIME
	@grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' . | sort | while IFS=: read -r file target; do \
	    target=$${target#func }; \
	    echo "$$target in $$(dirname "$$file")"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime=$(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
	done

tidy: ## Bring go.mod and go.sum in line with the code
	$(GO) mod tidy

check-tidy: ## Fail where go.mod and go.sum are not in line with the code
	$(GO) mod tidy -diff

ci: ## Do what CI does
	.ci/run
