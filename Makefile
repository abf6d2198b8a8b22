# `make test` is what CI runs: it installs what the tests need where it can (root on Debian), and says what is
# missing where it cannot. Anything that takes long or measures speed has a target of its own.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
PREFIX ?= /usr/local
CARGO ?= cargo
FUZZ_SECONDS ?= 60

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: test
test: ## install what is missing, build everything, run every test
	tests/needs
	tests/run-all

.PHONY: test-loom
test-loom: ## every interleaving of the queues of guasi
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --locked -p guasi --release --lib

.PHONY: test-auth
test-auth: ## authentication against a Linux kernel that is compiled for it: 140 MB and some minutes the first time
	RIG_KERNEL=$$(rigs/nvme-auth-kernel.sh) PATH=$$PATH:/usr/sbin $(CARGO) test --locked --test serve_kernel authentication -- --ignored

.PHONY: test-slurm
test-slurm: ## a job of Slurm's on four hosts of our own, by srun (root; Debian's slurmctld slurmd slurm-client munge)
	$(CARGO) build --release --locked --features mpi
	rigs/slurm.sh target/release/plimsoll

.PHONY: lint
lint: ## what a change must pass beside the tests
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (needs cargo-fuzz and a nightly toolchain)
	@command -v cargo-fuzz > /dev/null || { echo "make fuzz needs cargo-fuzz: cargo install cargo-fuzz"; exit 1; }
	cd fuzz && for target in $$(cargo fuzz list); do cargo fuzz run "$$target" -- -max_total_time=$(FUZZ_SECONDS); done

.PHONY: bench
bench: ## measure against the peers, both sides in one run, on a quiet machine
	$(CARGO) build --release --locked
	bench/versus_fio.py --plimsoll target/release/plimsoll

.PHONY: docs
docs: ## write docs/options.md, manual pages and completions (target/docs) from the tables of the program
	$(CARGO) build --release --locked
	target/release/plimsoll man --options > docs/options.md
	target/release/plimsoll rpc --markdown > docs/rpc.md
	target/release/plimsoll man --dir target/docs
	for shell in bash zsh fish; do target/release/plimsoll completions $$shell > target/docs/plimsoll.$$shell; done

.PHONY: libguasi
libguasi: ## libguasi.so.0 with its headers, ready to link against, in target/guasi
	crates/guasi/link-shared.sh target/guasi release

.PHONY: install
install: docs ## the program, its interposer, manual pages and completions, below PREFIX
	install -Dm755 target/release/plimsoll $(DESTDIR)$(PREFIX)/bin/plimsoll
	ln -sf plimsoll $(DESTDIR)$(PREFIX)/bin/gfapi_perf_tool
	ln -sf plimsoll $(DESTDIR)$(PREFIX)/bin/fsperf
	install -Dm755 target/release/libiotrap.so $(DESTDIR)$(PREFIX)/lib/libiotrap.so
	ln -sf libiotrap.so $(DESTDIR)$(PREFIX)/lib/iotrap.so
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m644 target/docs/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	install -Dm644 target/docs/plimsoll.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/plimsoll
	install -Dm644 target/docs/plimsoll.zsh $(DESTDIR)$(PREFIX)/share/zsh/site-functions/_plimsoll
	install -Dm644 target/docs/plimsoll.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/plimsoll.fish

.PHONY: fio-engine
fio-engine: ## fio-guasi.so, the external engine for the installed fio, in target/guasi
	compat/fio/build.sh target/guasi release

PREFIX ?= /usr/local
.PHONY: install-guasi
install-guasi: libguasi ## libguasi, its headers, manual page and pkg-config file, under PREFIX
	crates/guasi/install.sh target/guasi $(PREFIX)
