STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCILINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

GOVULNCHECK  := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Flags of govulncheck, such as -db file:///path/to/a/copy.
VULNFLAGS ?=

FUZZTIME ?= 30s

# What apidiff compares with: a tag or a commit, the latest release of each module if it is empty.
BASE ?=

# Set INSTALL=1 to install servers that are missing, with the package manager of the system, as CI=1 does.
INSTALL ?=
export INSTALL

# Adapters in modules of their own.
MODULES := echolimit/v5 fiberlimit/v3

# What has goroutines, for test-race.
RACING := ./core/... ./nethttp ./ginlimit ./echolimit ./chilimit ./fiberlimit

# What coverage counts: the library without what is only for tests.
COVERED = $(shell go list $(RACING) | \
	grep -v -e /core/coretest -e /redisserver$$ -e /faults$$ -e /testlen$$ -e /allocs$$ -e /timerlag$$ | paste -sd , -)

# What the tests of Redis run on, for test-engines: paths or names of redis-server and valkey-server binaries.
ENGINES ?=

# The newest of each dependency that the tests pass with, for test-latest.
LATEST := github.com/gin-gonic/gin@v1.12.0 github.com/go-chi/chi/v5@v5.5.0 github.com/golang-jwt/jwt/v5@v5.3.1 \
	github.com/labstack/echo/v4@v4.16.0 github.com/redis/go-redis/v9@v9.23.0 github.com/valyala/fasthttp@v1.78.0 \
	github.com/prometheus/client_golang@v1.25.0 go.opentelemetry.io/otel@v1.47.0 \
	go.opentelemetry.io/otel/metric@v1.47.0 go.opentelemetry.io/otel/sdk/metric@v1.47.0
LATEST_MODULES := echolimit/v5=github.com/labstack/echo/v5@v5.4.4 fiberlimit/v3=github.com/valyala/fasthttp@v1.78.0 \
	core/grpclimit=google.golang.org/grpc@v1.85.0

.DEFAULT_GOAL := help
.PHONY: help test test-race test-long test-all test-faults test-engines test-latest lint fuzz bench \
	images users coverage tidy vuln apidiff

help: ## Show this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Run the tests of every package, the long ones shortened: 3 minutes on two idle cores, 6 on a fresh clone
	@echo "make test: the tests of every package, the long ones shortened: 3 minutes on two idle cores, 6 on a fresh clone"
	@for program in redis-server nginx; do sh .ci/install.sh $$program || \
		echo "$$program cannot be installed here, so the tests that start it are skipped" >&2; done
	go test -short -shuffle=on -parallel 4 -timeout 10m ./... # -timeout is for each package; parallel tests wait for servers, mostly
	set -e; for module in $(MODULES); do go test -C $$module -short -shuffle=on -timeout 10m ./...; done

test-race: ## Run the tests of what has goroutines with the race detector, if there is a C compiler
	@echo "make test-race: packages with goroutines, with the race detector"
	@if sh .ci/race.sh; then sh .ci/install.sh redis-server && \
		export SASH_REQUIRE_REDIS=1 && \
		go test -vet=off -race -short -shuffle=on -parallel 4 -timeout 15m \
			$(RACING) && \
		for module in $(MODULES); do go test -C $$module -vet=off -race -short -shuffle=on ./... || exit 1; done; fi

test-long: ## Run all tests at full length, and those of the other modules and of Chromium
	@echo "make test-long: all tests of all modules at full length, with Chromium: about 8 minutes"
	sh .ci/install.sh redis-server nginx chromium
	SASH_REQUIRE_REDIS=1 SASH_REQUIRE_NGINX=1 go test -vet=off -shuffle=on -parallel 4 -timeout 30m \
		$$(go list ./... | grep -v /faults$$)
	@# The faults wait for timeouts, mostly, so the other modules are tested meanwhile.
	@set -e; export SASH_REQUIRE_REDIS=1 SASH_REQUIRE_CHROMIUM=1; \
	go test -vet=off -count=1 -timeout 30m ./core/redisstore/faults & faults=$$!; \
	for module in $(MODULES) core/jwtkey/recipes core/grpclimit examples/recipes core/benchmarks \
		examples/dashboard/browser; do go test -C $$module -shuffle=on ./...; done; \
	wait $$faults

test-all: test test-race test-long ## Run all of these

test-faults: ## Make Redis fail in every way there is, and print what happens: 3 minutes
	sh .ci/install.sh redis-server
	SASH_REQUIRE_REDIS=1 go test -v -count=1 -timeout 30m ./core/redisstore/faults

