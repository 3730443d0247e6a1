package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
)

// The archive of a batch holds the archives of its runs, each as a separate file that can be taken out and checked alone:
//
//	batch.json             the batch: its rows, and which run each became
//	runs/RUN.crate.zip     the archive of a run
//	shared/SHA256          an input that several of the runs take; it is by reference in their archives
//	unpack.sh              unpacks the runs and puts the shared inputs in their places
//	ro-crate-metadata.json README.md MANIFEST MANIFEST.dsse.json keys.json
const (
	batchFile  = "batch.json"
	unpackFile = "unpack.sh"
	runsFolder = "runs/"
	archiveEnd = ".crate.zip"
	sharedAt   = "shared/"
)

// BatchFormat is the version of a batch archive's documents, as [Format] is of a run's.
const BatchFormat = 2

// Batch is batch.json.
type Batch struct {
	Format      int        `json:"slurmgate_batch_export"` // [BatchFormat]
	BatchID     string     `json:"batch_id"`
	Name        string     `json:"name"`
	Chain       string     `json:"chain,omitempty"` // of which chain it is a step
	Step        string     `json:"step,omitempty"`
	ToolID      string     `json:"tool_id"`
	ToolVersion string     `json:"tool_version"`
	Project     string     `json:"project_id"`
	Principal   string     `json:"principal"` // who asked for it
	CreatedAt   time.Time  `json:"created_at"`
	Rows        []BatchRow `json:"rows"`
}

// BatchRow is a row of the sheet, and what became of it.
type BatchRow struct {
	Row     int             `json:"row"` // line of the sheet
	Sample  string          `json:"sample"`
	Label   string          `json:"label"`
	Tags    []string        `json:"tags"`
	Args    json.RawMessage `json:"arguments"`
	RunID   string          `json:"run_id"` // empty: it never became a run
	State   string          `json:"state"`
	Code    string          `json:"code"` // why it was refused
	Message string          `json:"message"`
}

// runs returns the runs of a batch, each once, with the samples that they are of.
func (b Batch) runs() (ids []string, samples map[string][]string) {
	samples = map[string][]string{}
	for _, r := range b.Rows {
		if r.RunID == "" {
			continue
		}
		if samples[r.RunID] == nil {
			ids = append(ids, r.RunID)
		}
		samples[r.RunID] = append(samples[r.RunID], r.Sample)
	}
	slices.Sort(ids)
	return ids, samples
}

// FileName returns the usual name of the archive of a run or a batch.
func FileName(id string) string { return id + archiveEnd }

func runArchive(id string) string { return runsFolder + FileName(id) }

// archivedRun returns the run whose archive a file of a batch's archive is.
func archivedRun(name string) (id string, ok bool) {
	id, below := strings.CutPrefix(name, runsFolder)
	id, ok = strings.CutSuffix(id, archiveEnd)
	return id, below && ok && !strings.Contains(id, "/")
}

// sharedWhy returns the reason why an input is not in its run's archive.
func sharedWhy(sha256 string) string {
	return "it is in the archive of the batch, as " + sharedAt + sha256
}

// isShared reports whether an input is in the archive of the batch instead. An untrusted archive's text about it is
// written into a script.
func (a Artifact) isShared() bool {
	return a.Why == sharedWhy(a.SHA256) && plan.IsSHA256(a.SHA256) && checkName(a.Relpath) == ""
}

// placeShared makes an input that other runs take too one by reference.
func (o Options) placeShared(a *Artifact) bool {
	if !o.Shared[a.SHA256] {
		return false
	}
	a.Why = sharedWhy(a.SHA256)
	return true
}

// BatchArchive is an export of a batch. The archives of its runs are made while it is written.
type BatchArchive struct {
	batch  Batch
	files  []file
	of     func(ctx context.Context, runID string) (*Archive, error) // the archive of a run
	open   Opener
	signer receipt.Signer
}

// NewBatch makes the archive of a batch. of returns the archive of a run, twice the same: it is called for every run now, to learn its
// size, and again while the archive is written.
func NewBatch(ctx context.Context, b Batch, signer receipt.Signer, of func(ctx context.Context, runID string) (*Archive, error),
	open Opener) (*BatchArchive, error) {
	b.Format = BatchFormat
	text, err := document(b)
	if err != nil {
		return nil, err
	}
	keys, err := document(keysDoc(signer.Key))
	if err != nil {
		return nil, err
	}
	files := []file{fileOf(batchFile, text), fileOf(KeysFile, keys)}
	var runs []Run
	ids, _ := b.runs()
	for _, id := range ids {
		a, err := of(ctx, id)
		if err != nil {
			return nil, err
		}
		runs = append(runs, a.run)
		files = append(files, file{name: runArchive(id), size: a.Size()})
	}
	shared := sharedOf(runs)
	for _, sum := range slices.Sorted(maps.Keys(shared)) {
		files = append(files, file{sharedAt + sum, shared[sum].SizeBytes, sum, nil})
	}
	derived, err := deriveBatch(b, runs)
	if err != nil {
		return nil, err
	}
	files = append(files, derived...)
	sortFiles(files)
	list := file{name: manifestFile} // it has the checksums of what was written before, and its signature follows
	for _, f := range files {
		list.size += int64(lineBytes(f.name))
	}
	a := &BatchArchive{b, nil, of, open, signer}
	signature, err := a.sign(nil)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if f.data != nil && len(f.data) > maxDocument {
			return nil, fault.New(fault.Validation, "batch_too_large", fmt.Sprintf("%s of this batch would have %d bytes; a document has at most %d",
				f.name, len(f.data), maxDocument)).WithNext("export its runs one by one")
		}
	}
	a.files = append(files, list, file{name: signatureFile, size: int64(len(signature))})
	return a, nil
}

