# What there is to do here. `make run` and `make test` set up what they need.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
LISTEN ?= 127.0.0.1:8080
# More arguments for the server (make run ARGS="--config amalgam.toml") or the benchmark (make bench ARGS=--quick).
ARGS ?=

# A server that `make dist` packs instead of building one.
BIN ?=

# How often `make soak` kills a server, on each of the two stores.
CYCLES ?= 1000

target := $(or $(CARGO_TARGET_DIR),target)

say = printf '\n==> %s\n' "$(1)"

.PHONY: help run release dist test check lint console widget soak bench fmt clean

help:
	@echo "make run     build and serve on http://$(LISTEN) with the demo model"
	@echo "make release build the server as it should be run in production: $(target)/dist/amalgam"
	@echo "make dist    pack it: tarball, Debian package, bill of materials; BIN=PATH packs an existing binary"
	@echo "make test    install what the tests need, then run all of them"
	@echo "make check   the quick loop: format, lints, documentation, Rust tests"
	@echo "make lint    format, lints and documentation, with warnings denied"
	@echo "make console build the web console: console/dist, which is committed"
	@echo "make widget  build the widget: widget/dist, which is committed"
	@echo "make soak    kill servers under load, $(CYCLES) times, and check what they promised"
	@echo "make bench   measure against a bare pass-through in the same run"
	@echo "make fmt     format the code"
	@echo "make clean   remove what was built and installed"

run:
	@scripts/setup.sh build
	@$(call say,building the server)
	AMALGAM_BUILD_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null || true) $(CARGO) build --locked --release -p amalgam
	@$(call say,serving on http://$(LISTEN))
	exec $(target)/release/amalgam serve --listen $(LISTEN) $(ARGS)

release:
	@scripts/setup.sh release
	scripts/release.sh

dist:
	@$(if $(BIN),true,scripts/setup.sh release)
	BIN=$(BIN) scripts/dist.sh

test:
	@$(call say,set-up)
	@scripts/setup.sh test
	@$(MAKE) --no-print-directory lint
	@$(call say,building)
	$(CARGO) build --locked -p amalgam
	@$(call say,Rust tests)
	scripts/postgres.sh run scripts/rust-tests.sh --locked
	@$(call say,real clients)
	AMALGAM_BIN=$(target)/debug/amalgam scripts/postgres.sh run tests/clients/run.sh
	@$(call say,the console)
	AMALGAM_BIN=$(target)/debug/amalgam tests/console/run.sh
	@$(call say,the widget)
	AMALGAM_BIN=$(target)/debug/amalgam tests/widget/run.sh
	@$(call say,packages)
	AMALGAM_BIN=$(target)/debug/amalgam tests/packages/run.sh
	@$(call say,all tests passed)

check: lint
	@$(call say,Rust tests)
	scripts/rust-tests.sh

lint:
	@$(call say,format)
	$(CARGO) fmt --all --check
	@$(call say,lints)
	$(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings
	@$(call say,documentation)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps --quiet

console:
	cd console && npm ci --no-audit --no-fund --ignore-scripts && npm run types && npm run check && npm run build

widget:
	cd widget && npm ci --no-audit --no-fund --ignore-scripts && npm run check && npm run build

soak:
	@scripts/setup.sh test
	scripts/soak.sh $(CYCLES)

bench:
	@scripts/setup.sh release
	bench/run.sh $(ARGS)

fmt:
	$(CARGO) fmt --all

clean:
	$(CARGO) clean
	rm -rf tests/clients/node_modules console/node_modules widget/node_modules examples/ide-client/node_modules examples/ide-client/dist
