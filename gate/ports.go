package gate

import (
	"context"
	"encoding/json"
	"time"
)

// Policy decides before anything is done.
type Policy interface {
	// AllowTool returns a Policy fault for a tool that may not be called. toolName is the name with underscores.
	AllowTool(toolName string) error
	// Rules returns the bounds of a tool's calls.
	Rules(toolName string) Rules
}

// Rules are the bounds that policy sets for the calls of one tool.
type Rules struct {
	Together int           // calls under way at one time; 0: no bound
	Timeout  time.Duration // of a call to a tool that names none itself
	Consent  *ConsentRule  // nil: no approval is needed
}

// ConsentRule limits how long a request for approval and its answer are valid.
type ConsentRule struct {
	Ask    time.Duration // an unanswered request
	Answer time.Duration // an answer, unless the answer sets another time
}

// The chains of records. Records of calls that may have changed something are permanent; the others expire, each with
// separate limits.
const (
	Effects = "effects" // a tool that writes or executes was reached, and did not say that there was nothing to do
	Looks   = "looks"   // everything else: reads, dry runs, what was done already
	Refused = "refused" // what was refused before a tool was reached or by its rights, and callers who could not be identified
)

// Record is one call as it is kept.
type Record struct {
	Chain       string
	Principal   string // name
	PrincipalID string // "" for a caller who is not known
	Face        Face
	Address     string   // see [Caller]
	Runs        []string // that the call is about: named by its arguments, or made by it
	ToolCallID  string
	ToolID      string
	OK          bool
	At          time.Time
	Count       int64           // of the refused calls in this record; 0 and 1: one
	Event       json.RawMessage `json:",omitempty"` // the ToolCallEvent, canonical
	Payloads    []Payload       `json:",omitempty"`
	Outcome     *Outcome        // the outcome to store under the idempotency key
	Provenance  *Provenance     `json:",omitempty"` // the run of the call; nil for a failed one, and for one without an identity
}

// Payload is the arguments or the result of a call, redacted (HTC-09).
type Payload struct {
	Kind   string // args or result
	JSON   json.RawMessage
	SHA256 string // 64 hex, of JSON
}

// Outcome settles an idempotency key.
type Outcome struct {
	Principal string
	KeyHash   string
	Response  json.RawMessage // the part of the response that a repeated call is given
}

// Journal keeps the records of calls.
type Journal interface {
	// Record appends to the chains, in order, and settles keys: all of it or nothing.
	Record(ctx context.Context, records []Record) error
}

// Key is an idempotency key as it is known.
type Key struct {
	Principal  string // key of the principal, see [Principal.Key]
	KeyHash    string
	ToolID     string
	Binding    string // of the first call, see [Gate.binding]
	Rights     string // what the principal could do then, see [Principal.standing]
	ToolCallID string // of the first call
	ApprovalID string // the approval that its first call used up, "" for none
	Outcome    json.RawMessage
	CreatedAt  time.Time
}

// Question is a request for a person's consent to one call.
type Question struct {
	Who         Principal
	ToolID      string
	ToolVersion string
	Covers      Coverage
	Binding     string // of tool, arguments and coverage
	ArgsHash    string
	Payload     json.RawMessage // the arguments, redacted
	Expires     time.Time
}

// Approval is a question and its answer.
type Approval struct {
	ID           string          `json:"approval_id"` // apr_…
	Principal    string          `json:"principal"`   // the requester, by name
	PrincipalID  string          `json:"principal_id" help:"who asks; a name may belong to several principals, an id to one"`
	MadeBy       *string         `json:"made_by" help:"who created the token that asks, by name; null for other principals"`
	ToolID       string          `json:"tool_id"`
	ToolVersion  string          `json:"tool_version"`
	Covers       Coverage        `json:"covers" help:"what it is bound to besides the arguments; site and all after it only for a job"`
	Binding      string          `json:"-"`
	ArgsHash     string          `json:"args_hash"`
	Payload      json.RawMessage `json:"payload"`
	Replaces     *string         `json:"replaces" help:"an earlier request of the same call, which is void"`
	Status       string          `json:"status" enum:"pending,approved,denied,expired,used"` // expired and used follow from ExpiresAt and UsesLeft
	RequestedAt  time.Time       `json:"requested_at"`
	ExpiresAt    time.Time       `json:"expires_at"`
	UsesLeft     int             `json:"uses_left"`
	AnsweredBy   *string         `json:"answered_by"`
	AnsweredByID *string         `json:"answered_by_id"`
	AnsweredAt   *time.Time      `json:"answered_at"`
	Reason       *string         `json:"reason"`
	Shows        *Shows          `json:"shows,omitempty" help:"what the request is about besides its arguments; absent once it is answered"`
}