test-engines: ## Run the Redis tests on each server of ENGINES, such as ENGINES="redis-server /opt/valkey/valkey-server"
	@test -n "$(strip $(ENGINES))" || { echo "ENGINES names no server: make test-engines ENGINES=\"redis-server valkey-server\"" >&2; exit 2; }
	@failed=; for server in $(ENGINES); do \
		path=$$(command -v "$$server") || { echo "$$server: not found" >&2; failed="$$failed $$server"; continue; }; \
		path=$$(cd "$$(dirname "$$path")" && pwd)/$$(basename "$$path"); \
		echo "== $$path: $$("$$path" --version)"; \
		export SASH_REDIS_SERVER=$$path SASH_REQUIRE_REDIS=1; \
		go test -p 1 -count=1 -timeout 30m ./core/internal/redisserver ./core/redisstore && \
			go test -short -count=1 ./core/redisstore/faults || failed="$$failed $$server"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed on:$$failed" >&2; exit 1; fi

test-latest: ## Run what make test does, and all faults, with the newest dependencies (LATEST), leaving go.mod as it is
	sh .ci/install.sh redis-server nginx
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	cp go.mod "$$dir/latest.mod"; cp go.sum "$$dir/latest.sum"; \
	go get -modfile="$$dir/latest.mod" -t $(LATEST) ./...; \
	export GOFLAGS="$$GOFLAGS -modfile=$$dir/latest.mod" SASH_REQUIRE_REDIS=1 SASH_REQUIRE_NGINX=1; \
	go list -m $(foreach module,$(LATEST),$(firstword $(subst @, ,$(module)))); \
	go test -short -shuffle=on ./...; \
	go test -count=1 ./core/redisstore/faults
	@set -e; dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; export SASH_REQUIRE_REDIS=1; \
	for newest in $(LATEST_MODULES); do \
		module=$${newest%%=*}; \
		sed "s#=> ../..#=> $$PWD#" $$module/go.mod > "$$dir/latest.mod"; cp $$module/go.sum "$$dir/latest.sum"; \
		go get -C $$module -modfile="$$dir/latest.mod" -t $${newest#*=}; \
		go test -C $$module -modfile="$$dir/latest.mod" -short -shuffle=on ./...; \
	done

lint: ## Check formatting and run go vet, staticcheck and golangci-lint
	@unformatted=$$(gofmt -l .) && if [ -n "$$unformatted" ]; then \
		echo "gofmt these:"; echo "$$unformatted"; exit 1; fi
	@if git grep -nE '^.{121}' -- '*.lua'; then echo "break these lines of more than 120 columns"; exit 1; fi
	go vet ./...
	GOARCH=386 go vet ./...
	set -e; for module in $(MODULES) core/grpclimit; do go vet -C $$module ./...; GOARCH=386 go vet -C $$module ./...; done
	go run $(STATICCHECK) ./...
	go run $(GOLANGCILINT) run ./...

fuzz: ## Run each fuzz target for FUZZTIME (default 30s)
	@set -e; for package in $$(go list ./...); do \
		tests=$$(go test -list '^Fuzz' $$package); \
		for target in $$(echo "$$tests" | grep '^Fuzz'); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

images: ## Make the pictures of the pages in docs/images anew, with Chromium
	SASH_REQUIRE_CHROMIUM=1 SASH_IMAGES=$(CURDIR)/docs/images \
		go test -C examples/dashboard/browser -count=1 -run TestAccessibility .

bench: ## Measure beside other limiters: a quarter of an hour, or two minutes with BENCHFLAGS=-quick
	cd core/benchmarks && go run . $(BENCHFLAGS)

coverage: ## Print which share of the library's statements the short tests run: 10 minutes
	sh .ci/install.sh redis-server nginx
	@SASH_REQUIRE_REDIS=1 go test -short -timeout 15m -coverprofile=coverage.out -coverpkg=$(COVERED) $(RACING)
	@go tool cover -func=coverage.out | tail -n 1 | tee coverage.txt

users: ## Use the next release as its users will, and print what sash and other limiters add to a program: 3 minutes
	sh .ci/users.sh

vuln: ## Look for known vulnerabilities in what the released modules call
	go run $(GOVULNCHECK) $(VULNFLAGS) ./...
	set -e; for module in $(MODULES) core/grpclimit; do go run $(GOVULNCHECK) $(VULNFLAGS) -C $$module ./...; done

apidiff: ## Print how the exported APIs differ from BASE (default: the latest releases), and fail if that breaks programs
	@sh .ci/apidiff.sh $(BASE)

tidy: ## Check that go.mod and go.sum of every module are tidy
	@set -e; for mod in $$(find . -name go.mod); do \
		echo "$$mod"; (cd "$$(dirname "$$mod")" && go mod tidy -diff); \
	done
