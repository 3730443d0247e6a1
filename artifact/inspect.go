package artifact

import (
	"bufio"
	"errors"
	"fmt"
	"strings"

	"slurmgate/fault"
)

// inspector finds the type of a file from its first bytes and its name, or takes the one the caller asked for, and checks the bytes
// against it as they pass.
type inspector struct {
	*follower
	typ string // asked for, or found; known after Finish
}

// inspect makes an inspector of a file with a name, or of bytes that the field of a call gave. The size in bytes is 0 where it is unknown.
func (im *Importer) inspect(name, field string, size int64) *inspector {
	i := &inspector{}
	i.follower = follow(func(r *bufio.Reader) error {
		head, _ := r.Peek(HeadBytes)
		against := im.as // the type that is checked; not typ where the name claims another
		if i.typ = im.as; i.typ == "" {
			i.typ = Detect(head, name, im.types...)
			against = i.typ
			switch claim := claimed(name); {
			case claim == typeGzip && i.typ != "UNKNOWN" && strings.HasPrefix(string(head), magicGzip): // it was recognised inside
			case claim != "":
				against = claim
			}
		}
		err := check(r, against, Checks{Full: im.full, Blocks: im.full, Size: size}, nil)
		if err == nil && against != i.typ && against != typeGzip {
			err = errors.New("its content is something else")
			if against == "FASTQ_GZ" {
				err = errors.New("it does not begin with a FASTQ record")
			}
		}
		if err == nil {
			return nil
		}
		instead := "UNKNOWN"
		if im.as == "" && against == "JSON" {
			instead = "TEXT"
		}
		what := fmt.Sprintf("%.200q", name)
		if name == "" {
			what = "the " + field
		}
		return fault.Invalid("", fault.Problem{Code: ImportFormat, Field: field, Rule: "the bytes agree with the type",
			Msg:  fmt.Sprintf("%s is not a whole %s file: %v", what, against, err),
			Hint: "import the whole file again, or with type " + instead + " to store the bytes as they are"})
	})
	return i
}

// As is the importer for files that a caller says are of a type: it is not detected, and files that are not of it are refused. An empty
// type changes nothing.
func (im *Importer) As(typ string) *Importer {
	as := *im
	as.as = typ
	return &as
}
