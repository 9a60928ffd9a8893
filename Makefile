# The entry points; the work is done by scripts/ and CMake. `make help` lists them.

TESTS_ASAN = asan-ubsan:!e2e,!long
TESTS_TSAN = tsan:!long
TESTS_DEV = dev:e2e,!long
SECONDS = 60
ONLY =

.PHONY: all help demo test test-long check format docs bench fuzz clean

all: ## build the program: build/tidings
	@scripts/install-deps build
	@scripts/build release

demo: all ## build, then run the orders demonstration
	@scripts/install-deps demo
	@test -e examples/orders/demo.py || { echo "make demo: examples/orders/demo.py is not in this tree" >&2; exit 1; }
	@python3 examples/orders/demo.py build/tidings

test: ## run every test but the long ones; ONLY=regex picks programs
	@scripts/install-deps build test
	@scripts/build asan-ubsan
	@scripts/build tsan
	@scripts/build dev
	@scripts/run-tests $(if $(ONLY),--only '$(ONLY)') '$(TESTS_ASAN)' '$(TESTS_TSAN)' '$(TESTS_DEV)'

test-long: ## run the tests that take minutes
	@scripts/install-deps build test
	@scripts/build dev
	@scripts/run-tests $(if $(ONLY),--only '$(ONLY)') dev:long

check: ## format, tidy, include arrows, header labels, lengths, banned calls, stale pages
	@scripts/install-deps build test check
	@scripts/build dev
	@scripts/check/all

format: ## format every C file in place
	@scripts/install-deps check
	@python3 scripts/check/format.py --fix

docs: ## write the generated reference pages
	@scripts/install-deps build test
	@scripts/build dev
	@scripts/generate-docs

bench: all ## measure: runs bench/run with the release program
	@test -x bench/run || { echo "make bench: bench/run is not in this tree" >&2; exit 1; }
	@bench/run build/tidings

fuzz: ## run every fuzzer for SECONDS=n each (60)
	@scripts/install-deps build fuzz
	@scripts/build fuzz
	@scripts/run-fuzz $(SECONDS)

clean: ## remove everything that was built
	@rm -rf build .cache

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 12
