package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"slurmgate/export/receipt"
	"slurmgate/filetype"
	"slurmgate/plan"
)

// Kinds of runs, as run.json has them.
const (
	KindSlurm  = "slurm"
	KindDocker = "docker" // on the gateway's own host
	KindWorker = "worker" // a call of a service
)

const (
	crateSpec    = "https://w3id.org/ro/crate/1.1"
	crateProfile = "https://w3id.org/ro/wfrun/process/0.5"
	crateTime    = "2006-01-02T15:04:05.000-07:00"
)

// entity is a node of the crate's graph.
type entity map[string]any

// ref refers to another.
func ref(id string) entity { return entity{"@id": id} }

func refs(ids []string) []entity {
	out := []entity{}
	for _, id := range ids {
		out = append(out, ref(id))
	}
	return out
}

// fileID returns a file's @id: a relative URI.
func fileID(name string) string { return (&url.URL{Path: name}).EscapedPath() }

// crateOf makes ro-crate-metadata.json: a Process Run Crate 0.5. files are all others but MANIFEST and its signature, in order.
func crateOf(r Run, exit receipt.Exit, p plan.Params, pack []byte, files []file) ([]byte, error) {
	var parts []string
	nodes := []entity{}
	folders := r.folders()
	for _, a := range folders {
		parts = append(parts, fileID(a.File))
		nodes = append(nodes, folderEntity(a, files))
	}
	for _, f := range files {
		if inFolder(folders, f.name) {
			continue
		}
		parts = append(parts, fileID(f.name))
		nodes = append(nodes, fileEntity(r, f))
	}
	for _, name := range []string{manifestFile, signatureFile} { // neither has a checksum here: MANIFEST has that of the crate
		parts = append(parts, name)
		nodes = append(nodes, entity{"@id": name, "@type": "File", "name": name, "encodingFormat": cmp.Or(formats[path.Ext(name)], "text/plain"),
			"description": descriptions[name]})
	}
	for _, a := range byReferenceOnce(r) {
		parts = append(parts, a.Reference)
		nodes = append(nodes, entity{"@id": a.Reference, "@type": "File", "name": cmp.Or(a.Relpath, a.Label, a.Role),
			"identifier": a.ArtifactID, "contentUrl": a.Reference, "contentSize": fmt.Sprint(a.SizeBytes), "sha256": a.SHA256,
			"description": "Not in the archive: " + a.Why})
	}
	action, more := actionOf(r, exit, p, pack)
	if slices.ContainsFunc(files, func(f file) bool { return f.name == answerFile }) {
		action["result"] = []entity{ref(answerFile)} // of a call of a service worker, which has no other
	}
	root := entity{"identifier": r.RunID, "name": "Run " + r.RunID + " of " + r.ToolID,
		"datePublished": r.FinishedAt.UTC().Format(crateTime),
		"description": fmt.Sprintf("One run of %s %s, which ended as %s: its plan, inputs, outputs, logs, history and signed receipt.", r.ToolID,
			r.ToolVersion, r.State),
		"mentions": ref("#run"), "hasPart": refs(parts)}
	if r.Principal != "" {
		root["author"] = ref("#agent")
	}
	return crateDocument(root, r.Project, slices.Concat([]entity{action}, more, nodes))
}

