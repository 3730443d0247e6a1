package export

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Report is what a check of an archive found.
type Report struct {
	File      string    `json:"file"`
	OK        bool      `json:"ok"` // no problem was found
	RunID     string    `json:"run_id"`
	BatchID   string    `json:"batch_id,omitempty"` // of the archive of a batch
	Runs      int       `json:"runs,omitempty"`     // that it has
	ToolID    string    `json:"tool_id"`
	State     string    `json:"state"`
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	Events    int       `json:"events"`
	Problems  []Problem `json:"problems"`
	Notes     []string  `json:"notes"`     // what the check could not show, and what the archive says of itself
	Signature Signature `json:"signature"` // of the receipt
}

// Problem is one thing that is wrong.
type Problem struct {
	File    string `json:"file"` // in the archive; empty: the archive as a whole
	Message string `json:"message"`
}

// Signature is who signed the receipt.
type Signature struct {
	Signed  bool     `json:"signed"`  // the receipt has a good signature
	KeyIDs  []string `json:"key_ids"` // of the keys that signed it
	Trusted bool     `json:"trusted"` // the key is one of those that the caller gave
	Text    string   `json:"text"`
}

// checker collects what is wrong.
type checker struct {
	contents
	*Report
	listed map[string]string // MANIFEST: checksum by name
	run    Run
	keys   []byte // that the caller trusts
	batch  Batch
	runs   map[string]inner // of a batch, by the names of their archives
}

// Verify checks an archive, or the folder it was unpacked into, against itself: every file against MANIFEST, MANIFEST against the crate,
// the run's id and documents against their hashes, its events against their chain, and the receipt against all of these. keys are the
// public keys that the caller trusts, as `slurmgate keys --json` prints them; nil: those in the archive, which prove nothing about who
// signed.
//
// What is wrong with the archive is in the report, every file by name. An error means that there was nothing to check.
func Verify(ctx context.Context, name string, keys []byte) (Report, error) {
	c := newChecker(name)
	c.keys, c.contents = keys, newTree()
	c.part = func(name string, r io.ReaderAt, size int64) error { return c.checkRun(ctx, name, r, size) }
	if err := c.read(ctx, name, c.bad); err != nil {
		return *c.Report, err
	}
	return c.check(keys)
}

func newChecker(name string) *checker {
	return &checker{Report: &Report{File: name, Problems: []Problem{}, Notes: []string{}, Signature: Signature{KeyIDs: []string{}}},
		listed: map[string]string{}, runs: map[string]inner{}}
}

