package export

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/fault"
	"slurmgate/plan"
)

// Names of the documents.
const (
	runFile      = "run.json"
	paramsFile   = "params.json"
	policyFile   = "policy.json"
	packFile     = "pack.json"
	scriptFile   = "job-script.sh"
	exitFile     = "exit.json"
	eventsFile   = "events.jsonl"
	pinnedFile   = "pinned.sha256"
	outputsFile  = "outputs.sha256"
	answerFile   = "output.json"
	crateFile    = "ro-crate-metadata.json"
	readmeFile   = "README.md"
	manifestFile = "MANIFEST"

	// ReceiptFile has the signed receipt, KeysFile the public keys that it and the signature name.
	ReceiptFile = "receipt.dsse.json"
	KeysFile    = "keys.json"

	signatureFile = manifestFile + ".dsse.json" // of MANIFEST, so of every other file
)

// New makes the archive of a record. The bytes of artifacts are opened only while it is written.
func New(r Record, o Options, open Opener) (*Archive, error) {
	p, err := plan.DecodeParams(r.Params)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "params_unreadable", "the stored params of "+r.Run.RunID+" cannot be read", err)
	}
	r.Run.Format, r.Run.Kind, r.Run.ImageName = Format, kindOfPlan(p), imageNameOf(r.Pack)
	files := r.place(o)
	documents := map[string][]byte{paramsFile: r.Params, policyFile: r.Policy, packFile: r.Pack, scriptFile: r.Script,
		ReceiptFile: r.Receipt, answerFile: r.Output}
	for i, l := range r.Logs {
		documents[r.Run.Logs[i].File] = append([]byte{}, l.Text...) // never nil: an empty log is a file
	}
	for name, v := range map[string]any{runFile: r.Run, exitFile: r.Exit, KeysFile: keysDoc(r.Key, r.Signer.Key)} {
		if documents[name], err = document(v); err != nil {
			return nil, err
		}
	}
	if documents[eventsFile], err = lines(r.Events); err != nil {
		return nil, err
	}
	for name, data := range documents {
		if data != nil {
			files = append(files, fileOf(name, data))
		}
	}
	derived, err := derive(r.Run, r.Exit, p, r.Pack, files)
	if err != nil {
		return nil, err
	}
	list := derived[len(derived)-1]
	signature, err := r.Signer.SignArchive(receipt.Archive{Format: Format, RunID: r.Run.RunID}, manifestFile, sumOf(list.data))
	if err != nil {
		return nil, err
	}
	files = append(append(files, derived...), fileOf(signatureFile, signature))
	sortFiles(files)
	return &Archive{r.Run, files, open}, nil
}

func logFile(role string) string { return "logs/" + role + ".txt" }

// kindOfPlan returns the kind of run that a plan is of.
func kindOfPlan(p plan.Params) string {
	switch {
	case p.Docker:
		return KindDocker
	case p.Worker != nil:
		return KindWorker
	}
	return KindSlurm
}

// imageNameOf returns the name that a toolpack gives its image, "" without one.
func imageNameOf(pack []byte) string {
	var doc struct {
		Image string `json:"image"`
	}
	_ = json.Unmarshal(pack, &doc) // without one the image has its digest alone
	return doc.Image
}

func sortFiles(files []file) {
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
}

// place decides which artifacts go into the archive, and under which names: those that they had in the workspace.
func (r *Record) place(o Options) (files []file) {
	taken := map[string]bool{}
	for k, list := range [][]Artifact{r.Run.Inputs, r.Run.Outputs} {
		for i := range list {
			a := &list[i]
			a.Reference = "artifact://" + a.ArtifactID
			folded := strings.ToLower(a.Relpath)
			switch {
			case a.Why != "": // the caller of New has no bytes of it
			case o.ByReference:
				a.Why = "the export was asked to hold no artifacts"
			case o.MaxBytes > 0 && a.SizeBytes > o.MaxBytes:
				a.Why = fmt.Sprintf("it is larger than %d bytes", o.MaxBytes)
			case taken[folded]:
				a.Why = "another file's name differs in case only"
			case checkName(a.Relpath) != "":
				a.Why = "its name is not safe in an archive"
			case k == 0 && o.placeShared(a): // an input
			case a.Type == plan.Directory:
				files = r.unfold(a, files, taken)
			default:
				taken[folded], a.File = true, a.Relpath
				files = append(files, file{a.Relpath, a.SizeBytes, a.SHA256, nil})
			}
		}
	}
	for i := range r.Run.Logs {
		r.Run.Logs[i].File = logFile(r.Run.Logs[i].Role)
		r.Run.Logs[i].Reference = "artifact://" + r.Run.Logs[i].ArtifactID
	}
	return files
}

