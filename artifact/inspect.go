package artifact

import (
	"bufio"
	"fmt"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
)

// inspector finds the type of a file from its first bytes and its name, or takes the one the caller asked for, and checks the bytes
// against it as they pass.
type inspector struct {
	*filetype.Follower
	typ string // asked for, or found; known after Finish
}

// inspect makes an inspector of a file with a name, or of bytes that the field of a call gave. The size in bytes is 0 where it is unknown.
func (im *Importer) inspect(name, field string, size int64) *inspector {
	i := &inspector{}
	i.Follower = filetype.Follow(func(r *bufio.Reader) error {
		opt := filetype.Checks{Full: im.full, Blocks: im.full, Size: size}
		found, claimed, err := filetype.Inspect(r, name, im.as, im.types, opt)
		i.typ = found
		if err == nil {
			return nil
		}
		what := fault.Quote(name, 200)
		if name == "" {
			what = "the " + field
		}
		return fault.Invalid("", fault.Problem{Code: ImportFormat, Field: field, Rule: "a whole file of its type",
			Msg:  fmt.Sprintf("%s is not a whole %s file: %v", what, claimed, err),
			Hint: wayOut(claimed, im.as == "", err)})
	})
	return i
}

// wayOut returns the next step for a file that is not a whole one of a type. A tool that wants this type refuses a
// file stored as another type, so that does not help.
func wayOut(typ string, detected bool, err error) string {
	instead := plan.UnknownType
	if detected && typ == "JSON" {
		instead = "TEXT"
	}
	way := "import the whole file again"
	if command := filetype.Rewrite(typ, err); command != "" {
		way = "if the content is whole, write the file anew (" + command + ") and import that; else import the whole file again"
	}
	return way + ". With type " + instead + " its bytes are stored as they are, which tools that take " + typ + " refuse"
}

// As returns the importer for files of a type that the caller gives: it is not detected, and other files are refused.
// An empty type changes nothing.
func (im *Importer) As(typ string) *Importer {
	as := *im
	as.as = typ
	return &as
}
