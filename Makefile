# The four commands of a newcomer. Nothing here needs root, docker or a server.
.PHONY: setup demo test test-full

setup:        ## make .venv and install the pinned requirements
	@scripts/setup

demo: setup   ## start everything on this machine and play the tutorial; ARGS="--port 8123" for example
	@.venv/bin/python manage.py up --demo $(ARGS)

test:         ## the whole suite; ARGS="tests/jobs -k submit" for a part
	@scripts/test $(ARGS)

test-full:    ## formatting, lint, types, the suite, the long tests, and those against PostgreSQL and Redis
	@scripts/check --hypothesis-profile=exploring
	@.venv/bin/python -m pytest -m "long and not services"
	@scripts/test-services -m services
