package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
)

// Report is the result of a check of an archive.
type Report struct {
	File      string    `json:"file"`
	OK        bool      `json:"ok"` // intact: no problem was found, and nothing was left unjudged
	RunID     string    `json:"run_id"`
	BatchID   string    `json:"batch_id,omitempty"` // of the archive of a batch
	Runs      int       `json:"runs,omitempty"`     // that it has
	ToolID    string    `json:"tool_id"`
	State     string    `json:"state"`
	Files     int       `json:"files"`
	Bytes     int64     `json:"bytes"`
	Events    int       `json:"events"`
	Problems  []Problem `json:"problems"`   // the first of them
	NotJudged []Problem `json:"not_judged"` // what this program cannot check; such an archive is not intact
	Notes     []string  `json:"notes"`      // the archive's own statements, and what was not in it to check
	Signature Signature `json:"signature"`
	// ProblemCount and NotJudgedCount are how many of each there are. A report lists at most maxListed.
	ProblemCount   int `json:"problem_count"`
	NotJudgedCount int `json:"not_judged_count"`
}

// maxListed is how many problems an answer lists: more would make it too long.
const maxListed = 100

// Problem is one thing that is wrong, or that cannot be judged.
type Problem struct {
	File    string `json:"file"` // in the archive; empty: the archive as a whole
	Message string `json:"message"`
}

// Signature describes the signature of the archive.
type Signature struct {
	Signed  bool     `json:"signed"`  // MANIFEST has a good signature, and the receipt, where there is one, too
	KeyIDs  []string `json:"key_ids"` // of the keys that signed them
	Trusted bool     `json:"trusted"` // the key is one of those that the caller gave
	Text    string   `json:"text"`
}

// checker collects what is wrong.
type checker struct {
	contents
	*Report
	listed map[string]string // MANIFEST: checksum by name
	run    Run
	exit   receipt.Exit
	keys   []byte // that the caller trusts
	batch  Batch
	runs   map[string]inner // of a batch, by the names of their archives
}

// Verify checks an archive, or the folder it was unpacked into: every file against MANIFEST, MANIFEST against its signature, the crate
// against both, the run's id and documents against their hashes, its events against their chain, and the receipt against all of these.
// keys are the public keys that the caller trusts, as `slurmgate keys --json` prints them; nil: those in the archive, which prove nothing
// about who signed.
//
// What is wrong with the archive is in the report, every file by name, and so is what cannot be judged: an archive of another format than
// [Format], one without a signature, a receipt of an unknown type. An error means that there was nothing to check.
func Verify(ctx context.Context, name string, keys []byte) (Report, error) {
	c := newChecker(name)
	c.keys, c.contents = keys, newTree()
	c.part = func(name string, r io.ReaderAt, size int64) error { return c.checkRun(ctx, name, r, size) }
	if err := c.read(ctx, name, c.bad); err != nil {
		return *c.Report, err
	}
	r, err := c.check()
	r.ProblemCount, r.NotJudgedCount = len(r.Problems), len(r.NotJudged)
	r.Problems, r.NotJudged = r.Problems[:min(r.ProblemCount, maxListed)], r.NotJudged[:min(r.NotJudgedCount, maxListed)]
	return r, err
}

func newChecker(name string) *checker {
	r := Report{File: name, Problems: []Problem{}, NotJudged: []Problem{}, Notes: []string{}, Signature: Signature{KeyIDs: []string{}}}
	return &checker{Report: &r, listed: map[string]string{}, runs: map[string]inner{}}
}

func (c *checker) check() (Report, error) {
	batch := c.part != nil && c.documents[batchFile] != nil
	if c.documents[runFile] == nil && c.documents[manifestFile] == nil {
		return *c.Report, fault.New(fault.Validation, "not_an_archive", "this is not an archive of a run or a batch: it has neither "+runFile+
			" nor "+manifestFile)
	}
	c.distinct()
	c.manifest()
	checks := c.checkAlone
	if batch {
		checks = c.checkBatch
	}
	if err := checks(); err != nil {
		return *c.Report, err
	}
	c.Files = len(c.names)
	for _, s := range c.found {
		c.Bytes += s.size
	}
	slices.SortStableFunc(c.Problems, func(a, b Problem) int { return strings.Compare(a.File, b.File) })
	c.OK = len(c.Problems)+len(c.NotJudged) == 0
	return *c.Report, nil
}