// sign signs the list of the archive's files. The signature of any list has the same length.
func (a *BatchArchive) sign(list []byte) ([]byte, error) {
	return a.signer.SignArchive(receipt.Archive{Format: BatchFormat, BatchID: a.batch.BatchID}, manifestFile, sumOf(list))
}

// Name returns the archive's usual file name.
func (a *BatchArchive) Name() string { return FileName(a.batch.BatchID) }

// Size returns the size of the archive in bytes.
func (a *BatchArchive) Size() int64 { return zipSize(a.files) }

// WriteTo writes the archive. A run that was retried since [NewBatch] is a Conflict fault, and what was written is no archive.
func (a *BatchArchive) WriteTo(ctx context.Context, w io.Writer) error {
	var list bytes.Buffer
	return writeZip(w, a.files, func(out io.Writer, f file) error {
		sum := sha256.New()
		out = io.MultiWriter(out, sum)
		id, ok := archivedRun(f.name)
		var err error
		switch {
		case f.name == manifestFile:
			_, err = out.Write(list.Bytes())
			return unwritten(err)
		case f.name == signatureFile:
			signature, err := a.sign(list.Bytes())
			if err == nil {
				_, err = out.Write(signature)
			}
			return unwritten(err)
		case ok:
			err = a.writeRun(ctx, out, id, f.size)
		default:
			err = copyFile(ctx, out, f, a.open, sharedDamaged)
		}
		fmt.Fprintf(&list, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), f.name)
		return err
	})
}

func (a *BatchArchive) writeRun(ctx context.Context, out io.Writer, id string, size int64) error {
	x, err := a.of(ctx, id)
	if err == nil && x.Size() != size {
		err = fault.New(fault.Conflict, "batch_changed", "run "+id+" changed while the batch was exported").WithNext("export it again")
	}
	if err != nil {
		return err
	}
	return x.WriteTo(ctx, out)
}

func sharedDamaged(f file, err error) error {
	return fault.Wrap(fault.Internal, "artifact_corrupt",
		"the stored bytes of "+f.name+", an input of several runs, are not what they had", err).
		WithNext("export with --by-reference, or restore the artifact from a backup")
}

// sharedOf returns the inputs that the archives of runs refer to in the batch's, by checksum.
func sharedOf(runs []Run) map[string]Artifact {
	out := map[string]Artifact{}
	for _, r := range runs {
		for _, a := range r.Inputs {
			if a.isShared() {
				out[a.SHA256] = a
			}
		}
	}
	return out
}

// deriveBatch makes the documents that follow from the others. [Verify] makes them again.
func deriveBatch(b Batch, runs []Run) ([]file, error) {
	crate, err := batchCrate(b, runs)
	return []file{fileOf(readmeFile, batchReadme(b, runs)), fileOf(unpackFile, unpackScript(runs)), fileOf(crateFile, crate)}, err
}

// unpackScript returns a script that makes a folder of each run's archive, in which its Nextflow module finds its
// inputs.
func unpackScript(runs []Run) []byte {
	var s bytes.Buffer
	s.WriteString("#!/bin/sh\n# Unpacks the archive of each run into a folder, and links the inputs that several runs take. Needs unzip.\n" +
		"set -eu\ncd -- \"$(dirname -- \"$0\")\"\n")
	for _, r := range runs {
		dir := runsFolder + r.RunID
		fmt.Fprintf(&s, "unzip -q -d %s %s\n", dir, runArchive(r.RunID))
		for _, a := range r.Inputs {
			if !a.isShared() {
				continue
			}
			to := shellWord(dir + "/" + a.Relpath)
			fmt.Fprintf(&s, "mkdir -p -- \"$(dirname -- %s)\" && ln -- %s %s\n", to, sharedAt+a.SHA256, to)
		}
	}
	return s.Bytes()
}

// batchReadme describes the archive for people.
func batchReadme(b Batch, runs []Run) []byte {
	var s bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&s, format+"\n", args...) }
	say("# %s\n", b.BatchID)
	say("This is everything a gateway has recorded about the batch %s: %d rows of `%s` %s, which became %d runs.\n", b.Name, len(b.Rows),
		b.ToolID, b.ToolVersion, len(runs))
	say("| file | what it is |\n|---|---|")
	say("| `batch.json` | the rows: sample, tags, arguments, and the run that each became, or why it became none |")
	say("| `runs/` | the archive of each run, as the export of the run alone writes it; its README.md says what is in it |")
	say("| `shared/` | inputs that several runs take, once each, by their SHA-256 |")
	say("| `unpack.sh` | makes a folder of each run's archive, with the shared inputs in their places |")
	say("| `ro-crate-metadata.json` | an RO-Crate (Process Run Crate 0.5) with an action for each run |")
	sayList(say)
	say("## Check it\n\n    slurmgate verify %s%s --keys KEYS\n", b.BatchID, archiveEnd)
	say("This checks the archive of every run too. KEYS are the gateway's public keys, as its administrator gives them to you " +
		"(`slurmgate keys --json`).\n")
	say("## Repeat a run\n\n    sh unpack.sh\n    nextflow run runs/RUN/nextflow/main.nf --images IMAGES\n")
	say("RUN is the run's id, and IMAGES the absolute path of a folder with the image, as the run's README.md names it. Check the archive " +
		"before you unpack it: a folder to which inputs were added is not what the gateway wrote.")
	return s.Bytes()
}
