# `make test` is what CI runs. Anything that takes long or measures speed has a target of its own.

.PHONY: test
test: ## build everything and run every test
	cargo test --workspace --locked

.PHONY: libguasi
libguasi: ## libguasi.so.0 with its headers, ready to link against, in target/guasi
	crates/guasi/link-shared.sh target/guasi release

.PHONY: test-loom
test-loom: ## every interleaving of the queues of guasi
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test --locked -p guasi --release --lib
