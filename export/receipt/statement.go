// Package receipt writes, signs and checks receipts: for each end of a run an in-toto Statement v1 in a DSSE envelope, signed with an
// ed25519 key. It knows nothing of a ledger or a gateway, so a receipt can be checked where neither is.
//
// The predicate is one of our own. SLSA provenance says that its builder produced the subjects; of an end that failed or was cancelled
// this is not true, and a reader of SLSA, which must ignore fields it does not know, would miss that a user could have forged the end.
package receipt

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// The types that a receipt names.
const (
	StatementType  = "https://in-toto.io/Statement/v1"
	PredicateType  = PredicateTypes + "v2"
	PredicateTypes = "urn:slurmgate:receipt:"   // what the types of all versions begin with
	ArchiveType    = "urn:slurmgate:archive:v1" // predicate type of the statement about an archive
	PayloadType    = "application/vnd.in-toto+json"
)

// Statement is the signed document.
type Statement struct {
	Type          string     `json:"_type"` // [StatementType]
	Subject       []Resource `json:"subject"`
	PredicateType string     `json:"predicateType"` // [PredicateType]
	Predicate     Predicate  `json:"predicate"`
}

// Resource is an in-toto ResourceDescriptor: bytes by their digest.
type Resource struct {
	Name        string      `json:"name"`
	Digest      Digest      `json:"digest"`
	Annotations Annotations `json:"annotations,omitzero"`
}

// Digest is a DigestSet of one algorithm.
type Digest struct {
	SHA256 string `json:"sha256"` // 64 hex digits
}

// Annotations say which artifact a resource is.
type Annotations struct {
	Role       string `json:"role,omitempty"`
	Path       string `json:"path,omitempty"` // in the attempt's folder
	Label      string `json:"label,omitempty"`
	Type       string `json:"type,omitempty"`
	SizeBytes  *int64 `json:"sizeBytes,omitempty"`
	ArtifactID string `json:"artifactId,omitempty"`
	Reference  string `json:"reference,omitempty"`  // the site's name for an input's bytes, where they had one
	ExecutedAs string `json:"executedAs,omitempty"` // the user that the run was executed as that made it
	// InPlace is set for an input that the job read in place: the basis of its bytes.
	InPlace *InPlace `json:"inPlace,omitempty"`
}

// InPlace describes the basis of the bytes of an input that was not copied: how the job compared them with the
// digest, and who registered them.
type InPlace struct {
	RestsOn      string `json:"restsOn"` // "hash": before and after the program; "hash_before"; "state": inode, size and times alone
	RegisteredBy string `json:"registeredBy"`
	RegisteredAs string `json:"registeredAs,omitempty"` // the Unix user whose login hashed it then
	RegisteredAt string `json:"registeredAt"`
}

// String returns everything about the artifact as a text.
func (a Annotations) String() string {
	size := int64(-1)
	if a.SizeBytes != nil {
		size = *a.SizeBytes
	}
	text := fmt.Sprintf("artifact %s of type %s and %d bytes, role %q, label %q, path %q, reference %q, executed as %q", a.ArtifactID,
		a.Type, size, a.Role, a.Label, a.Path, a.Reference, a.ExecutedAs)
	if x := a.InPlace; x != nil {
		text += fmt.Sprintf(", in place by %s, registered by %q as %q at %s", x.RestsOn, x.RegisteredBy, x.RegisteredAs, x.RegisteredAt)
	}
	return text
}

// Predicate describes how one attempt of a run ended.
type Predicate struct {
	RunID     string  `json:"runId"`
	Attempt   int     `json:"attempt"`
	ProjectID string  `json:"projectId"`
	Gateway   Gateway `json:"gateway"`
	Tool      Tool    `json:"tool"`
	// SubjectIs is "outputs", or "params" where the attempt left none: a statement must have a subject, and then it is about what was to
	// be executed.
	SubjectIs string    `json:"subjectIs"`
	End       End       `json:"end"`
	Execution Execution `json:"execution"`
	Caller    Caller    `json:"caller"`
	History   History   `json:"history"`
	Exit      Exit      `json:"exit"`
	// Rows are the rows of batches whose run this was when it ended. A row that finds the run later is not here.
	Rows []Row `json:"rows"`
	// ForgeableBy are Unix users who could have forged the end or the outputs: whom the run was executed as, and those of the runs that made
	// what it was made of. Empty: only who controls the gateway's own account, the cluster or the key.
	ForgeableBy          []string   `json:"forgeableBy"`
	Note                 string     `json:"note,omitempty"` // ForgeableBy in a sentence
	ResolvedDependencies []Resource `json:"resolvedDependencies"`
	Byproducts           []Resource `json:"byproducts"` // the gateway's own: log, script
}

// Caller is whose call made the run, and when.
type Caller struct {
	Name   string `json:"name,omitempty"` // empty: not recorded
	ID     string `json:"id,omitempty"`
	MadeAt string `json:"madeAt"` // when the run was made
}

// Event is the part of an event that a receipt signs: all but its data, whose hash is in its own.
type Event struct {
	Seq, At              int64
	Type, PrevHash, Hash string
}

// History is the run's events up to this end, the end's own event included.
type History struct {
	Events int64 `json:"events"` // how many there are
	// Digest is of a line for each event, in their order: number, time, type, hash of the event before it in the gateway's history, hash.
	Digest Digest `json:"digest"`
}

// HistoryOf describes events.
func HistoryOf(events []Event) History {
	sum := sha256.New()
	for _, e := range events {
		fmt.Fprintf(sum, "%d %d %s %s %s\n", e.Seq, e.At, e.Type, e.PrevHash, e.Hash) // a hash never fails
	}
	return History{int64(len(events)), Digest{hex.EncodeToString(sum.Sum(nil))}}
}