// derive makes the documents that follow from the others, MANIFEST last. [Verify] makes them again.
func derive(r Run, exit receipt.Exit, p plan.Params, pack []byte, files []file) (derived []file, err error) {
	texts := map[string][]byte{readmeFile: readme(r)}
	if p.Spec.Execution.Kind == plan.Contained {
		switch more, ok, err := resources(exit); {
		case err != nil:
			return nil, err
		case ok:
			p.Spec.Resources = more
		}
		if texts, err = module(r, p); err != nil {
			return nil, err
		}
		texts[readmeFile] = readme(r)
		texts[pinnedFile] = pinned(p, files)
		if r.succeeded() {
			texts[outputsFile] = collected(r, files)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		derived = append(derived, fileOf(name, texts[name]))
	}
	all := append(slices.Clone(files), derived...)
	sortFiles(all)
	crate, err := crateOf(r, exit, p, pack, all)
	if err != nil {
		return nil, err
	}
	derived = append(derived, fileOf(crateFile, crate))
	all = append(all, derived[len(derived)-1])
	sortFiles(all)
	return append(derived, fileOf(manifestFile, manifest(all))), nil
}

// pinned returns the list of pinned files: the image under the name that the Nextflow module uses, and the inputs. Of
// a directory it has the files that are in the archive.
func pinned(p plan.Params, files []file) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s  images/%s.sif\n", p.Spec.ImageDigest(), p.Spec.ImageDigest())
	for _, in := range p.Spec.IO.Inputs {
		if in.Directory {
			b.Write(manifest(below(files, in.DestRelpath+"/")))
		} else {
			fmt.Fprintf(&b, "%s  %s\n", in.ChecksumSHA256, in.DestRelpath)
		}
	}
	return b.Bytes()
}

// collected returns the list of outputs as they were collected. Of a directory it has the files that are in the
// archive.
func collected(r Run, files []file) []byte {
	var b bytes.Buffer
	for _, o := range r.Outputs {
		if o.Type == plan.Directory {
			b.Write(manifest(below(files, o.Relpath+"/")))
		} else {
			fmt.Fprintf(&b, "%s  %s\n", o.SHA256, o.Relpath)
		}
	}
	return b.Bytes()
}

func manifest(files []file) []byte {
	var b bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&b, "%s  %s\n", f.sha256, f.name)
	}
	return b.Bytes()
}

// readme describes the archive for people.
func readme(r Run) []byte {
	var b bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("# %s\n", r.RunID)
	say("This is everything a gateway has recorded about one run of `%s` %s, which ended as **%s**%s.\n", r.ToolID, r.ToolVersion, r.State,
		reasonText(r))
	say("It is an RO-Crate (Process Run Crate 0.5): `ro-crate-metadata.json` describes every file.\n")
	say("| file | what it is |\n|---|---|")
	say("| `run.json` | the run: identity, how it ended, inputs and outputs |")
	say("| `params.json` | the plan: what ran, on which bytes. Its hash is part of the run's id |")
	say("| `policy.json`, `pack.json` | the policy and the tool's definition at the time |")
	say("| `exit.json`, `logs/` | how the attempts ended, and what they printed |")
	say("| `events.jsonl` | the run's history up to its end, with the hashes of the gateway's chain |")
	say("| `receipt.dsse.json` | the gateway's receipt of the run's end, signed when it ended |")
	if r.Kind != KindWorker {
		say("| `job-script.sh`, `pinned.sha256`, `outputs.sha256` | the job's script, the bytes it was pinned to, and the outputs collected |")
		say("| `in/`, `out/` | the artifacts that are not by reference |")
		say("| `nextflow/` | a module that repeats the run |")
	}
	sayList(say)
	say("## Check it\n\n    slurmgate verify %s.crate.zip --keys KEYS\n", r.RunID)
	say("KEYS are the gateway's public keys, as its administrator gives them to you (`slurmgate keys --json`). Without them the check shows " +
		"that the archive agrees with itself, not who made it.\n")
	if r.Kind == KindWorker {
		say("A call of a service has no Nextflow module: the service is not in this archive.\n")
	} else {
		say("## Repeat it\n\nThe module needs Nextflow 23.04 or later, Apptainer, and the image `%s`%s as `images/%s.sif`. "+
			"The image must contain bash.\n", r.Image, named(r.ImageName), strings.TrimPrefix(r.Image, "sha256:"))
		say("    nextflow run nextflow/main.nf\n")
		say("It checks image, inputs and outputs against their checksums. A tool that writes the time or a random number into its outputs " +
			"fails that check; `--check_outputs false` leaves it out.\n")
	}
	byReference(&b, r)
	for _, w := range r.Redacted {
		say("- `%s`: names in brackets stand for folders of the site, or a mark for a secret.", w)
	}
	for _, w := range slices.Concat(r.Missing, r.Warnings) {
		say("- %s", oneLine(w))
	}
	return b.Bytes()
}

// sayList describes the files that every archive ends with.
func sayList(say func(format string, args ...any)) {
	say("| `MANIFEST` | the SHA-256 of every other file: `sha256sum -c MANIFEST` |")
	say("| `MANIFEST.dsse.json`, `keys.json` | the gateway's signature of MANIFEST, and the public keys of its signatures |\n")
}

func byReference(b *bytes.Buffer, r Run) {
	var list []string
	for _, a := range slices.Concat(r.Inputs, r.Outputs) {
		if a.File == "" {
			list = append(list, fmt.Sprintf("- `%s`, %d bytes, sha256 `%s`: the gateway has it as artifact `%s` (%s)", cmp.Or(a.Relpath, a.Role),
				a.SizeBytes, a.SHA256, a.ArtifactID, a.Why))
		}
	}
	if len(list) > 0 {
		fmt.Fprintf(b, "## Not in the archive\n\n%s\n\n", strings.Join(list, "\n"))
	}
	if len(r.Redacted)+len(r.Missing)+len(r.Warnings) > 0 {
		b.WriteString("## Notes\n\n")
	}
}

func reasonText(r Run) string {
	if r.succeeded() {
		return ""
	}
	return " (" + r.Reason + ")"
}

func named(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
