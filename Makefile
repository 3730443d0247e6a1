# demo and test need nothing prepared by hand: the scripts install and build what they use. test needs root, demo only where there is no cluster.
.PHONY: build demo test lint chaos bench-rpc bench-submit bench-faces mcp-conformance openapi-client fuzz clean
N ?= 300
SEED ?= 1
TIME ?= 1m
# SQLite syncs its log with fdatasync only where it is told that there is one. With fsync each commit writes the file's inode too.
export CGO_CFLAGS ?= -O2 -g -DHAVE_FDATASYNC=1

build:
	go build -trimpath -o build/slurmgate ./cmd/slurmgate

demo:
	@scripts/demo

test:
	@scripts/test

lint:
	@scripts/test lint

# Every parser against generated input, TIME for each.
fuzz:
	@scripts/fuzz $(TIME)

# The crash campaign, on a cluster of its own: N cases of the seed SEED. Root; about four seconds a case.
chaos:
	@go run ./chaos -n $(N) -seed $(SEED)

# What the gateway costs Slurm in RPCs, and what it costs beside Slurm's own commands; on a cluster of its own.
bench-rpc:
	@go run ./bench rpc

bench-submit:
	@go run ./bench submit

# Clients nobody here wrote, against the face for chats: the protocol's own conformance suite and inspector, and a load of calls. npm.
mcp-conformance:
	@scripts/mcp-conformance

# A client that a public generator makes of the OpenAPI document drives a whole run on the cluster of the tests. npm, root.
openapi-client:
	@go test -tags npm -count=1 -v -run TestGeneratedClient ./e2e

# What the faces cost beside a bare handler and the SDK's echo, and 500 clients on a ledger of 100,000 runs; on a cluster of its own.
bench-faces:
	@go run ./bench faces

# Debian root and clusters of scripts/devcluster stay; `scripts/devcluster purge` removes those.
clean:
	rm -rf build
