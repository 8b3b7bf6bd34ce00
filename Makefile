# Kiln. Needs Go 1.26 and make, nothing else.

# make run
PROMPT = func (b *Buffer) $(empty)
N      = 96

# make bench
BENCH = .
PKGS  = ./...

# make fuzz, and the brief round inside make test
FUZZTIME = 30s

.DEFAULT_GOAL := help
.PHONY: help build run test test-long lint fuzz bench toolchain clean

help: ## show this text
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  %-10s  %s\n' "$$name" "$$text"; done
	@printf '\nvariables: PROMPT, N (run), FUZZTIME (fuzz), BENCH, PKGS (bench)\n'

build: ## build bin/kiln
	go build -trimpath -o bin/kiln ./cmd/kiln

# The prompt travels in a shell variable so that quotes in it stay text.
run: export PROMPT := $(PROMPT)
run: build ## complete PROMPT with the tiny checkpoint, N new tokens
	bin/kiln run --model testdata/tiny-dsv4 --prompt "$$PROMPT" --max-new-tokens $(N)

test: ## all tests, then every fuzz target for a few seconds
	go test -timeout 10m ./...
	scripts/fuzz.sh 3s

test-long: ## all tests and those of the build tag "long"
	go test -tags long -timeout 120m ./...

lint: ## gofmt, go vet and staticcheck, with and without the tag "long"
	scripts/gofmt-check.sh
	go vet ./...
	go vet -tags long ./...
	go tool staticcheck ./...
	go tool staticcheck -tags long ./...

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

bench: ## benchmarks, five runs each, with the machine's load before them
	uptime
	go test -run '^$$' -bench '$(BENCH)' -count 5 -timeout 60m $(PKGS)

toolchain: ## what this version needs besides Go and make
	@echo 'Nothing to fetch: this version runs models in the reference evaluator, which needs no LLVM.'

clean: ## remove what make built
	rm -rf bin
