package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"slurmgate/run"
)

// Seeded runs make a large ledger in seconds: rows as the engine would have left them, pending in Slurm, without workspaces and jobs. The
// watcher must find them in Slurm's answer: squeue in the rig's folder of commands runs the real squeue and then prints one record for
// each of them.
const (
	shownFile = "shown"
	seededJob = 10_000_000 // the first seeded job's id, above all real ones
)

const squeueWrapper = `#!/bin/bash
/usr/bin/squeue "$@" || exit
exec /usr/bin/cat %s
`

// seed adds n runs, numbered from from.
func (g *rig) seed(ctx context.Context, from, n int) error {
	shown, err := os.Create(filepath.Join(g.dir, shownFile))
	if err != nil {
		return err
	}
	defer shown.Close()
	w := bufio.NewWriter(shown)
	var mu sync.Mutex
	err = parallel(ctx, 64, from, n, func(i int) error {
		v, err := g.seedOne(ctx, i)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		// The columns slurm.CLI asks for: slurm/query.go.
		const sep = "\x1f"
		for _, field := range []string{v.Submission.JobID, v.Attempt.SlurmState, v.Attempt.SlurmWhy, "0", "", "0:0",
			fmt.Sprint(v.Run.CreatedAt.Unix()), "N/A", "N/A", v.Submission.Cluster, v.Submission.JobName, user} {
			w.WriteString(field + sep)
		}
		return w.WriteByte('\n')
	})
	squeue := filepath.Join(g.dir, "bin", "squeue")
	return errors.Join(err, w.Flush(), os.Remove(squeue), os.WriteFile(squeue, fmt.Appendf(nil, squeueWrapper, shown.Name()), 0o755))
}

// seedOne writes the two ends of a submission: the new run, and what the watcher saw of its job.
func (g *rig) seedOne(ctx context.Context, i int) (run.View, error) {
	o := g.order(i)
	canonical, id, err := o.Identity()
	if err != nil {
		return run.View{}, err
	}
	var random [16]byte
	rand.Read(random[:])
	now, token := time.Now(), hex.EncodeToString(random[:])
	r := run.Run{ID: id.RunID(), ToolID: o.ToolID, ToolName: o.ToolName, ToolVersion: o.ToolVersion, ContractVersion: o.ContractVersion,
		PackHash:   o.PackHash,
		PolicyHash: o.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(), ProjectID: o.Params.ProjectID, Site: "bench",
		Actor: o.Actor,
		State: run.Queued, Phase: run.Staging, AttemptN: 1, CreatedAt: now, UpdatedAt: now}
	if r.ResultJSON, err = json.Marshal(run.SubmitAnswer{RunID: r.ID, ProvenanceRunID: r.ID, State: r.State, Phase: r.Phase,
		EquivalentRuns: []string{}, Warnings: []string{}}); err != nil {
		return run.View{}, err
	}
	sub := run.Submission{Token: token, JobName: run.JobName(r.ID, 1, token), CreatedAt: now}
	in := o.Params.Spec.IO.Inputs[0]
	v, created, err := g.ledger.Insert(ctx, run.New{Run: r, Submission: sub, Params: canonical, Policy: o.Policy,
		Inputs: []run.Link{{Role: in.Role, ArtifactID: in.ArtifactID, Relpath: in.DestRelpath}}, Event: run.Event{Type: "run.created",
			Data: map[string]any{"seeded": true}}})
	if err != nil || !created {
		return v, errors.Join(err, fmt.Errorf("seeded run %d: new is %v", i, created))
	}
	v.Run.Phase, v.Run.Reason, v.Run.Detail = run.Pending, "waiting_in_slurm", "PartitionDown"
	v.Attempt.SlurmState, v.Attempt.SlurmWhy, v.Attempt.ObservedAt = "PENDING", "PartitionDown", &now
	v.Submission.JobID, v.Submission.Cluster, v.Submission.SubmittedAt = fmt.Sprint(seededJob+i), "devcluster", &now
	return g.ledger.Apply(ctx, run.Write{Run: v.Run, Attempts: []run.Attempt{v.Attempt}, Submission: &v.Submission,
		Send:  &run.Send{Token: token, K: 1, StartedAt: now, EndedAt: &now, Outcome: run.SendAccepted, Text: v.Submission.JobID},
		Event: run.Event{Type: "run.pending", Data: map[string]any{"seeded": true}}})
}
