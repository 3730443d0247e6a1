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

// Strength says how a job gets the bytes of an input. It is no part of a run's identity: the bytes are the same.
type Strength string

// The strengths. Whatever it is, the job hashes the bytes before the program starts, unless the site says otherwise.
const (
	Copied  Strength = "copied"   // a private copy in the run's folder
	Bound   Strength = "bound"    // the object in the gateway's store, which the nodes see, mounted read-only
	InPlace Strength = "in_place" // the file where its owner has it, mounted read-only
)

// Rests says what the bytes of an input that is read in place rest on.
type Rests struct {
	On           string    `json:"rests_on"`                // how the job compares them: [OnHash], [OnHashBefore] or [OnState]
	RegisteredBy string    `json:"registered_by"`           // name of the principal whose registration it is
	RegisteredAs string    `json:"registered_as,omitempty"` // the Unix user whose login hashed it then, who could have forged that; "": the gateway
	RegisteredAt time.Time `json:"registered_at"`
}

// What the bytes of an input in place rest on. Its state (inode, size and times) is compared before and after the
// program in any case.
const (
	OnHash       = "hash"        // the job hashes them before and after the program
	OnHashBefore = "hash_before" // before the program alone: only administrators may write to them
	OnState      = "state"       // the site verifies images alone, so the job compares nothing else
)

// Got is how a job got an input that is not copied.
type Got struct {
	Strength Strength `json:"strength"`
	Rests    *Rests   `json:"rests,omitempty"` // of one in place
}

// Placed is an input and how a job gets it.
type Placed struct {
	plan.Input
	Strength Strength
	Rests    *Rests // of one in place
	Path     string // absolute, as jobs see it; empty: copied
	State    string // of a file in place inode, size, mtime and ctime; of a directory "tree" and a digest; empty: not compared
	// Recheck: others than the site's administrators may write to what lies in place, so the job hashes it after the
	// program, too.
	Recheck bool
	// of a directory that is mounted as a whole: its files, where they are in in/
	Files []plan.Input
	// Open opens the bytes where the gateway's store does not have them; nil: it has them.
	Open func(ctx context.Context) (r io.ReadCloser, size int64, err error)
}

// beneath is a file that keeps the folder on which a directory is mounted; the mount hides it.
const beneath = "/.mounted"

// Placing says how a job of the run gets each of its inputs, in their order; a directory is copied, or mounted as a whole from where it
// lies in place. A later attempt may get them otherwise. What lies in place and is no longer what was registered is a Validation fault.
type Placing func(ctx context.Context, r Run, inputs []plan.Input) ([]Placed, error)

// copies are inputs that are all copied.
func copies(inputs []plan.Input) []Placed {
	list := make([]Placed, len(inputs))
	for i, in := range inputs {
		list[i] = Placed{Input: in, Strength: Copied}
	}
	return list
}

// emptySHA256 is the checksum of no bytes.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// staged are the files of in/: the copies, and for each input that is mounted an empty file or a folder to
// mount it on.
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

// opener opens the bytes of a job's inputs, and no bytes too, which the store need not have.
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

// gotten is how the inputs are got that are not copied, by dest_relpath; nil when all are.
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
