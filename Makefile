STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCILINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

FUZZTIME ?= 30s

# -race, or nothing where there is no C compiler. It is found out once, before the first command of a target that uses it.
RACE = $(eval RACE := $(shell sh scripts/race.sh))$(RACE)

.DEFAULT_GOAL := help
.PHONY: help test test-faults lint fuzz bench tidy

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run all tests, with the race detector if there is a C compiler, installing Redis and nginx if they are missing
	sh scripts/install.sh redis-server nginx
	SASH_REQUIRE_REDIS=1 SASH_REQUIRE_NGINX=1 go test $(RACE) -shuffle=on ./...
	cd core/jwtkey/recipes && go test $(RACE) -shuffle=on ./...
	cd core/benchmarks && SASH_REQUIRE_REDIS=1 go test -shuffle=on ./...
	$(MAKE) test-faults

test-faults: ## Make Redis fail in every way there is, and print what happens: 3 minutes
	sh scripts/install.sh redis-server
	cd core/redisstore/faults && SASH_FAULTS=1 SASH_REQUIRE_REDIS=1 go test $(RACE) -count=1

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
