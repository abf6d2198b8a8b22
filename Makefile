# `make ci` is what CI runs. `make check` is for in between: it needs no root, no rig and no installation.
# CONTRIBUTING.md explains when to run which.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
PREFIX ?= /usr/local
# Where cargo builds: every rule and every script of this tree looks there.
TARGET := $(or $(CARGO_TARGET_DIR),target)
CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 3600

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: check
check: ## the loop of a contributor: format and the tests that need no root, no rig and no installation
	$(CARGO) fmt --all --check
	tests/lint/language.py
	$(CARGO) test --locked --workspace --quiet --lib --bins --test bad_input --test compare --test documents \
		--test iolog --test layout --test logs --test report --test run_json --test sim --test verify

.PHONY: lint
lint: ## format, warnings, documentation, dependencies, scripts, language
	tests/needs lint
	tests/run-lint

.PHONY: test
test: ## install the programs that are missing, build everything, run every test
	tests/needs test
	tests/run-all

.PHONY: ci
ci: ## lint and test; the last line counts both
	tests/needs lint test
	$(MAKE) --no-print-directory test-loom
	@failed=0; tests/run-lint || failed=$$?; LINT_FAILED=$$failed tests/run-all

.PHONY: truth
truth: ## run and sweep on storage of known law (root, a quiet machine): a FUSE server, and a loop device that the kernel throttles
	$(CARGO) test --locked --test truth -- --include-ignored --nocapture --test-threads 1

.PHONY: sim-truth
sim-truth: ## the simulator's fit against the program's own target (a quiet machine): half of the points predict the others, ten minutes at most
	$(CARGO) test --locked --test sim_truth --no-run
	timeout 600 $(CARGO) test --locked --test sim_truth -- --include-ignored --nocapture --test-threads 1

.PHONY: coverage
coverage: ## the intervals on synthetic truth: sweeps with a known load line (20,240), with a known limit (14,000), traffic (11,000), change points (20,000)
	$(CARGO) test --locked -p measure --release --test coverage -- --nocapture
	COVERAGE_RUNS=1000 $(CARGO) test --locked -p measure --release --test limits -- --nocapture
	COVERAGE_RUNS=1000 $(CARGO) test --locked -p observe --release --test coverage -- --nocapture
	HISTORY_RUNS=10000 $(CARGO) test --locked -p measure --release --lib change:: -- --nocapture

.PHONY: test-loom
test-loom: ## every interleaving of the queues of guasi, and of its workers, signals and cancellations: seconds once built
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom timeout 600 $(CARGO) test --locked -p guasi --release --lib

.PHONY: test-stress
test-stress: ## six minutes of cancelled calls in guasi, and its C programs under ThreadSanitizer
	for run in 1 2 3 4 5 6; do \
		GUASI_STRESS_SECONDS=60 timeout 120 $(CARGO) test --locked -p guasi --test api sixteen_blocked -- --nocapture; done
	$(CARGO) test --locked -p guasi --test c_abi thread_sanitizer

.PHONY: test-guest
test-guest: ## kernels of Debian as hosts, as a target and with emulated drives, all of it: some minutes of emulation, less with KVM
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked --test serve_kernel --test reservations_kernel --test blktests --test nvmet --test nvme_cli --test device_commands --test tls_kernel --test rdma_kernel --test nvmet_rdma --test rdma_own --test zoned --test guest_disks -- --include-ignored --test-threads 1
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked -p load --test conformance -- --ignored on_the_target_of_linux --test-threads 1
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked -p verbs --test guest -- --ignored soft_roce
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked -p nvme_target --test target_rdma --test target_rdma_hostile -- --ignored soft_roce

.PHONY: test-auth
test-auth: ## authentication against the initiator of Debian 13's kernel
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked --test serve_kernel authentication

.PHONY: test-power
test-power: ## a thousand power failures below a target's file and its state, and kills of it (root): some minutes
	PATH=$$PATH:/usr/sbin POWER_FAILURES=1000 $(CARGO) test --locked --test power_loss
	STATE_KILLS=500 $(CARGO) test --locked --test serve_state -- random

.PHONY: soak
soak: ## a target under hostile peers, resets and namespaces that come and go, beside verified loads, for SOAK_SECONDS
	$(CARGO) build --release --locked
	rigs/soak.py $(TARGET)/release/plimsoll $(SOAK_SECONDS)