// checkAlone checks what the archive of a run has.
func (c *checker) checkAlone() error {
	if !c.known(runFile, "slurmgate_export", Format) {
		return nil
	}
	keys, err := c.readKeys()
	if err != nil {
		return err
	}
	readable := c.readRun()
	if readable {
		c.hashes()
		c.artifacts()
		c.history()
	}
	c.crate()
	if readable {
		c.again()
	}
	c.signature(keys, receipt.Archive{Format: Format, RunID: c.RunID})
	c.receipt(keys)
	return nil
}

// known reports whether a document has the one format that this program can judge, and notes what that means where it has another.
func (c *checker) known(name, member string, format int) bool {
	var doc map[string]json.RawMessage
	if json.Unmarshal(c.documents[name], &doc) != nil || string(doc[member]) == fmt.Sprint(format) {
		return true // a document that cannot be read is reported as that
	}
	found := cmp.Or(fault.Clip(string(doc[member])), "none")
	c.cannotJudge(name, fmt.Sprintf("the archive's format is %s, and this slurmgate knows format %d alone, so only checksums were compared. "+
		"Verify it with the slurmgate of the gateway that wrote it", found, format))
	c.Signature.Text = "not checked"
	return false
}

func (c *checker) cannotJudge(file, msg string) {
	c.NotJudged = append(c.NotJudged, Problem{file, msg})
}

// document returns a document that every archive has.
func (c *checker) document(name string) (data []byte, ok bool) {
	if data, ok = c.documents[name]; !ok && c.listed[name] == "" { // else reported as missing, or as too large
		c.bad(name, "it is missing")
	}
	return data, ok
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
		if _, ok := c.listed[name]; !ok && name != manifestFile && name != signatureFile {
			c.bad(name, "it is extra: MANIFEST does not list it")
		}
	}
}

// readRun reads run.json and exit.json.
func (c *checker) readRun() bool {
	data, ok := c.document(runFile)
	if !ok {
		return false
	}
	if err := plan.Decode(data, &c.run); err != nil {
		c.bad(runFile, "it cannot be read: "+fault.Prose(err))
		return false
	}
	c.RunID, c.ToolID, c.State = c.run.RunID, c.run.ToolID, c.run.State
	if data, ok = c.document(exitFile); !ok {
		return false
	}
	if err := plan.Decode(data, &c.exit); err != nil {
		c.bad(exitFile, "it cannot be read: "+fault.Prose(err))
		return false
	}
	c.written(runFile, c.run)
	c.written(exitFile, c.exit)
	return true
}

// written compares a document with slurmgate's form of its values: a missing member, or one in another form, was not
// written by slurmgate.
func (c *checker) written(name string, v any) {
	if text, err := document(v); err != nil || !bytes.Equal(text, c.documents[name]) {
		c.bad(name, "it is not written as slurmgate writes it")
	}
}

