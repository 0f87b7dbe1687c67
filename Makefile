# Warren's commands. `make` alone lists them. Only Node 20.19 or newer, git and make have to be there.
.DEFAULT_GOAL := help
.PHONY: help install build emit demo up down test test-long test-brokers chaos bench bench-api bench-dead-letters bench-flows bench-retention scale-sim golden release fix lint check k8s-pools k8s-validate clean-stack
MAKEFLAGS += --no-print-directory
STACK := node dist/deploy/local-stack/main.js

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' Makefile

install: ## install the npm packages that package-lock.json names, if they are not there
	@sh deploy/local-stack/install.sh

build: install ## compile to dist/
	@npm run --silent build

demo: build ## run the sample workload through a fleet of its own, replay a dead letter, check the books, stop
	@$(STACK) run -- node dist/scripts/demo.js

up: build ## start a fleet and leave it running
	@$(STACK) run --keep -- node dist/scripts/up.js

down: build ## stop what `make up` started
	@node dist/scripts/down.js
	@$(STACK) stop

test: emit ## check, lint and run every test against a real broker and a real database
	@node dist/scripts/test-run.js $(TEST_FLAGS)

test-long: emit ## the same, with the cases that take real time
	@node dist/scripts/test-run.js --long $(TEST_FLAGS)

test-brokers: emit ## the same, with integration on 3.10 and 4.3 or each of WARREN_TEST_AMQP_URLS, faults and chaos on the newest, packages and image
	@node dist/scripts/test-run.js --brokers $(TEST_FLAGS)

chaos: build ## kill, freeze, cut and restart all under load, then check every invariant (CHAOS_SECONDS, CHAOS_SEED, CHAOS_BROKER)
	@node dist/test/chaos/main.js

# As `build`, but a fault of the types does not end it: the test run names it among its results.
emit: install
	@npm run --silent build >/dev/null || node dist/scripts/copy-assets.js

bench: build ## measure throughput, latency and memory against the aims
	@$(STACK) run -- node dist/test/bench/main.js

bench-api: build ## measure looking, listing, submitting and processing beside millions of tasks against the aims
	@$(STACK) run -- node dist/test/bench/api/main.js; api=$$?; $(STACK) run -- node dist/test/bench/retention/main.js && exit $$api

bench-dead-letters: build ## measure recording, grouping, listing and replaying dead letters against the aims
	@$(STACK) run -- node dist/test/bench/dead-letters/main.js

bench-flows: build ## measure what flows cost against plain tasks
	@$(STACK) run -- node dist/test/bench/flows/main.js

bench-retention: build ## the last part of bench-api alone: throughput beside ten million finished tasks against none
	@$(STACK) run -- node dist/test/bench/retention/main.js

scale-sim: build ## scale real workers by the ScaledObject under square, ramp and burst loads: by depth, and by the workers wanted
	@$(STACK) run -- node dist/test/scale-sim/main.js

release: build ## pack client and command line, list what they stand on (SBOM), install and try them: dist/release
	@node dist/scripts/release.js

golden: build ## write the golden files anew
	@$(STACK) run -- node dist/scripts/golden.js

k8s-pools: build ## write the manifests of the pools of workers that k8s/overlays/*/pools.yaml names, and of the alerts
	@node dist/scripts/k8s-pools.js

k8s-validate: build ## render every overlay of k8s/ and check it by the schemas of its kinds and by our own rules
	@node dist/scripts/k8s-validate.js

fix: install ## format, and mend what lint can mend
	@npm run --silent fix

lint: install ## find faults without running anything
	@npm run --silent lint

check: install ## check the types
	@npm run --silent check

clean-stack: build ## stop the private servers and remove their data
	@$(STACK) reset --name dev
	@$(STACK) reset --name test
	@$(STACK) reset --name chaos
