# The four commands of a newcomer. Nothing here needs root, docker or a server.
.PHONY: setup setup-mlflow setup-ldap demo test test-full check test-long test-torch test-services test-gpu test-mutants

setup:        ## make .venv and install the pinned requirements
	@scripts/setup

setup-mlflow: ## add MLflow's server, in an environment of its own; `manage.py up` starts it when it is there
	@scripts/setup-mlflow

setup-ldap:   ## add log-in with an LDAP directory; compiles python-ldap, and says what that needs
	@scripts/setup-ldap

demo: setup   ## start everything on this machine and play the tutorial; ARGS="--port 8123" for example
	@.venv/bin/python manage.py up --demo $(ARGS)

test:         ## the whole suite; ARGS="tests/jobs -k submit" for a part
	@scripts/test $(ARGS)

test-full: check test-long test-services  ## all of them; `make -k test-full` goes on after a part that failed

check:        ## formatting, lint, types and the suite, which looks for new counterexamples
	@scripts/check --hypothesis-profile=exploring

test-long:    ## the tests that take half a minute or more each
	@scripts/setup --dev
	@scripts/setup-mlflow
	@.venv/bin/python -m pytest -n 2 --dist loadfile -m "long and not services"

test-torch:   ## tests/runtime with the oldest and the newest torch that elastic scripts may have
	@scripts/test-torch

test-services: ## the tests against PostgreSQL and Redis, the long ones too
	@scripts/test-services -m services

test-gpu:     ## acceptance of this machine's GPUs, about ten minutes; ARGS="--cpu" lets CPU processes stand in for them
	@scripts/setup --dev
	@.venv/bin/python -u -m benchmarks.gpu_acceptance $(ARGS)

test-mutants: ## plant each small mistake in the scheduler and name those that no test finds; ARGS="scheduling.policies*"
	@scripts/setup --dev
	@.venv/bin/mutmut run --max-children 2 $(ARGS)
	@.venv/bin/mutmut results