// Exit lists how the attempts of a run ended, this one last. It is exit.json of the run's archive, with that file's
// names of members.
type Exit struct {
	Attempts []Attempt `json:"attempts"`
}

// Attempt is one intended execution.
type Attempt struct {
	Attempt  int    `json:"attempt"`
	Ending   string `json:"ending"`
	ExitCode *int   `json:"exit_code"`
	JobName  string `json:"job_name"`
	JobID    string `json:"job_id"`
	Cluster  string `json:"cluster"`
	// the attempt's resources, where a retry gave it more than the plan; absent: the plan's
	Resources  json.RawMessage `json:"resources,omitempty"`
	SlurmState string          `json:"slurm_state"`
	Node       string          `json:"node"`
	CreatedAt  time.Time       `json:"created_at"`
	StartedAt  *time.Time      `json:"started_at"`
	EndedAt    *time.Time      `json:"ended_at"`
	Usage      json.RawMessage `json:"usage"` // as the job itself recorded it; null: nothing
}

// Row is a row of a batch.
type Row struct {
	BatchID string `json:"batchId"`
	Row     int    `json:"row"` // line of the sheet
	Sample  string `json:"sample"`
}

// Resources are the resources of a job.
type Resources struct {
	CPUs             int `json:"cpus"`
	MemMB            int `json:"memMb"`            // MiB
	TimeLimitSeconds int `json:"timeLimitSeconds"` // seconds
}

// Gateway identifies the gateway that signs.
type Gateway struct {
	ID string `json:"id"`
}

// Tool identifies the called tool.
type Tool struct {
	ID              string `json:"id"`
	Name            string `json:"name"`
	Version         string `json:"version"`
	ContractVersion string `json:"contractVersion"`
}

// End describes how the attempt ended.
type End struct {
	State    string `json:"state"`            // succeeded, failed, cancelled
	Reason   string `json:"reason"`           // one word
	Ending   string `json:"ending,omitempty"` // of the attempt, where it has one
	ExitCode *int   `json:"exitCode"`         // of the program; null: it has none
	RunEnded bool   `json:"runEnded"`         // false: policy opened another attempt
	At       string `json:"at,omitempty"`     // when the run ended; absent: it did not
}

// Execution describes where and when the attempt ran.
type Execution struct {
	Site    string `json:"site"`
	Cluster string `json:"cluster,omitempty"`
	JobID   string `json:"jobId,omitempty"`
	JobName string `json:"jobName,omitempty"`
	Node    string `json:"node,omitempty"`
	// the attempt's resources, where a retry gave it more than the plan; absent: the plan's
	Resources   *Resources `json:"resources,omitempty"`
	ExecutedAs  string     `json:"executedAs,omitempty"`  // the cluster's Unix user; absent: the gateway's own
	CreatedAt   string     `json:"createdAt"`             // the attempt's row
	SubmittedAt string     `json:"submittedAt,omitempty"` // as Slurm records it
	StartedAt   string     `json:"startedAt,omitempty"`
	EndedAt     string     `json:"endedAt,omitempty"`
	RecordedAt  string     `json:"recordedAt"` // when the gateway recorded the end and signed it
}

// Answer is the name of an output that is no artifact: the JSON that a service worker answered, with the digest of its canonical form
// (RFC 8785), as the run's result has it.
const Answer = "output"

// Names of dependencies that are no inputs. Those are "input/" and their path.
const (
	Image  = "image"
	Params = "params"
	Policy = "policy"
	Pack   = "pack"
	Plan   = "plan"
	Script = "script"
)

// Hashed returns a dependency by its hash, "sha256:<hex>" or plain hex.
func Hashed(name, hash string) Resource {
	return Resource{Name: name, Digest: Digest{SHA256: hash[strings.LastIndexByte(hash, ':')+1:]}}
}

// Time writes a time as predicates have it; nil is "".
func Time(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// Encode completes a statement and returns the bytes to sign. Resources without a digest are left out: a plan submitted as it is has no
// pack.
func Encode(outputs []Resource, p Predicate) ([]byte, error) {
	known := p.ResolvedDependencies
	p.ResolvedDependencies = []Resource{}
	var params Resource
	for _, r := range known {
		if r.Digest.SHA256 != "" {
			p.ResolvedDependencies = append(p.ResolvedDependencies, r)
		}
		if r.Name == Params {
			params = r
		}
	}
	p.SubjectIs = "outputs"
	if len(outputs) == 0 {
		outputs, p.SubjectIs = []Resource{params}, "params"
	}
	p.ForgeableBy, p.Byproducts = append([]string{}, p.ForgeableBy...), append([]Resource{}, p.Byproducts...)
	p.Rows = append([]Row{}, p.Rows...)
	p.Note = note(p)
	return jsonv2.Marshal(Statement{StatementType, outputs, PredicateType, p})
}

// note returns a sentence about ForgeableBy.
func note(p Predicate) string {
	switch own := p.Execution.ExecutedAs; {
	case len(p.ForgeableBy) == 0:
		return ""
	case own == "":
		return "Inputs were made by runs that were executed as " + strings.Join(p.ForgeableBy, ", ") + ", who could have forged them."
	default:
		return "The job and its files belonged to the Unix user " + own + ", who could have forged this end and its outputs." + others(p, own)
	}
}

func others(p Predicate, own string) string {
	var rest []string
	for _, user := range p.ForgeableBy {
		if user != own {
			rest = append(rest, user)
		}
	}
	if len(rest) == 0 {
		return ""
	}
	return " Inputs were made by runs that were executed as " + strings.Join(rest, ", ") + ", who could have forged them."
}

// OutputName returns the name of an output among the subjects.
func OutputName(role, label string) string { return cmp.Or(role, "output") + "/" + label }
