# One command per task, the same ones that CI runs. `make` alone lists them.

SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CARGO ?= cargo
provision := tests/servers/provision
# Most wanted first: what comes last may still be in the making when the tests are built.
servers := etcd-3.6 prometheus-3 alertmanager-0.28 etcd-3.4 prometheus-2 etcd-3.5 etcd-3.7 kubernetes-1.34 prometheus-adapter-0.12 helm-3 faketime
image_tools := musl umoci skopeo runc

# Tests on real servers mostly wait for them.
export RUST_TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# Started from here and not by `cargo run -p`, which would build again with other features.
built = $(or $(CARGO_TARGET_DIR),target)

# How many rounds `make bench` takes.
ROUNDS ?= 3

# etcd-client generates its code with protoc. Where there is none and nobody may install it, `make
# setup` unpacks one here; export PROTOC to use it outside of make.
cache = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/defragd/servers
unpacked_protoc = $(cache)/protoc-3.21.12/protoc
ifeq ($(shell command -v "$${PROTOC:-protoc}"),)
ifneq ($(shell id -u),0)
export PROTOC := $(unpacked_protoc)
endif
endif

.PHONY: help
help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: setup-tools ## install what building and testing needs: protoc, cargo's components, servers
	@image/build --setup
	@$(provision) $(image_tools) $(servers)
	@echo "setup: everything is there"

.PHONY: setup-tools
setup-tools: setup-cargo setup-protoc
	@for component in fmt clippy; do \
		$(CARGO) "$$component" --version >/dev/null 2>&1 && continue; \
		command -v rustup >/dev/null || { echo "setup: there is no cargo $$component, and no rustup to add it: install $${component/#fmt/rustfmt} beside this Rust, or Rust from https://rustup.rs" >&2; exit 1; }; \
		echo "setup: adding cargo $$component"; \
		rustup component add "$${component/#fmt/rustfmt}"; \
	done

# Rust links with cc, and the TLS library has C in it.
.PHONY: setup-cargo
setup-cargo:
	@command -v $(CARGO) >/dev/null || { echo 'setup: there is no cargo on the PATH: install Rust from https://rustup.rs' >&2; exit 1; }
	@command -v cc >/dev/null || { echo 'setup: there is no cc on the PATH: apt-get install gcc' >&2; exit 1; }

.PHONY: setup-protoc
setup-protoc:
	@command -v "$${PROTOC:-protoc}" >/dev/null && exit; \
	if [[ $$(id -u) == 0 ]] && command -v apt-get >/dev/null; then \
		echo "setup: installing protoc with apt-get"; \
		install=(apt-get -qq -o DPkg::Lock::Timeout=300 install --no-install-recommends protobuf-compiler libprotobuf-dev); \
		export DEBIAN_FRONTEND=noninteractive; \
		"$${install[@]}" >/dev/null 2>&1 || { apt-get -qq update; "$${install[@]}" >/dev/null; }; \
	elif command -v apt-get >/dev/null; then \
		$(provision) protoc; \
		echo "setup: to run cargo without make: export PROTOC=$(unpacked_protoc)"; \
	else \
		echo "setup: there is no \"protoc\" on the PATH: install the protobuf compiler, version 3.15 or newer" >&2; exit 1; \
	fi

.PHONY: build
build: setup-cargo setup-protoc ## build the release binary, target/release/defragd
	$(CARGO) build --locked --release

.PHONY: test
test: setup-tools ## build and run every test, on real servers
	@# Servers and tests are built side by side; whichever fails first ends both.
	@$(provision) $(image_tools) $(servers) & servers=$$!; \
	trap 'kill $$servers 2>/dev/null || true' EXIT; \
	$(CARGO) test --locked --workspace --no-run; \
	$(MAKE) image; \
	wait $$servers
	@# One failing target must not hide the others.
	$(CARGO) test --locked --workspace --no-fail-fast

.PHONY: lint
lint: setup-tools ## check format, lints, dependencies and scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@$(CARGO) deny --version >/dev/null 2>&1 || \
		{ echo 'lint: there is no "cargo deny": cargo install --locked cargo-deny' >&2; exit 1; }
	$(CARGO) deny --locked check bans licenses sources
	@if command -v shellcheck >/dev/null; then \
		set -x; shellcheck $(provision) image/build image/assemble .ci/run; \
	else \
		echo 'lint: scripts are not checked, there is no "shellcheck" (apt-get install shellcheck)'; \
	fi

.PHONY: audit
audit: ## look the dependencies up in the RustSec database, which needs its repository
	$(CARGO) deny --locked check advisories

.PHONY: image
image: image-root ## build the container image in target/image, without a container engine
	@digest=$$(image/assemble $(built)/image/root $(built)/image); \
	echo "image: $(built)/image/oci and $(built)/image/defragd.tar hold $$digest"

# What the image holds, for the Dockerfile.
.PHONY: image-root
image-root: setup-cargo setup-protoc
	@image/build

.PHONY: demo
demo: setup-cargo setup-protoc ## watch a policy sweep a real etcd cluster, in about two minutes
	@$(provision) --any etcd prometheus >/dev/null & servers=$$!; \
	trap 'kill $$servers 2>/dev/null || true' EXIT; \
	$(CARGO) build --locked -p defragd -p defragd-harness --bins; \
	wait $$servers
	@$(built)/debug/demo

.PHONY: demo-kubernetes
demo-kubernetes: setup-cargo setup-protoc ## watch the same on a real Kubernetes API server, with the chart and kubectl
	@# The objects of the API server are in an etcd 3.6, so that one is at hand for the story too.
	@$(provision) etcd-3.6 prometheus-3 kubernetes-1.34 helm-3 & servers=$$!; \
	trap 'kill $$servers 2>/dev/null || true' EXIT; \
	$(CARGO) build --locked -p defragd -p defragd-harness --bins; \
	wait $$servers
	@$(built)/debug/demo kubernetes

.PHONY: bench
bench: setup-cargo setup-protoc ## measure sweeps against bare defragmentation, ROUNDS=3 times, and controllers with 10,000 policies and with one for 1,000 clusters
	@$(provision) etcd-3.6 prometheus-3 kubernetes-1.34 & servers=$$!; \
	trap 'kill $$servers 2>/dev/null || true' EXIT; \
	$(CARGO) build --locked --release -p defragd -p defragd-harness --bins; \
	wait $$servers
	@$(built)/release/bench $(ROUNDS)
	@$(built)/release/bench controller
	@$(built)/release/bench fleet

.PHONY: crds
crds: setup-cargo setup-protoc ## write the CRDs of docs/reference and of the chart again, from the Rust types
	UPDATE_CRDS=1 $(CARGO) test --locked --quiet --lib crds

.PHONY: clean
clean: ## remove what was built here; the servers stay in their cache
	$(CARGO) clean
	@echo "clean: servers are kept in $(cache)"
