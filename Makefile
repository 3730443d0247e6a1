# demo and test need no preparation: the scripts install and build what they use. test needs root; demo needs it only where there is no cluster.
.PHONY: build demo check test deep tools registry matrix lint chaos thousand bench-rpc bench-submit bench-faces bench-fair bench-staging bench-data bench-lists bench-batch bench-chain bench-chat mcp-conformance mcp-upstream openapi-client fuzz mutants lines model packages clean
N ?= 300
SAMPLES ?= 200
RUNS ?= 1000000
SEED ?= 1
FILES ?= 100000
TIME ?= 1m
# SQLite uses fdatasync for its log only when this macro is defined. With fsync each commit writes the file's inode too.
export CGO_CFLAGS ?= -O2 -g -DHAVE_FDATASYNC=1

# What slurmgate version prints. A release sets VERSION.
VERSION ?= $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
BIN ?= build/slurmgate

build:
	go build -ldflags "-X main.release=$(VERSION) -X main.commit=$(COMMIT)" -o $(BIN) ./cmd/slurmgate

# A static program for every distribution, deb, rpm, bill of materials and checksums, in build/packages. Needs musl-tools, or root.
packages:
	@VERSION="$(VERSION)" COMMIT="$(COMMIT)" scripts/packages

# SITE=ssh and SITE=dtn show it with the gateway outside of the cluster, SITE=rest and SITE=rest-sftp with slurmrestd, SITE=caller with two users whose
# jobs are their own.
demo:
	@SITE="$(SITE)" scripts/demo

# Before each commit: lint and the packages' own tests, without root and without a cluster.
check:
	@scripts/test check

test:
	@scripts/test

# What make test leaves out: the race detector, the other end-to-end tests, deb and rpm, sixty cases of the crash campaign, the suites of MCP. Needs root and npm.
deep:
	@scripts/test deep

# Every tool of the genomics domain on the tests' cluster, held to the same programs run directly, the chain from reads to variants, samples that meet, and one over SFTP and over
# slurmrestd. Builds all its images first: twenty minutes and 600 MB once. Needs root.
tools:
	@go test -tags tools -count=1 -timeout 60m -v -run 'TestEveryToolAgainstDirect|TestReadsToVariants|TestSamplesMeet|TestGenomicsElsewhere' ./e2e

# Images from Debian's docker-registry with TLS and a password. Needs the package docker-registry.
registry:
	@go test -tags registry -count=1 -v -run 'TestRegistryProgram$$' ./apptainer/oci

# The demo and the core suite on Slurm 22.05, 24.11 and 26.05, with the gateway on the login node and outside of the cluster, and on a network filesystem.
# Needs root.
matrix:
	@scripts/matrix

lint:
	@scripts/test lint

# Fuzz every parser, TIME for each.
fuzz:
	@scripts/fuzz $(TIME)

# The crash campaign, on a cluster of its own: N cases of the seed SEED, divided among cli+shared, ssh+sftp (login), ssh+sftp (dtn), rest+shared
# and rest+sftp. Needs root; about four seconds a case.
chaos:
	@go run ./chaos -n $(N) -seed $(SEED)

# A thousand runs in one job array, whatever becomes of its sbatch; on a real cluster.
thousand:
	@go test -tags thousand -count=1 -timeout 60m -v -run 'TestThousand$$' ./e2e

# How many RPCs the gateway costs Slurm, and what it costs beside Slurm's own commands; on a cluster of its own.
bench-rpc:
	@go run ./bench rpc

bench-submit:
	@go run ./bench submit

# Third-party MCP clients against /mcp: the protocol's own conformance suite and inspector, and a load test. Needs npm.
mcp-conformance:
	@scripts/mcp-conformance

# The adapter in front of the reference MCP server from the npm registry. Needs npm and Node 20.
mcp-upstream:
	@go test -tags npm -count=1 -v -run TestEverything ./adapter

# A client generated from the OpenAPI document by a public generator drives a whole run on the tests' cluster. Needs npm and root.
openapi-client:
	@go test -tags npm -count=1 -v -run TestGeneratedClient ./e2e

# What HTTP and MCP cost beside a bare handler and the SDK's echo tool, and 500 clients on a ledger of 100,000 runs; on a cluster of its own.
bench-faces:
	@go run ./bench faces

# Every order of the protocol's steps within a bound: up to three faults. go test ./docs/model has two.
model:
	@go run ./docs/model

# How much longer a caller's run takes behind 160 runs of another caller, of its project and of another one; on a cluster of its own. About four minutes.
bench-fair:
	@go run ./bench fair

# Transfers over SFTP beside OpenSSH's scp and sftp, at 0 ms and at 20 ms, and copies beside cp and openssl; on a cluster of its own.
bench-staging:
	@go run ./bench staging

# Imports beside cp and openssl dgst, their memory, what an input that three tools use takes on the disk, by strength, and a directory of FILES files. On this
# host, without a cluster; needs about 25 GB below TMPDIR. Then such a directory goes into a job and comes back, shared and over SFTP, on the tests' cluster. Needs root.
bench-data:
	@go run ./bench data -files $(FILES)
	@FILES=$(FILES) go test -tags many -count=1 -timeout 120m -v -run 'TestManyFiles$$' ./e2e

# Lists, filters, pages and totals over a million runs in a real ledger, the status and the table of a batch of 10,000 rows, and the memory for them. On this host,
# without a cluster; about 3 GB below TMPDIR.
bench-lists:
	@go test -count=1 -timeout 60m -v -run 'TestLists$$' ./app -args -lists.runs=$(RUNS) -lists.judge

# A sheet of N samples on the tests' cluster, in arrays: time, RPCs, memory, and collecting beside cp. Needs root.
bench-batch:
	@BATCH_ROWS=$(N) go test -tags large -count=1 -timeout 10h -v -run 'TestManySamples$$' ./e2e

# A chain of three tools over SAMPLES samples on the tests' cluster, in arrays: time, RPCs, memory. Needs root.
bench-chain:
	@BATCH_ROWS=$(SAMPLES) go test -tags large -count=1 -timeout 3h -v -run 'TestManyChains$$' ./e2e

# What a chat costs its model: bytes of the list of tools at 3, 20 and 200 tools, calls and bytes for twelve samples and for a file by its name; on the
# tests' cluster, about a minute.
bench-chat:
	@go test -count=1 -v -run 'TestChatEconomy$$|TestBatch$$' ./e2e | grep -E '^(name=|---|FAIL|ok)'

# Break promises of the program on purpose, one at a time: a short test of the package must notice each. About ten minutes. MUTANTS="NAME..." tries some.
mutants:
	@go run ./scripts/mutants $(MUTANTS)

# How many lines and tokens of Go each package of the product gained or lost since the commit FROM.
lines:
	@go run ./scripts/lines $(FROM) $(TO)

# The Debian root and the clusters of scripts/devcluster remain; `scripts/devcluster purge` removes them.
clean:
	rm -rf build
