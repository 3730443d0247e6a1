package app

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/retention"
)

// erasing returns the operations on leaked secrets. The secret itself is the body of a request: it is in no argument
// and in no record.
func (g *Gateway) erasing() []Operation {
	return []Operation{{
		ID: "secret.erase", Title: "Erase a leaked secret", Verb: "erase",
		Description: "Removes a secret from everything that the gateway stores: params, records, scripts, logs, artifacts, workspaces. The " +
			"secret " +
			"is the body of POST /v1/secrets:erase or the standard input of `slurmgate erase`, never an argument. The hash chains still verify " +
			"afterwards and say what was erased.",
		Destructive: true,
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.NonDeterministic, Capability: gate.CapAdmin,
		Needs: Engine,
		Acts:  ActsOnAnyRun,
		Faces: noChat, Limit: 12 * time.Hour, Body: retention.SecretMost + 2,
		Does: withProvenance(g, g.erase), DryRun: withProvenance(g, g.rehearseErase),
	}}
}

// EraseArgs are the arguments of secret.erase.
type EraseArgs struct {
	Reason string `json:"reason" min:"1" max:"512" about:"why, for the record; without the secret"`
	DryRun bool   `json:"dry_run,omitzero" about:"report where the secret is, and erase nothing"`
}

// EraseAnswer is the answer of secret.erase.
type EraseAnswer struct {
	CallRunID
	retention.EraseReport
	SecretHMAC string `json:"secret_hmac"` // with the ledger's key: equal for equal secrets
}

// Unchanged reports whether the call erased nothing.
func (a EraseAnswer) Unchanged() bool { return a.ID == "" }

func (g *Gateway) deleter() retention.Deleter {
	return retention.Deleter{Ledger: g.Ledger, Workspaces: g.Sites, Store: g.Store, Now: time.Now}
}

func (g *Gateway) erase(ctx context.Context, c gate.Call, a EraseArgs) (out EraseAnswer, err error) {
	if c.Caller.Body == nil {
		return out, fault.New(fault.Validation, "secret_missing", "the call has no secret").
			WithNext("give it on standard input: slurmgate erase --reason TEXT < FILE")
	}
	text, err := io.ReadAll(c.Caller.Body)
	if err != nil {
		return out, err
	}
	e := retention.Erasure{ID: "ers_" + strings.ToLower(rand.Text()[:16]), By: c.Caller.Name, Reason: a.Reason}
	secret, err := retention.NewSecret(text, e.ID)
	if err != nil {
		return out, err
	}
	if secret.In([]byte(a.Reason + "\n" + e.By)) {
		return out, fault.New(fault.Validation, "secret_in_reason", "the reason, or your own name, contains the secret").
			WithNext("give another reason; this call's arguments were recorded, so repeat it to erase them")
	}
	key, err := g.Ledger.GateKey(ctx)
	if err != nil {
		return out, err
	}
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "erased-secret=%s", strings.TrimRight(string(text), "\r\n"))
	e.HMAC = hex.EncodeToString(m.Sum(nil))
	if !g.sweeping.TryLock() {
		return out, fault.New(fault.Conflict, "gc_running", "a gc or another erasure is running").
			WithNext("wait until it has finished")
	}
	defer g.sweeping.Unlock()
	out.SecretHMAC = e.HMAC
	if out.EraseReport, err = g.deleter().Erase(ctx, e, secret, a.DryRun); err != nil {
		return out, err
	}
	out.Outside = g.outside(time.Now())
	return out, nil
}

func (g *Gateway) rehearseErase(ctx context.Context, c gate.Call, a EraseArgs) (EraseAnswer, error) {
	a.DryRun = true
	return g.erase(ctx, c, a)
}

// outside lists where copies of the secret may be that the gateway does not reach.
func (g *Gateway) outside(now time.Time) []string {
	before := now.UTC().Format(time.RFC3339)
	return []string{
		"the secret itself: it leaked, so replace it where it is valid (rotate it); nothing else makes it harmless",
		"backups of state_dir (ledger.db), artifact_dir and runs_dir made before " + before + ": slurmgate makes none and does not know " +
			"yours; erase them, or note that they hold the secret until they expire. A ledger restored from one needs this erasure again",
		"snapshots of the filesystems of state_dir, artifact_dir and runs_dir made before " + before,
		"what callers fetched before: outputs, logs and answers of calls; the records of calls say who did",
		"Slurm's copy of job scripts: StateSaveLocation and SlurmdSpoolDir while a job is known, and accounting where AccountingStoreFlags has " +
			"job_script; job names and comments have no arguments in them",
		"logs of this program and of a reverse proxy, files below the import roots, images, and the domain package",
		"compressed and encrypted files other than gzip, and other ways to write the secret than text, JSON, URL, base64, hex and shell quotes",
	}
}

// ResumeDeletions finishes erasures and removals that an earlier gateway could not finish. If there are none it takes
// no lock, so that a concurrent gc is not refused.
func (g *Gateway) ResumeDeletions(ctx context.Context) {
	if ids, err := g.Ledger.Unfinished(ctx); err == nil && len(ids) == 0 {
		return
	}
	g.sweeping.Lock()
	defer g.sweeping.Unlock()
	pending, err := g.deleter().Resume(ctx)
	for _, p := range pending {
		g.Log.Error("something that was erased or removed is still there", "where", p.Name, "why", p.Why)
	}
	if err != nil && ctx.Err() == nil {
		g.Log.Error("deletions could not be finished", "err", err)
	}
}
