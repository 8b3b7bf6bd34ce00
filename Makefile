# Kiln. Needs Go 1.26 and make; LLVM is found on the machine or fetched below
# .toolchain, see docs/toolchain.md.

# make run
PROMPT = func (b *Buffer) $(empty)
N      = 96
DEVICE =

# make bench
BENCH = .
PKGS  = ./...

# Where make toolchain puts LLVM. TOOLCHAIN=none does without: tests that need LLVM
# are skipped.
TOOLCHAIN = .toolchain/llvm

# The example that is a module of its own, as a user's would be: ./... does not go
# there.
OWN = examples/custompass

# make fuzz; .ci/run gives each target less
FUZZTIME = 30s

.DEFAULT_GOAL := help
.PHONY: help build run test test-long lint fuzz bench toolchain clean

help: ## show this text
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do printf '  %-10s  %s\n' "$$name" "$$text"; done
	@printf '\nvariables: PROMPT, N, DEVICE (run; host, emu, or ref, which needs no LLVM), FUZZTIME (fuzz), BENCH, PKGS (bench), TOOLCHAIN (none: no LLVM)\n'

build: ## build bin/kiln
	@echo 'go build -trimpath -o bin/kiln ./cmd/kiln'
	@scripts/beat.sh 'building (the first time takes a minute)' go build -trimpath -o bin/kiln ./cmd/kiln

# kiln looks in .toolchain/llvm by itself. The prompt travels in a shell variable so
# that quotes in it stay text.
ELSEWHERE = $(if $(filter ref,$(DEVICE)),,$(filter-out none .toolchain/llvm,$(TOOLCHAIN)))
run: export TEXT := $(if $(filter file,$(origin PROMPT)),$(PROMPT),$(value PROMPT))
run: build $(if $(filter ref,$(DEVICE)),,toolchain) ## complete PROMPT with the tiny checkpoint, N new tokens, on DEVICE
	bin/kiln run --model testdata/tiny-dsv4 --prompt "$$TEXT" --max-new-tokens $(N)$(if $(DEVICE), --device $(DEVICE))$(if $(ELSEWHERE), --llvm '$(ELSEWHERE)')
	@scripts/next.sh '$(DEVICE)' '$(ELSEWHERE)'

test: toolchain ## all tests, the seeds of the fuzz targets included
	go test -timeout 20m ./...
	go test -C $(OWN) -timeout 10m ./...

test-long: toolchain ## all tests and those of the build tag "long"
	go test -tags long -timeout 120m ./...
	go test -C $(OWN) -timeout 10m ./...

lint: ## gofmt, go vet, staticcheck and kilnvet, with and without the tags "long" and "gpu"
	scripts/gofmt-check.sh
	go vet ./...
	go vet -tags long ./...
	go tool staticcheck ./...
	go tool staticcheck -tags long ./...
	go vet -tags gpu ./runtime/... ./codegen/kernels
	go tool staticcheck -tags gpu ./runtime/... ./codegen/kernels
	go build -o bin/kilnvet ./cmd/kilnvet
	go vet -vettool=bin/kilnvet ./...
	go vet -vettool=bin/kilnvet -tags long ./...
	go vet -C $(OWN) ./...
	go vet -C $(OWN) -vettool=$(CURDIR)/bin/kilnvet ./...
	staticcheck="$$(go tool -n staticcheck)" && cd $(OWN) && "$$staticcheck" ./...

fuzz: ## every fuzz target for FUZZTIME
	scripts/fuzz.sh $(FUZZTIME)

bench: toolchain ## benchmarks, five runs each, with the machine's load before them
	uptime
	go test -run '^$$' -bench '$(BENCH)' -count 5 -timeout 60m $(PKGS)

# As the prerequisite of another target it is silent when there is nothing to do.
toolchain: ## find or fetch LLVM for TOOLCHAIN (75 MB to download, 240 MB unpacked)
	@$(if $(filter none,$(TOOLCHAIN)),,scripts/get-llvm.sh $(if $(filter $@,$(MAKECMDGOALS)),,--quiet) '$(TOOLCHAIN)')

clean: ## remove what make built
	rm -rf bin