// crateDocument writes a crate: its root, which has only what is its own, and the nodes of its graph.
func crateDocument(root entity, project string, nodes []entity) ([]byte, error) {
	maps.Copy(root, entity{"@id": "./", "@type": "Dataset", "conformsTo": ref(crateProfile), "license": ref("#license")})
	graph := append([]entity{
		{"@id": crateFile, "@type": "CreativeWork", "about": ref("./"), "conformsTo": ref(crateSpec)},
		root,
		{"@id": crateProfile, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
		{"@id": "#license", "@type": "CreativeWork", "name": "No licence stated",
			"description": "The gateway does not record a licence of the data. Ask the owner of project " + project + "."}}, nodes...)
	return document(struct {
		Context []string `json:"@context"`
		Graph   []entity `json:"@graph"`
	}{[]string{crateSpec + "/context", "https://w3id.org/ro/terms/workflow-run/context"}, graph})
}

// outcome adds to a run's action when it was, and how it ended.
func (r Run) outcome(action entity) {
	action["endTime"], action["actionStatus"] = r.FinishedAt.UTC().Format(crateTime), "http://schema.org/CompletedActionStatus"
	if r.StartedAt != nil {
		action["startTime"] = r.StartedAt.UTC().Format(crateTime)
	}
	if !r.succeeded() {
		action["actionStatus"] = "http://schema.org/FailedActionStatus"
		action["error"] = strings.TrimSuffix(r.State+", "+r.Reason+": "+r.Detail, ": ")
	}
}

// byReferenceOnce returns the artifacts that are not in the archive, each once.
func byReferenceOnce(r Run) (out []Artifact) {
	for _, a := range slices.Concat(r.Inputs, r.Outputs) {
		if a.File == "" && !slices.ContainsFunc(out, func(o Artifact) bool { return o.Reference == a.Reference }) {
			out = append(out, a)
		}
	}
	return out
}

// actionOf returns the CreateAction with what it refers to.
func actionOf(r Run, exit receipt.Exit, p plan.Params, pack []byte) (action entity, more []entity) {
	var uses, makes []string
	for _, a := range r.Inputs {
		uses = append(uses, idOf(a))
	}
	for _, a := range slices.Concat(r.Outputs, r.Logs) {
		makes = append(makes, idOf(a))
	}
	uses = append(uses, paramsFile)
	action = entity{"@id": "#run", "@type": "CreateAction", "identifier": r.RunID, "name": "Run of " + r.ToolID,
		"description": fmt.Sprintf("%s %s, attempt %d", r.ToolID, r.ToolVersion, r.Attempt), "instrument": ref("#tool")}
	r.outcome(action)
	if n := len(exit.Attempts); n > 0 && exit.Attempts[n-1].EndedAt != nil {
		action["endTime"] = exit.Attempts[n-1].EndedAt.UTC().Format(crateTime)
	}
	tool := entity{"@id": "#tool", "@type": "SoftwareApplication", "identifier": r.ToolID, "name": cmp.Or(titleOf(pack), r.ToolID),
		"softwareVersion": r.ToolVersion}
	more = append(more, tool)
	if r.Principal != "" {
		action["agent"] = ref("#agent")
		agent := entity{"@id": "#agent", "@type": "Person", "name": r.Principal}
		if r.ExecutedAs != "" {
			agent["description"] = "The job ran as the Unix user " + r.ExecutedAs + "."
		}
		more = append(more, agent)
	}
	if r.Image != "" {
		action["containerImage"] = ref("#image")
		more = append(more, entity{"@id": "#image", "@type": "ContainerImage", "name": cmp.Or(r.ImageName, r.Image),
			"additionalType": ref("https://w3id.org/ro/terms/workflow-run#SIFImage"), "sha256": strings.TrimPrefix(r.Image, "sha256:")})
		argv, _ := json.Marshal(p.Spec.Execution.Command.Argv) // texts can be encoded
		uses = append(uses, "#argv")
		more = append(more, entity{"@id": "#argv", "@type": "PropertyValue", "name": "argv", "value": string(argv)})
		if c := p.Spec.Execution.Command; len(c.Pipe) > 0 {
			pipe, _ := json.Marshal(c.Pipe)
			uses = append(uses, "#pipe")
			more = append(more, entity{"@id": "#pipe", "@type": "PropertyValue", "name": "pipe", "value": string(pipe)})
		}
		if at := p.Spec.Execution.Command.Stdin; at != nil {
			uses = append(uses, "#stdin")
			more = append(more, entity{"@id": "#stdin", "@type": "PropertyValue", "name": "stdin", "value": *at})
		}
	}
	if env := p.Spec.Execution.Command.Env; len(env) > 0 {
		var ids []string
		for _, name := range slices.Sorted(maps.Keys(env)) {
			ids = append(ids, "#env-"+name)
			more = append(more, entity{"@id": "#env-" + name, "@type": "PropertyValue", "name": name, "value": env[name]})
		}
		action["environment"] = refs(ids)
	}
	action["object"] = refs(once(uses))
	if len(makes) > 0 {
		action["result"] = refs(once(makes))
	}
	return action, more
}

func once(ids []string) (out []string) {
	for _, id := range ids {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// idOf returns the @id of an artifact.
func idOf(a Artifact) string {
	if a.File == "" {
		return a.Reference
	}
	return fileID(a.File)
}

// titleOf returns the title of a toolpack, "" without one.
func titleOf(pack []byte) string {
	var doc struct {
		Title string `json:"displayName"`
	}
	_ = json.Unmarshal(pack, &doc) // without one the tool's id is its name
	return doc.Title
}

// descriptions of the documents.
var descriptions = map[string]string{
	runFile:       "The run: identity, how it ended, inputs and outputs",
	paramsFile:    "The plan: canonical params, whose hash is part of the run's id",
	policyFile:    "The policy snapshot that the run was made under",
	packFile:      "The definition of the toolpack that the run was planned with",
	scriptFile:    "The job script, with names in brackets for folders of the site",
	exitFile:      "How each attempt ended",
	eventsFile:    "The run's history up to its end, with the hashes of the gateway's chain",
	pinnedFile:    "SHA-256 of the image and the inputs, as they were pinned",
	outputsFile:   "SHA-256 of the outputs, as they were collected",
	answerFile:    "The answer of the service",
	readmeFile:    "What the files are, how to check them, and how to repeat the run",
	ReceiptFile:   "The gateway's signed receipt: an in-toto Statement in a DSSE envelope",
	KeysFile:      "The public keys that the receipt and the signature name",
	manifestFile:  "SHA-256 of every other file",
	signatureFile: "The gateway's signature of MANIFEST: an in-toto Statement in a DSSE envelope",

	"nextflow/main.nf":         "A Nextflow module that repeats the run",
	"nextflow/nextflow.config": "Its parameters",
	"nextflow/meta.yml":        "Its inputs and outputs",
}

// formats are media types by the end of a file's name.
var formats = map[string]string{".json": "application/json", ".jsonl": "application/jsonl", ".sh": "application/x-sh",
	".md": "text/markdown",
	".nf": "text/x-groovy", ".config": "text/x-groovy", ".yml": "application/yaml", ".txt": "text/plain", ".sha256": "text/plain"}

// fileEntity describes one file of the archive.
func fileEntity(r Run, f file) entity {
	e := entity{"@id": fileID(f.name), "@type": "File", "name": path.Base(f.name), "contentSize": fmt.Sprint(f.size), "sha256": f.sha256}
	if d := descriptions[f.name]; d != "" {
		e["description"] = d
	}
	if t := formats[path.Ext(f.name)]; t != "" && (descriptions[f.name] != "" || strings.HasPrefix(f.name, "logs/")) {
		e["encodingFormat"] = t
	}
	if path.Ext(f.name) == ".nf" {
		e["@type"] = []string{"File", "SoftwareSourceCode"}
		e["version"] = fmt.Sprint(r.Format)
	}
	for _, a := range slices.Concat(r.Inputs, r.Outputs, r.Logs) {
		if a.File == f.name {
			e["identifier"], e["description"] = a.ArtifactID, "Artifact "+a.Role+" of type "+a.Type
			if e["encodingFormat"] == nil {
				e["encodingFormat"] = cmp.Or(filetype.Of(a.Type).Media, "application/octet-stream")
			}
			if a.Label != "" && a.Label != e["name"] {
				e["alternateName"] = a.Label
			}
		}
	}
	return e
}
