package run

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Strength is how a job gets the bytes of an input. It is no part of a run's identity: the bytes are the same.
type Strength string

// The strengths. With each of them the job hashes the bytes before the program starts, unless the site is set
// otherwise.
const (
	Copied  Strength = "copied"   // a private copy in the run's folder
	Bound   Strength = "bound"    // the object in the gateway's store, which the nodes see, mounted read-only
	InPlace Strength = "in_place" // the file where its owner has it, mounted read-only
)

// Rests is what guarantees the bytes of an input that is read in place.
type Rests struct {
	On           string    `json:"rests_on"`                // how the job compares them: [OnHash], [OnHashBefore] or [OnState]
	RegisteredBy string    `json:"registered_by"`           // name of the principal that registered it
	RegisteredAs string    `json:"registered_as,omitempty"` // the Unix user whose login hashed it, and could forge it; "": the gateway
	RegisteredAt time.Time `json:"registered_at"`
}

// The guarantees for the bytes of an input in place. Its state (inode, size and times) is compared before and after the
// program in any case.
const (
	OnHash       = "hash"        // the job hashes them before and after the program
	OnHashBefore = "hash_before" // the job hashes them before the program only: only administrators may write to them
	OnState      = "state"       // the site verifies images alone, so the job compares nothing else
)

// Got is how a job got an input that is not copied.
type Got struct {
	Strength Strength `json:"strength"`
	Rests    *Rests   `json:"rests,omitempty"` // only for one in place
}

// Placed is an input and how a job gets it.
type Placed struct {
	plan.Input
	Strength Strength
	Rests    *Rests // only for one in place
	Path     string // absolute, as jobs see it; empty: copied
	State    string // for a file in place inode, size, mtime and ctime; for a directory "tree" and a digest; empty: not compared
	// Recheck: users other than the site's administrators may write to the input in place, so the job hashes it again
	// after the program.
	Recheck bool
	// for a directory that is mounted as a whole: its files, by their paths in in/
	Files []plan.Input
	// Open opens the bytes where the gateway's store does not have them; nil: it has them.
	Open func(ctx context.Context) (r io.ReadCloser, size int64, err error)
}

// beneath is a file that keeps the folder on which a directory is mounted; the mount hides it.
const beneath = "/.mounted"

// Placing returns how a job of the run gets each of its inputs, in their order; a directory is copied, or mounted as a
// whole where it is in place. A later attempt may get them in another way. An input in place that differs from what was
// registered is a Validation fault.
type Placing func(ctx context.Context, r Run, inputs []plan.Input) ([]Placed, error)

// copies returns the inputs as copies.
func copies(inputs []plan.Input) []Placed {
	list := make([]Placed, len(inputs))
	for i, in := range inputs {
		list[i] = Placed{Input: in, Strength: Copied}
	}
	return list
}

// emptySHA256 is the checksum of no bytes.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// staged returns the files to create in in/: the copies, and for each mounted input an empty file or a folder as its
// mount point.
func staged(list []Placed) []plan.Input {
	inputs := make([]plan.Input, len(list))
	for i, p := range list {
		if inputs[i] = p.Input; p.Path != "" {
			inputs[i].ChecksumSHA256 = emptySHA256
			if p.Directory {
				inputs[i].DestRelpath, inputs[i].Directory = p.DestRelpath+beneath, false
			}
		}
	}
	return inputs
}

// opener returns an Opener for the bytes of a job's inputs. It also opens the empty content, which the store need not
// have.
func (e *Engine) opener(list []Placed) Opener {
	return func(ctx context.Context, sha256 string) (io.ReadCloser, int64, error) {
		if sha256 == emptySHA256 {
			return io.NopCloser(strings.NewReader("")), 0, nil
		}
		r, size, err := e.Objects.Reader(ctx, sha256)
		if i := slices.IndexFunc(list, func(p Placed) bool { return p.ChecksumSHA256 == sha256 && p.Open != nil }); i >= 0 &&
			fault.Is(err, fault.NotFound) {
			return list[i].Open(ctx)
		}
		return r, size, err
	}
}

// gotten returns how the inputs that are not copied are got, by dest_relpath; nil if all are copied.
func gotten(list []Placed) map[string]Got {
	var by map[string]Got
	for _, p := range list {
		if p.Strength == Copied {
			continue
		}
		if by == nil {
			by = map[string]Got{}
		}
		by[p.DestRelpath] = Got{p.Strength, p.Rests}
	}
	return by
}
