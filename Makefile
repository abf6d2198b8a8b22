# `make test` is what CI runs. Anything that takes long or measures speed has a target of its own.

.PHONY: test
test: ## build everything and run every test
	cargo test --workspace --locked
