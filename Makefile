# demo and test need nothing prepared by hand: the scripts install and build what they use. test needs root, demo only where there is no cluster.
.PHONY: build demo test lint clean

build:
	go build -trimpath -o build/slurmgate ./cmd/slurmgate

demo:
	@scripts/demo

test:
	@scripts/test

lint:
	@scripts/test lint

# Debian root and clusters of scripts/devcluster stay; `scripts/devcluster purge` removes those.
clean:
	rm -rf build