.PHONY: test-slurm
test-slurm: ## a job of Slurm's on four hosts of our own, by srun (root; Debian's slurmctld slurmd slurm-client munge)
	$(CARGO) build --release --locked --features mpi
	rigs/slurm.sh $(TARGET)/release/plimsoll

.PHONY: test-nfs-model
test-nfs-model: ## random programs under the interposer on real NFS, beside a model of their files (each version ends within 8 minutes)
	PATH=$$PATH:/usr/sbin $(CARGO) test --locked --test iotrap_holes -- --ignored --skip inside_ --nocapture random_on killed_on a_fence_on

.PHONY: test-calls
test-calls: ## 800,000 random calls with random arguments under the interposer and without it, in each of its ways (root): some minutes
	IOTRAP_CALLS_SEEDS=250 $(CARGO) test --locked -p iotrap --test trapped -- calls:: --nocapture --test-threads 1

.PHONY: test-programs
test-programs: ## programs of others without the interposer and with it; installs them (root, Debian)
	$(CARGO) build --release --locked --package plimsoll --package iotrap
	PLIMSOLL=$(TARGET)/release/plimsoll rigs/programs.sh

.PHONY: test-documents
test-documents: ## the commands of README and docs/ as they are written, each as a newcomer types it: some minutes
	$(CARGO) build --release --locked
	tests/as-written $(TARGET)/release

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (needs cargo-fuzz and a nightly toolchain)
	@command -v cargo-fuzz > /dev/null || { echo "make fuzz needs cargo-fuzz: cargo install cargo-fuzz"; exit 1; }
	cd fuzz && for target in $$(cargo fuzz list); do cargo fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS); done

.PHONY: bench
bench: ## measure against the peers, both sides in one run, on a quiet machine
	$(CARGO) build --release --locked
	bench/versus_fio.py --plimsoll $(TARGET)/release/plimsoll

.PHONY: docs
docs: ## write docs/options.md and docs/rpc.md from the tables of the program
	$(CARGO) build --locked
	$(TARGET)/debug/plimsoll man --options > docs/options.md
	$(TARGET)/debug/plimsoll rpc --markdown > docs/rpc.md

.PHONY: build
build: ## the release build with its manual pages and completions: what `make install` installs
	$(CARGO) build --release --locked
	packaging/pages $(TARGET)/release $(TARGET)/docs

.PHONY: install
install: ## install what `make build` has built, below PREFIX (DESTDIR is respected; FIO_LINK=1 adds a link named fio)
	packaging/install $(TARGET)/release $(TARGET)/docs "$(DESTDIR)" "$(PREFIX)"

.PHONY: uninstall
uninstall: ## remove what `make install` and `make install-guasi` installed
	packaging/uninstall "$(DESTDIR)" "$(PREFIX)"

.PHONY: deb
deb: build libguasi ## Debian packages in target/deb: plimsoll, libiotrap, libguasi0, libguasi-dev
	packaging/deb $(TARGET)/release $(TARGET)/docs $(TARGET)/guasi $(TARGET)/deb

.PHONY: deb-mpi
deb-mpi: build libguasi ## the packages, and plimsoll-mpi beside them (Debian: libopenmpi-dev openmpi-bin)
	CARGO_TARGET_DIR=$(abspath $(TARGET))/mpi $(CARGO) build --release --locked --features mpi --bin plimsoll
	packaging/deb $(TARGET)/release $(TARGET)/docs $(TARGET)/guasi $(TARGET)/deb $(TARGET)/mpi/release

.PHONY: libguasi
libguasi: ## libguasi.so.0 with its headers, ready to link against, in target/guasi
	crates/guasi/link-shared.sh $(TARGET)/guasi release

.PHONY: install-guasi
install-guasi: ## install what `make libguasi` has built: the library, its headers, manual page and pkg-config file
	@test -e $(TARGET)/guasi/libguasi.a || { echo "make install-guasi: nothing is built: run \`make libguasi\` first"; exit 1; }
	crates/guasi/install.sh $(TARGET)/guasi $(PREFIX)
	@[ -n "$(DESTDIR)" ] || echo "make install-guasi: run \`ldconfig\` once, so that programs find $(PREFIX)/lib/libguasi.so.0"

.PHONY: fio-engine
fio-engine: ## fio-guasi.so, the external engine for the installed fio, in target/guasi
	compat/fio/build.sh $(TARGET)/guasi release
