package gate

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// Transport is how a call reached the gateway (HTC-08). A tool is reachable by the transports it is bound to.
type Transport string

// The transports of the envelope.
const (
	Local       Transport = "local" // the command line and the unix socket
	MCP         Transport = "mcp"
	MEX         Transport = "mex"
	StageBridge Transport = "stage_bridge"
	Other       Transport = "other" // the HTTP port
)

// Face is how a caller reached the gateway. Unlike the transport it decides nothing: it is for records.
type Face string

// The faces.
const (
	FaceShell  Face = "shell"  // the command line
	FaceSocket Face = "socket" // another program at the unix socket
	FaceHTTP   Face = "http"   // the port
	FaceMCP    Face = "mcp"    // a chat, at the socket or the port
)

// How a principal proved who it is.
const (
	ByPeer    = "peer"    // the kernel reports the user id of the process at the other end of the socket
	ByToken   = "token"   // one of this gateway's own bearer tokens
	ByOIDC    = "oidc"    // an access token of an OpenID provider
	ByProcess = "process" // it is this process itself
)

// All means every capability, or every project.
const All = "*"

// The capabilities of the gateway's own operations. A tool that runs as a job needs [CapSlurm], one that a service
// worker carries out [CapWorker]: the right to spend a project's share of a cluster is not the right to have data
// sent into a network, and the other way round.
const (
	CapGateway = "gateway" // an operation of the gateway itself, not of a tool (AX-01); every built-in needs it
	CapRead    = "read"    // read runs, artifacts and tools
	CapImport  = "import"  // import artifacts
	CapSlurm   = "slurm"   // submit, cancel and retry jobs
	CapWorker  = "worker"  // call service workers
	CapOperate = "operate" // settle runs in doubt
	CapAdmin   = "admin"   // tokens, and the record of all calls; for the whole site only
	CapApprove = "approve" // answer approval requests
	CapMetrics = "metrics" // read the metrics; for the whole site only
)

// Capabilities lists all of them.
func Capabilities() []string {
	return []string{CapGateway, CapRead, CapImport, CapSlurm, CapWorker, CapOperate, CapAdmin, CapApprove, CapMetrics}
}

// Principal is the authenticated identity of a call, see [Authenticator]. The zero Principal may do nothing.
type Principal struct {
	ID      string    `json:"principal_id"` // prn_…, see [Identity]; "" without a ledger
	Name    string    `json:"name"`         // for people, e.g. user:lab, token:ci, oidc:https://issuer#subject; others may have the same
	Owner   bool      `json:"-"`            // the gateway's own user, or root
	Method  string    `json:"method"`       // peer, token, oidc or process
	Rights  Rights    `json:"rights"`
	Expires time.Time `json:"-"` // when the credentials end; zero: they do not
	// project id, or [All], to the Slurm account its jobs charge; empty: the site's default, and any that policy allows
	Accounts map[string]string `json:"accounts"`

	// UnixUser is the user of the cluster that the principal is mapped to: jobs run as this user where slurm.run_as is caller. Empty: none.
	// Whether jobs may run as this user now is checked by package access at each call that acts.
	UnixUser string `json:"unix_user,omitzero"`
	// UserProject is the project of the principal's own, by id, where one of its grants names plan.UserProject; empty: it has none. Calls
	// that name no project are about it.
	UserProject string `json:"user_project,omitzero"`
	// Tools are those that the credentials name, by id: a chat's list has them before the other tools of the domain.
	// They grant no right.
	Tools   []string `json:"-"`
	PeerUID int      `json:"-"` // user id that the kernel reported, of a peer that is not root; else 0
}

// Caller is a principal and the transport of its call.
type Caller struct {
	Principal
	Transport Transport
	Face      Face      // "": unknown
	Address   string    // the client's IP address, or "uid:1001 pid:4711" of a process of this host; "": unknown
	Body      io.Reader // bytes sent with the envelope, for a tool that takes them; nil for none. They are not recorded
	BodyBytes int64     // how many they are; negative: not known before they are read
	Upload    *Upload   // which part of an upload they are; nil: all of it
	// the caller's span that contains the call, where it was sent outside the envelope; "" for none. See [Request]
	ParentSpanID string
	File         *os.File     // an open file handed over with the envelope by a process of this host; nil for none. Closed after the call
	Continues    bool         // the gateway makes the call itself, of what one of the caller's asked for
	Ended        func() error // an Auth fault once the caller's credentials have expired or are revoked; nil: they do not end during the call
}

// Upload is an upload that may take several requests, each of which continues where the one before was cut.
type Upload struct {
	Key    string // the caller's name for it
	Offset int64  // bytes of it received before this request

	// Where the call is refused because of the offset: how many are stored, and their SHA-256 in hex.
	Stored int64
	SHA256 string
}

// Process returns this program as a caller, with every right: for tools that work on files alone, which have no more
// access than the user who started the program.
func Process() Caller {
	return Caller{Principal: Principal{Name: "process", Method: ByProcess, Rights: Everything(), Owner: true}, Transport: Local,
		Face:    FaceShell,
		Address: Here()}
}

// Here returns the address of this process.
func Here() string { return ProcessAt(os.Geteuid(), os.Getpid()) }

// ProcessAt returns the address of a process of this host. A pid of 0 means a process in another PID namespace.
func ProcessAt(uid, pid int) string { return fmt.Sprintf("uid:%d pid:%d", uid, pid) }

// Authenticator turns what a connection or a request proves into a principal. A caller it does not know is an Auth fault.
type Authenticator interface {
	// Peer returns the principal of the process with this user id on this host, as the kernel reported it.
	Peer(uid int) (Principal, error)
	// Bearer returns the principal of an access token: one of this gateway's own, or an OpenID provider's.
	Bearer(ctx context.Context, token string) (Principal, error)
}

// Key identifies the principal to its own things and to limits: its id, or its name where no ledger gives ids.
func (p Principal) Key() string { return orText(p.ID, p.Name) }

// Account returns the Slurm account that the principal's jobs of a project charge; "" where none is set.
func (p Principal) Account(projectID string) string {
	if a, ok := p.Accounts[projectID]; ok {
		return a
	}
	return p.Accounts[All]
}