func (c *checker) check(keys []byte) (Report, error) {
	batch := c.part != nil && c.documents[batchFile] != nil
	if c.documents[runFile] == nil && c.documents[manifestFile] == nil {
		return *c.Report, fault.New(fault.Validation, "not_an_archive", "this is not an archive of a run or a batch: it has neither "+runFile+
			" nor "+manifestFile)
	}
	c.distinct()
	c.manifest()
	if batch {
		c.checkBatch()
	} else if err := c.checkAlone(keys); err != nil {
		return *c.Report, err
	}
	c.Files = len(c.names)
	for _, s := range c.found {
		c.Bytes += s.size
	}
	slices.SortStableFunc(c.Problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	c.OK = len(c.Problems) == 0
	return *c.Report, nil
}

// checkAlone checks what the archive of a run has.
func (c *checker) checkAlone(keys []byte) error {
	readable := c.readRun()
	if readable {
		c.hashes()
		c.artifacts()
		c.history()
	}
	c.crate()
	err := c.receipt(keys)
	if err == nil && readable {
		c.again()
	}
	return err
}

func (c *checker) bad(file, msg string) { c.Problems = append(c.Problems, Problem{file, msg}) }

func (c *checker) note(format string, args ...any) {
	c.Notes = append(c.Notes, fmt.Sprintf(format, args...))
}

// distinct refuses names that are one on some systems, or that are both a file and a folder.
func (c *checker) distinct() {
	folded := map[string]string{}
	for _, name := range c.names {
		if other, twin := folded[strings.ToLower(name)]; twin {
			c.bad(name, fmt.Sprintf("it differs from %q in case only", other))
		}
		folded[strings.ToLower(name)] = name
	}
	for _, name := range c.names {
		for at := path.Dir(name); at != "."; at = path.Dir(at) {
			if other, both := folded[strings.ToLower(at)]; both {
				c.bad(name, fmt.Sprintf("it is below %q, which is a file", other))
			}
		}
	}
}

// manifest compares every file with its line.
func (c *checker) manifest() {
	text, ok := c.documents[manifestFile]
	if !ok {
		c.bad(manifestFile, "it is missing")
		return
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		sum, name, ok := strings.Cut(line, "  ")
		if !ok || !plan.IsSHA256(sum) || checkName(name) != "" {
			c.bad(manifestFile, fmt.Sprintf("line %d is not a checksum and a file", i+1))
			continue
		}
		if _, twice := c.listed[name]; twice {
			c.bad(manifestFile, fmt.Sprintf("line %d names %q again", i+1, name))
		}
		c.listed[name] = sum
		switch got, found := c.found[name]; {
		case !found:
			c.bad(name, "it is missing")
		case got.sha256 != sum:
			c.bad(name, fmt.Sprintf("it was changed: its SHA-256 is %s, but MANIFEST has %s", got.sha256, sum))
		}
	}
	for _, name := range c.names {
		if _, ok := c.listed[name]; !ok && name != manifestFile {
			c.bad(name, "it is extra: MANIFEST does not list it")
		}
	}
}

// readRun reads run.json.
func (c *checker) readRun() bool {
	data, ok := c.documents[runFile]
	if !ok {
		return false // reported as missing
	}
	var version struct {
		Format int `json:"slurmgate_export"`
	}
	if json.Unmarshal(data, &version) == nil && version.Format > Format {
		c.note("the archive was written by a newer slurmgate (format %d; this one knows %d): only checksums and the signature were checked",
			version.Format, Format)
		return false
	}
	if err := plan.Decode(data, &c.run); err != nil {
		c.bad(runFile, "it cannot be read: "+fault.Prose(err))
		return false
	}
	c.RunID, c.ToolID, c.State = c.run.RunID, c.run.ToolID, c.run.State
	return true
}

// hashes holds the identity against what it is made of.
func (c *checker) hashes() {
	if id := c.run.identity().RunID(); id != c.run.RunID {
		c.bad(runFile, fmt.Sprintf("the run id is %s, but tool, contract, policy and params give %s", c.run.RunID, id))
	}
	for _, d := range []struct{ file, hash string }{{paramsFile, c.run.ParamsHash}, {policyFile, c.run.PolicyHash},
		{packFile, c.run.PackHash}} {
		data, there := c.documents[d.file]
		gone := slices.ContainsFunc(c.run.Missing, func(m string) bool { return strings.HasPrefix(m, d.file+" ") })
		switch {
		case there && d.hash == "":
			c.bad(d.file, "the run has no such document")
		case there && plan.Hash(data) != d.hash:
			c.bad(d.file, fmt.Sprintf("it has the hash %s, but the run has %s", plan.Hash(data), d.hash))
		case !there && d.hash != "" && !gone:
			c.bad(d.file, "it is missing")
		}
	}
	for _, m := range c.run.Missing {
		c.note("%s", m)
	}
}

// artifacts holds run.json's list of files against the files.
func (c *checker) artifacts() {
	var outside int
	for _, a := range slices.Concat(c.run.Inputs, c.run.Outputs) {
		got, found := c.found[a.File]
		switch {
		case a.File == "":
			outside++
		case a.folder():
			c.directory(a)
		case !found && c.listed[a.File] == "":
			c.bad(a.File, "it is missing: "+runFile+" has it as artifact "+a.ArtifactID)
		case found && (got.sha256 != a.SHA256 || got.size != a.SizeBytes):
			c.bad(a.File, fmt.Sprintf("it is not artifact %s: %d bytes with SHA-256 %s, but %s has %d bytes with %s", a.ArtifactID, got.size,
				got.sha256, runFile, a.SizeBytes, a.SHA256))
		}
	}
	if outside > 0 {
		c.note("%d artifacts are by reference: their bytes are not in the archive and were not checked", outside)
	}
}

// history checks the events.
func (c *checker) history() {
	data, ok := c.documents[eventsFile]
	if !ok {
		return // reported as missing
	}
	var altered []string
	c.Events, altered = checkChain(data, c.run, func(msg string) { c.bad(eventsFile, msg) })
	if len(altered) > 0 {
		c.note("events %s were changed for the archive (names stand for folders of the site) or by an erasure, so their hashes cannot be checked",
			strings.Join(altered, ", "))
	}
}

// again makes the derived documents again and compares them: a Nextflow module that does something else than the plan is found here.
func (c *checker) again() {
	if c.run.Format != c.run.format() {
		c.note("the archive has format %d; this slurmgate cannot make its derived files (README, crate, Nextflow module) again to compare them",
			c.run.Format)
		return
	}
	var exit Exit
	p, err := plan.DecodeParams(c.documents[paramsFile])
	if err == nil {
		err = plan.Decode(c.documents[exitFile], &exit)
	}
	if err != nil {
		c.bad(paramsFile, "this or "+exitFile+" cannot be read: "+fault.Prose(err))
		return
	}
	made := []string{pinnedFile, outputsFile, readmeFile, crateFile, manifestFile}
	var files []file
	for _, name := range c.names {
		if !slices.Contains(made, name) && !strings.HasPrefix(name, "nextflow/") {
			files = append(files, file{name, c.found[name].size, c.found[name].sha256, nil})
		}
	}
	derived, err := derive(c.run, exit, p, c.documents[packFile], files)
	if err != nil {
		c.bad("", "the derived files cannot be made again: "+fault.Prose(err))
		return
	}
	for _, f := range derived {
		got, found := c.found[f.name]
		switch {
		case (f.name == crateFile || f.name == manifestFile) && len(c.Problems) > 0:
			// they list all files, so they differ with each of them
		case !found && c.listed[f.name] == "":
			c.bad(f.name, "it is missing")
		case found && got.sha256 != sumOf(f.data):
			c.bad(f.name, "it does not follow from the plan and the run")
		}
	}
}
