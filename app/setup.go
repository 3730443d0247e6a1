package app

import (
	"context"

	"slurmgate/gate"
)

// SetupArgs are the arguments of site.init. What is empty is found out.
type SetupArgs struct {
	File     string `json:"file"`               // the site file to write
	Shared   string `json:"shared,omitzero"`    // a folder on a filesystem that all nodes see under the same path
	StateDir string `json:"state_dir,omitzero"` // for the ledger, on a local disk
	User     string `json:"user,omitzero"`      // that the gateway runs as
	Account  string `json:"account,omitzero"`   // that jobs charge
	BinDir   string `json:"bin_dir,omitzero"`   // of Slurm's commands
	Conf     string `json:"conf,omitzero"`      // slurm.conf
	Data     string `json:"data,omitzero"`      // a folder that files are imported from
	Domain   string `json:"domain,omitzero"`    // a domain's folder to copy
	Print    bool   `json:"print,omitzero"`     // write nothing

	// For a cluster elsewhere.
	SSH        string   `json:"ssh,omitzero"`          // [user@]host[:port] of its login node
	Jump       []string `json:"jump,omitempty"`        // hosts on the way, likewise
	Key        string   `json:"key,omitzero"`          // private key file
	Agent      string   `json:"agent,omitzero"`        // socket of an SSH agent
	KnownHosts []string `json:"known_hosts,omitempty"` // files
	Trust      []string `json:"trust,omitempty"`       // fingerprints of host keys that the admin has compared
	Files      string   `json:"files,omitzero"`        // sftp or shared
}

// SetupAnswer is the answer of site.init.
type SetupAnswer struct {
	File     string   `json:"file"`
	Domain   string   `json:"domain"` // its folder
	Written  bool     `json:"written"`
	Site     string   `json:"site"`     // text of the site file
	Policy   string   `json:"policy"`   // text of the domain's policies.yaml
	Commands []string `json:"commands"` // that make the folders, for root
	Open     []string `json:"open"`     // what is still to be decided
}

// setup is the operation that writes the first site file of a cluster.
func (h Host) setup() Operation {
	word := `{"type":"string","maxLength":255}`
	words := `{"type":"array","maxItems":16,"items":` + word + `}`
	return Operation{
		ID: "site.init", Title: "Write a site file", Verb: "site init",
		Description: "Asks the cluster and writes a site file and a policy for it.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Files, Faces: shellOnly,
		Input: object("file", prop("file", pathSchema), prop("shared", pathSchema), prop("state_dir", pathSchema), prop("user", word),
			prop("account", word), prop("bin_dir", pathSchema), prop("conf", pathSchema), prop("domain", pathSchema),
			prop("data", pathSchema), prop("print", yesNo), prop("ssh", word), prop("jump", words), prop("key", pathSchema),
			prop("agent", pathSchema), prop("known_hosts", `{"type":"array","maxItems":16,"items":`+pathSchema+`}`), prop("trust", words),
			prop("files", `{"enum":["sftp","shared"]}`)),
		Does: does(func(ctx context.Context, _ gate.Call, a SetupArgs) (SetupAnswer, error) { return h.Setup(ctx, a) }),
	}
}
