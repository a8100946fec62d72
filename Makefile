# What a developer and CI run. Needs Go 1.26, make, git and bash; everything else is built from source through the Go
# module proxy into .engines/, once, at pinned versions (tools/versions). The targets are thin: each is a script that can
# be called by itself, and says in its head why it is there.

.DEFAULT_GOAL := help
.PHONY: help demo dev build engines tools test lint check-docs floors bench soak fmt tidy clean clean-all

help: ## Say what can be made
	@printf 'make TARGET…\n\n'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@printf '\nThe first of demo, dev, engines and test compiles the Temporal server: 4 to 8 minutes on two cores.\n'
	@printf 'The first lint builds the linters: about 4 minutes more.\n'

demo: engines ## Show it: an embedded Temporal with its UI, a projection, an outbox that drains
	.engines/bin/rowfold-dev demo

dev: engines ## Start the embedded Temporal with its UI and a worker of the example, and keep it running
	.engines/bin/rowfold-dev dev

build: ## Compile every package of the root module, and the command into .engines/bin/rowfold
	go build ./...
	@if [ -d cmd/rowfold ]; then go build -o .engines/bin/rowfold ./cmd/rowfold; fi

engines: ## Build the dev server, .engines/bin/rowfold-dev, if its sources changed
	@scripts/engines

tools: ## Build the pinned development tools into .engines/tools
	@scripts/tools

test: engines ## Run every test of every module, with the race detector (ARGS='-run Fold -v' narrows it)
	@scripts/test $(ARGS)

lint: ## Run every check that runs no test (ARGS='golangci floors' narrows it)
	@scripts/lint $(ARGS)

check-docs: ## Find exported names without a comment and packages without a doc.go
	@scripts/lint docs

floors: ## Find packages that reach a higher floor
	@scripts/lint floors

bench: engines ## Run the benchmarks and compare them with the run before (ARGS='-bench Fold' narrows it)
	@scripts/bench $(ARGS)

soak: engines ## Run the kill tests at length (ROWFOLD_KILLS=200)
	@scripts/soak

fmt: ## Format the Go files
	@scripts/fmt

tidy: ## Bring every go.mod and go.sum in line with the sources
	@scripts/each-module go mod tidy

clean: ## Remove what was built and what the engines left, but not the tools
	rm -rf .engines/bin .engines/data .engines/bench

clean-all: clean ## Remove the pinned tools, too
	rm -rf .engines
