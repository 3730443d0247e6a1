package app

import (
	"context"
	"time"

	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/gate"
)

// backups are the operations that copy all that a gateway keeps, and put it back. They work on its files in the shell's process, whether
// the gateway runs or not.
func (h Host) backups() []Operation {
	at, dir := prop("site", pathSchema), prop("dir", pathSchema)
	return []Operation{{
		ID: "gateway.backup", Title: "Back up", Verb: "backup",
		Description: "Copies the ledger, the artifacts and the configuration into a folder, consistent while the gateway runs.",
		Effect:      gate.Write, Repeat: gate.NonIdempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin, SiteWide: true,
		Needs: Site, Faces: shellOnly,
		Limit: 24 * time.Hour,
		Input: object("site dir", at, dir, prop("keep", `{"type":"integer","minimum":0,"maximum":100000}`), prop("verify", yesNo)),
		Does: does(func(ctx context.Context, _ gate.Call, a BackupArgs) (backup.Made, error) {
			return h.Backup(ctx, a)
		}),
	}, {
		ID: "gateway.restore", Title: "Restore", Verb: "restore",
		Description: "Puts a backup back into a place without a ledger. The restored ledger has an event of it.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapAdmin, SiteWide: true,
		Needs: Files, Faces: shellOnly,
		Limit: 24 * time.Hour,
		Input: object("site dir", at, dir, prop("partial", yesNo), prop("owner", `{"type":"string","maxLength":64}`)),
		Does: does(func(ctx context.Context, _ gate.Call, a RestoreArgs) (RestoreAnswer, error) {
			return h.Restore(ctx, a)
		}),
	}}
}

// BackupArgs are the arguments of gateway.backup.
type BackupArgs struct {
	Site   string `json:"site"`
	Dir    string `json:"dir"`
	Keep   int    `json:"keep,omitzero"` // backups that stay in the folder; 0: all
	Verify bool   `json:"verify,omitzero"`
}

// RestoreArgs are the arguments of gateway.restore.
type RestoreArgs struct {
	Site    string `json:"site"`
	Dir     string `json:"dir"`
	Partial bool   `json:"partial,omitzero"`
	Owner   string `json:"owner,omitzero"` // user; empty: the owner of gateway.state_dir
}

// RestoreAnswer is the answer of gateway.restore.
type RestoreAnswer struct {
	backup.Restored
	Owner     string       `json:"owner"`
	Advice    []string     `json:"advice"` // what to do first
	NextSteps []fault.Step `json:"next_steps"`
}