// hashes holds the identity against what it is made of.
func (c *checker) hashes() {
	if id := c.run.identity().RunID(); id != c.run.RunID {
		c.bad(runFile, fmt.Sprintf("the run id is %s, but tool, contract, policy and params give %s", c.run.RunID, id))
	}
	for _, d := range []struct{ file, hash string }{{paramsFile, c.run.ParamsHash}, {policyFile, c.run.PolicyHash},
		{packFile, c.run.PackHash}} {
		data, there := c.documents[d.file]
		switch {
		case there && d.hash == "":
			c.bad(d.file, "the run has no such document")
		case there && plan.Hash(data) != d.hash:
			c.bad(d.file, fmt.Sprintf("it has the hash %s, but the run has %s", plan.Hash(data), d.hash))
		case !there && d.hash != "" && !c.gone(d.file):
			c.bad(d.file, "it is missing")
		}
	}
	if pack, ok := c.documents[packFile]; ok && c.run.ImageName != imageNameOf(pack) {
		c.bad(runFile, fmt.Sprintf("the image is named %q, but %s names %q", c.run.ImageName, packFile, imageNameOf(pack)))
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
		case !a.placedAt(a.Relpath):
			c.misplaced(a)
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
	for _, a := range c.run.Logs {
		if !a.placedAt(logFile(a.Role)) {
			c.misplaced(a)
		}
		c.redacted(a.File, a.SHA256)
	}
	if c.run.Script != nil && !c.gone(scriptFile) {
		c.redacted(scriptFile, c.run.Script.SHA256)
	} else if _, found := c.found[scriptFile]; found {
		c.bad(scriptFile, "the run has no such document")
	}
	if outside > 0 {
		c.note("%d artifacts are by reference: their bytes are not in the archive and were not checked", outside)
	}
}

// placedAt reports whether run.json's data about an artifact's place are consistent: it is in the archive under that
// name, or it is not there for a reason.
func (a Artifact) placedAt(name string) bool {
	in := a.File == name || a.Type == plan.Directory && a.File == name+"/"
	return a.Reference == "artifact://"+a.ArtifactID && (in && a.Why == "" || a.File == "" && a.Why != "")
}

func (c *checker) misplaced(a Artifact) {
	c.bad(runFile, fmt.Sprintf("artifact %s has the reference %q, the file %q, and %q as the reason why it is not in the archive: these "+
		"contradict each other", a.ArtifactID, a.Reference, a.File, a.Why))
}

// redacted holds a text against its checksum, which is that of the text before secrets and paths were taken out of it.
func (c *checker) redacted(name, sha256 string) {
	got, found := c.found[name]
	switch changed := slices.Contains(c.run.Redacted, name); {
	case !found && c.listed[name] == "":
		c.bad(name, "it is missing")
	case found && !changed && got.sha256 != sha256:
		c.bad(name, fmt.Sprintf("its SHA-256 is %s, but %s has %s and does not say that it was redacted", got.sha256, runFile, sha256))
	case found && changed && got.sha256 == sha256:
		c.bad(name, runFile+" says that it was redacted, but it is as it was recorded")
	}
}

// gone reports whether the run lists a document as missing from its archive.
func (c *checker) gone(name string) bool {
	return slices.ContainsFunc(c.run.Missing, func(m string) bool { return strings.HasPrefix(m, name+" ") })
}

// history checks the events.
func (c *checker) history() {
	data, ok := c.document(eventsFile)
	if !ok {
		return
	}
	var altered []string
	c.Events, altered = checkChain(data, c.run, func(msg string) { c.bad(eventsFile, msg) })
	if len(altered) > 0 {
		c.note("events %s were changed for the archive (names stand for folders of the site) or by an erasure: the receipt has the hashes of "+
			"the original, and what is shown rests on the archive's signature", strings.Join(altered, ", "))
	}
}

// planIn reads params.json of an archive that anybody may have written.
func planIn(params []byte) (plan.Params, error) {
	p, err := plan.DecodeParams(params)
	if err == nil && p.Spec.Execution.Kind == plan.Contained {
		err = p.Spec.Validate(plan.Rules{Stored: true, Asked: true, Docker: p.Docker})
	}
	return p, err
}

// again makes the derived documents again and compares them: a Nextflow module that does something else than the plan is found here.
func (c *checker) again() {
	p, err := planIn(c.documents[paramsFile])
	if err != nil {
		c.bad(paramsFile, "it is not a plan: "+fault.Prose(err))
		return
	}
	if kind := kindOfPlan(p); kind != c.run.Kind {
		c.bad(runFile, fmt.Sprintf("its kind is %q, but the plan is of the kind %q", c.run.Kind, kind))
	}
	made := []string{pinnedFile, outputsFile, readmeFile, crateFile, manifestFile, signatureFile}
	var files []file
	for _, name := range c.names {
		if !slices.Contains(made, name) && !strings.HasPrefix(name, "nextflow/") {
			files = append(files, file{name, c.found[name].size, c.found[name].sha256, nil})
		}
	}
	derived, err := derive(c.run, c.exit, p, c.documents[packFile], files)
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
