// Package export writes what the gateway has of a finished run as one file, and checks such a file where there is no gateway.
//
// The file is a ZIP archive whose root is a Process Run Crate 0.5 (RO-Crate 1.1). It is a function of the run's records alone: no clock,
// no name of the caller who exports, nothing that happened after the run's end. So the same run gives the same bytes, until the gateway
// signs with another key.
//
//	run.json               the run: identity, how it ended, its files; what the other documents are about
//	params.json            the plan: canonical params, whose hash is part of the run's id
//	policy.json pack.json  the policy snapshot and the definition of the toolpack, under their hashes
//	job-script.sh          the job script as it was sent, without the site's paths
//	pinned.sha256          image and inputs as they were pinned; outputs.sha256: the outputs as they were collected
//	exit.json              how each attempt ended
//	events.jsonl           the run's history up to its end, with the hashes of the chain
//	in/… out/… logs/…      artifacts, where they are not by reference
//	receipt.dsse.json      the receipt of the run's end, signed when it ended
//	nextflow/              a module that repeats the run
//	ro-crate-metadata.json README.md
//	MANIFEST               sha256 of every other file, as sha256sum -c reads it
//	MANIFEST.dsse.json     the gateway's signature of MANIFEST and of the archive's format; keys.json has the public keys
//
// The archive of a batch holds those of its runs; see [Batch].
//
// Nouns: a record is what the gateway has of the run, a document is a file made of it, a derived document is one that [Verify] makes
// again.
package export
