package app

import (
	"context"
	"time"

	"slurmgate/backup"
	"slurmgate/fault"
	"slurmgate/gate"
)

// backups returns the operations that copy all that a gateway stores, and restore it. They work on its files in the
// shell's process, whether the gateway runs or not.
func (h Host) backups() []Operation {
	return []Operation{{
		ID: "gateway.backup", Title: "Back up", Verb: "backup",
		Description: "Copies the ledger, the artifacts and the configuration into a folder, consistent while the gateway runs.",
		Effect:      gate.Write, Repeat: gate.NonIdempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin,
		Needs: Site, Faces: shellOnly,
		Limit: 24 * time.Hour,
		Does: does(func(ctx context.Context, _ gate.Call, a BackupArgs) (backup.Made, error) {
			return h.Backup(ctx, a)
		}),
	}, {
		ID: "gateway.restore", Title: "Restore", Verb: "restore",
		Description: "Puts a backup back into a place without a ledger. The restored ledger has an event of it.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Files, Faces: shellOnly,
		Limit: 24 * time.Hour,
		Does: does(func(ctx context.Context, _ gate.Call, a RestoreArgs) (RestoreAnswer, error) {
			return h.Restore(ctx, a)
		}),
	}}
}

// BackupArgs are the arguments of gateway.backup.
type BackupArgs struct {
	Site   string `json:"site" kind:"path" kong:"-"`
	Dir    string `json:"dir" kind:"path" arg:"" help:"Folder for backups. Artifacts that an earlier backup in it has are not copied again." type:"path"`
	Keep   int    `json:"keep,omitzero" min:"0" max:"100000" help:"Remove all but the newest N backups of the folder afterwards. 0: remove none." placeholder:"N"`
	Verify bool   `json:"verify,omitzero" help:"Also read again, and compare with their checksums, the artifacts that earlier backups copied."`
}

// RestoreArgs are the arguments of gateway.restore.
type RestoreArgs struct {
	Site    string `json:"site" kind:"path"`
	Dir     string `json:"dir" kind:"path"`
	Partial bool   `json:"partial,omitzero"`
	Owner   string `json:"owner,omitzero" max:"64"` // user; empty: the owner of gateway.state_dir
}

// RestoreAnswer is the answer of gateway.restore.
type RestoreAnswer struct {
	backup.Restored
	Owner     string       `json:"owner"`
	Advice    []string     `json:"advice"` // what to do first
	NextSteps []fault.Step `json:"next_steps"`
}
