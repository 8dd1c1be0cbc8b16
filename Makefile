STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCILINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

FUZZTIME ?= 30s

# -race, or nothing where there is no C compiler. It is found out once, before the first command of a target that uses it.
RACE = $(eval RACE := $(shell sh scripts/race.sh))$(RACE)

# What the tests of Redis run on, for test-engines: paths or names of redis-server and valkey-server binaries.
ENGINES ?=
REDIS_TESTS := ./core/coretest/redistest ./core/redisstore/...

# The newest of each dependency that the tests pass with, for test-latest.
LATEST := github.com/gin-gonic/gin@v1.12.0 github.com/go-chi/chi/v5@v5.5.0 github.com/golang-jwt/jwt/v5@v5.3.1 \
	github.com/labstack/echo/v4@v4.16.0 github.com/redis/go-redis/v9@v9.23.0 github.com/valyala/fasthttp@v1.77.0 \
	github.com/prometheus/client_golang@v1.25.0 go.opentelemetry.io/otel@v1.47.0 \
	go.opentelemetry.io/otel/metric@v1.47.0 go.opentelemetry.io/otel/sdk/metric@v1.47.0

.DEFAULT_GOAL := help
.PHONY: help test test-faults test-engines test-latest lint fuzz bench tidy

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run all tests, with the race detector if there is a C compiler, installing what they start if it is missing
	sh scripts/install.sh redis-server nginx chromium
	SASH_REQUIRE_REDIS=1 SASH_REQUIRE_NGINX=1 go test $(RACE) -shuffle=on -timeout 30m ./...
	cd core/jwtkey/recipes && go test $(RACE) -shuffle=on -timeout 30m ./...
	cd examples/recipes && SASH_REQUIRE_REDIS=1 go test $(RACE) -shuffle=on -timeout 30m ./...
	cd core/benchmarks && SASH_REQUIRE_REDIS=1 go test -shuffle=on ./...
	cd examples/dashboard/browser && SASH_REQUIRE_CHROMIUM=1 go test -shuffle=on ./...
	$(MAKE) test-faults

test-faults: ## Make Redis fail in every way there is, and print what happens: 3 minutes
	sh scripts/install.sh redis-server
	cd core/redisstore/faults && SASH_FAULTS=1 SASH_REQUIRE_REDIS=1 go test $(RACE) -count=1 -timeout 30m

test-engines: ## Run the Redis tests on each server of ENGINES, such as ENGINES="redis-server /opt/valkey/valkey-server"
	@test -n "$(strip $(ENGINES))" || { echo "ENGINES names no server: make test-engines ENGINES=\"redis-server valkey-server\"" >&2; exit 2; }
	@failed=; for server in $(ENGINES); do \
		path=$$(command -v "$$server") || { echo "$$server: not found" >&2; failed="$$failed $$server"; continue; }; \
		path=$$(cd "$$(dirname "$$path")" && pwd)/$$(basename "$$path"); \
		echo "== $$path: $$("$$path" --version)"; \
		SASH_REDIS_SERVER=$$path SASH_REQUIRE_REDIS=1 go test -p 1 -count=1 -timeout 30m $(REDIS_TESTS) || failed="$$failed $$server"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed on:$$failed" >&2; exit 1; fi

test-latest: ## Run all tests with the newest dependencies (LATEST), leaving go.mod as it is
	sh scripts/install.sh redis-server nginx
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	cp go.mod "$$dir/latest.mod"; cp go.sum "$$dir/latest.sum"; \
	go get -modfile="$$dir/latest.mod" -t $(LATEST) ./...; \
	export GOFLAGS="$$GOFLAGS -modfile=$$dir/latest.mod"; \
	go list -m $(foreach module,$(LATEST),$(firstword $(subst @, ,$(module)))); \
	SASH_FAULTS=1 SASH_REQUIRE_REDIS=1 SASH_REQUIRE_NGINX=1 go test -shuffle=on ./...

lint: ## Check formatting and run go vet, staticcheck and golangci-lint
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then \
		echo "gofmt these:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	GOARCH=386 go vet ./...
	go run $(STATICCHECK) ./...
	go run $(GOLANGCILINT) run

fuzz: ## Run each fuzz target for FUZZTIME (default 30s)
	@set -e; for package in $$(go list ./...); do \
		tests=$$(go test -list '^Fuzz' $$package); \
		for target in $$(echo "$$tests" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

bench: ## Measure beside other limiters: a quarter of an hour, or two minutes with BENCHFLAGS=-quick
	cd core/benchmarks && go run . $(BENCHFLAGS)

tidy: ## Check that go.mod and go.sum of every module are tidy
	@set -e; for mod in $$(find . -name go.mod); do \
		echo "$$mod"; (cd "$$(dirname "$$mod")" && go mod tidy -diff); \
	done
