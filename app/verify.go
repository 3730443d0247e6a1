package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/plan/tree"
	"slurmgate/run"
)

const (
	verifyPage = 500 // artifacts per query of the ledger
	maxDamaged = 100 // artifacts named in an answer
)

// VerifyArgs are the arguments of artifact.verify.
type VerifyArgs struct {
	ArtifactID string `json:"artifact_id,omitzero" arg:"" optional:"" name:"artifact" ids:"artifact,file" help:"Artifact id, the beginning of one, or a file with its bytes."`
	All        bool   `json:"all,omitzero" help:"Verify every artifact."`
	ProjectID  string `json:"project_id,omitzero" kind:"project" name:"project" help:"With --all: only artifacts of this project (name or id)." placeholder:"NAME"`
}

// Damage is an artifact whose bytes have changed or are missing.
type Damage struct {
	ArtifactDoc
	Code    string `json:"code"` // artifact_corrupt, artifact_bytes_missing, or the reason why the bytes could not be read
	Message string `json:"message"`
}

// Verified is the result of hashing the bytes of artifacts again.
type Verified struct {
	CallRunID
	Snapshot      bytesFound `json:"snapshot"`
	AsOf          *time.Time `json:"as_of_created_at"`
	ArtifactCount int64      `json:"artifact_count"`
	Checked       int        `json:"checked"`       // artifacts
	Objects       int        `json:"objects"`       // distinct contents among them; each is read once
	BytesRead     int64      `json:"bytes_read"`    // without damaged ones
	DamagedCount  int        `json:"damaged_count"` // total number; damaged lists the first 100
	Damaged       []Damage   `json:"damaged"`
}

// bytesFound is the state of the store that an answer covers: what was read, and the result.
type bytesFound struct {
	ArtifactsSHA256 string `json:"artifacts_sha256"` // of a line for each artifact: its id, its checksum, and the code of its damage
	Checked         int    `json:"checked"`
	Objects         int    `json:"objects"`
	BytesRead       int64  `json:"bytes_read"`
}

func (g *Gateway) verify(ctx context.Context, c gate.Call, a VerifyArgs) (out Verified, err error) {
	switch {
	case a.All == (a.ArtifactID != ""), a.ProjectID != "" && !a.All:
		return out, fault.Invalid("", fault.Problem{Code: "VERIFY-WHAT", Field: "args",
			Rule: "either artifact_id, or all=true with an optional project_id",
			Msg:  "artifact_id, all and project_id do not fit together, or all are missing"})
	case a.ArtifactID != "":
		ctx, end := g.transfers.begin(ctx, c, "hashing")
		defer end()
		return g.verifyOne(ctx, a.ArtifactID)
	case !c.Caller.CanSomewhere(append(slices.Clone(c.Needs), gate.CapOperate)...):
		return out, fault.New(fault.Capability, "capability_denied",
			"verifying all artifacts needs the capability \"operate\"").WithNext("verify single artifacts, by artifact_id")
	}
	c.Needs = append(slices.Clone(c.Needs), gate.CapOperate)
	projects, err := g.projectsListed(c, a.ProjectID)
	if err != nil {
		return out, err
	}
	if !g.verifying.TryLock() {
		return out, fault.New(fault.Conflict, "verify_running", "another call is already verifying all artifacts").
			WithNext("wait until it has finished")
	}
	defer g.verifying.Unlock()
	return g.verifyAll(ctx, projects)
}

func (g *Gateway) verifyOne(ctx context.Context, id string) (Verified, error) {
	v := newVerifier(g)
	x, err := g.Ledger.Artifact(ctx, id)
	if err == nil {
		err = v.check(ctx, x)
	}
	if err != nil {
		return v.out, err
	}
	v.out.AsOf, v.out.ArtifactCount = &x.CreatedAt, 1
	return v.answer(), nil
}

// verifyAll checks the artifacts of one snapshot, newest first. Artifacts that retention removes meanwhile are
// skipped.
func (g *Gateway) verifyAll(ctx context.Context, projects []string) (Verified, error) {
	v := newVerifier(g)
	f := ledger.ArtifactFilter{Projects: projects, Limit: verifyPage}
	for first := true; ; first = false {
		page, err := g.Ledger.Artifacts(ctx, f)
		if err != nil {
			return v.out, err
		}
		if first {
			v.out.ArtifactCount = page.Snapshot.Count
			if at := page.Snapshot.AsOf; !at.IsZero() {
				v.out.AsOf = &at
			}
		}
		for _, x := range page.Artifacts {
			if err := v.check(ctx, x); err != nil {
				return v.out, err
			}
			f.AsOf = x.CreatedAt.Add(-time.Microsecond) // no cursor: it would be invalid once an artifact is removed
		}
		if len(page.Artifacts) < verifyPage {
			return v.answer(), nil
		}
	}
}

// verifier collects the results.
type verifier struct {
	g     *Gateway
	known map[string]error // checksum → its error
	seen  hash.Hash        // of bytesFound.ArtifactsSHA256
	out   Verified
}

func newVerifier(g *Gateway) *verifier {
	return &verifier{g: g, known: map[string]error{}, seen: sha256.New(), out: Verified{Damaged: []Damage{}}}
}

// check verifies one artifact. It returns an error only if the caller cancelled.
func (v *verifier) check(ctx context.Context, x run.Artifact) error {
	found, seen := v.known[x.SHA256]
	if !seen {
		found = v.g.verifyBytes(ctx, x)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		v.known[x.SHA256] = found
		v.out.Objects++
		if found == nil {
			v.out.BytesRead += x.SizeBytes
		}
	}
	fmt.Fprintln(v.seen, x.ID, x.SHA256, fault.CodeOf(found))
	v.out.Checked++
	if found == nil {
		return nil
	}
	if _, err := v.g.Ledger.Artifact(ctx, x.ID); fault.Is(err, fault.NotFound) {
		return nil // removed since it was listed
	}
	v.out.DamagedCount++
	if len(v.out.Damaged) < maxDamaged {
		v.out.Damaged = append(v.out.Damaged, Damage{docOf(x), fault.CodeOf(found), found.Error()})
	}
	return nil
}

// answer completes the answer with its snapshot.
func (v *verifier) answer() Verified {
	v.out.Snapshot = bytesFound{hex.EncodeToString(v.seen.Sum(nil)), v.out.Checked, v.out.Objects, v.out.BytesRead}
	return v.out
}

// verifyBytes hashes the bytes of an artifact, and of a directory those of its files, at all their places.
func (g *Gateway) verifyBytes(ctx context.Context, x run.Artifact) error {
	err := g.Store.Verify(ctx, x.SHA256)
	if fault.Is(err, fault.NotFound) {
		return g.verifyInPlace(ctx, x, err)
	}
	if err != nil || x.Type != plan.Directory {
		return err
	}
	if only, err := g.Ledger.FilesInPlace(ctx, x.SHA256); err != nil || only {
		nowhere := fault.New(fault.NotFound, "artifact_bytes_missing", "the files of "+x.ID+" lie nowhere in place")
		return cmp.Or(err, g.verifyInPlace(ctx, x, nowhere))
	}
	list, err := g.Store.Open(x.SHA256)
	if err != nil {
		return err
	}
	defer list.Close()
	_, err = tree.Each(list, func(f tree.File) error { return g.Store.Verify(ctx, f.SHA256) })
	return err
}