// Shows has what the person who answers a request for approval sees in addition to its arguments.
type Shows struct {
	Retries []Retried `json:"retries" help:"the runs of which it opens another attempt; empty: none"`
	Sheet   *string   `json:"sheet" help:"text of the artifact that the arguments name as the sheet; null: none"`
	Bytes   int       `json:"bytes" help:"of the arguments, retries and sheet"`
	// Code shows that all of it was seen; null where retries and sheet are left out, because together with the arguments they are long
	Code *string `json:"code" help:"shows that all of it was seen; null in a list that leaves long ones out"`
}

// Retried is a run of which a call opens another attempt.
type Retried struct {
	Row     int             `json:"row,omitempty"` // of a batch; absent: the call names the run
	Sample  string          `json:"sample,omitempty"`
	RunID   string          `json:"run_id"`
	Attempt int             `json:"after_attempt"`
	Params  json.RawMessage `json:"params" help:"all that the program sees"`
}

// The states of an approval.
const (
	Pending  = "pending"
	Approved = "approved"
	Denied   = "denied"
)

// Token is a bearer token without its secret, of which only the hash is stored.
type Token struct {
	ID           string // tok_…
	Name         string // the principal is shown as token:<name>
	SecretSHA256 string // 64 hex
	Capabilities []string
	Projects     []string // ids, or [All]
	Accounts     map[string]string
	UnixUser     string   // see [Principal]
	Tools        []string // see [Principal]
	PrincipalID  string   // prn_…, of this token alone
	CreatedBy    string   // name
	MadeBy       string   // id of the principal that created it, "" without a ledger
	CreatedAt    time.Time
	ExpiresAt    time.Time
	RevokedAt    *time.Time
	RevokedBy    *string
}

// Tokens finds tokens by id.
type Tokens interface {
	// Token returns a token by id; NotFound for an unknown one.
	Token(ctx context.Context, id string) (Token, error)
}

// Promises keeps what binds calls to each other: idempotency keys and approvals.
type Promises interface {
	// Key finds a key of a principal; NotFound when it was never used.
	Key(ctx context.Context, who Principal, keyHash string) (Key, error)
	// Ask finds the live question about the same binding by the same principal, or asks it: never two. A new one
	// voids what the principal asked, or was granted, for the same tool and arguments with another binding.
	Ask(ctx context.Context, q Question) (Approval, error)
	// Approval returns an approval; NotFound for an unknown id.
	Approval(ctx context.Context, id string) (Approval, error)
	// Begin binds the key (nil: none) and uses the approval up by one ("": none), both or neither, before the tool is reached. A
	// key that is bound already stays as it is. An approval that is used up or expired meanwhile is a Policy fault with code
	// consent_required.
	Begin(ctx context.Context, k *Key, approvalID string) error
}

// Owners finds the projects of runs and artifacts.
type Owners interface {
	// Owner returns the project of a run or an artifact; NotFound for an unknown id.
	Owner(ctx context.Context, id string) (projectID string, err error)
	// OwnerSeen returns an earlier answer of Owner for the id, "" where it is not remembered. It never changes.
	OwnerSeen(id string) (projectID string)
	// Asked reports whether a recorded call of the principal is the run.
	Asked(ctx context.Context, who Principal, runID string) (bool, error)
}

// Supposer finds what dry runs would have stored: a dry run of an import stores nothing, yet the next dry run is
// about its artifact.
type Supposer interface {
	// Supposed returns the project of an artifact that a dry run of the principal has shown and that is not stored.
	Supposed(who Principal, id string) (projectID string, ok bool)
}

// Artifacts carries what is too large for an envelope.
type Artifacts interface {
	// Read returns the bytes of an artifact of at most limit bytes; a larger one is a Validation fault.
	Read(ctx context.Context, artifactID string, limit int64) ([]byte, error)
	// Keep stores a caller's result as an artifact of the caller's own project.
	Keep(ctx context.Context, who Principal, label string, data []byte) (artifactID string, err error)
}
