package artifact

import (
	"errors"
	"fmt"

	"slurmgate/fault"
)

// inspector finds the type of a file from its first bytes and its name, or takes the one the caller asked for, and checks the bytes
// against it as they pass.
type inspector struct {
	im    *Importer
	name  string // a file name, or what a caller calls the bytes
	field string // of the call, to which problems belong
	size  int64  // in bytes where it is known, else 0

	head    []byte
	typ     string   // asked for, or found
	against string   // the type that is checked; not typ where the name claims another
	checker *Checker // nil until the head is there
}

func (im *Importer) inspect(name, field string, size int64) *inspector {
	return &inspector{im: im, name: name, field: field, size: size}
}

func (i *inspector) Write(p []byte) (int, error) {
	n := len(p)
	if i.checker == nil {
		take := min(n, HeadBytes-len(i.head))
		i.head = append(i.head, p[:take]...)
		if p = p[take:]; len(i.head) < HeadBytes {
			return n, nil
		}
		i.begin()
	}
	i.checker.Write(p)
	return n, nil
}

func (i *inspector) begin() {
	i.typ, i.against = i.im.as, i.im.as
	if i.typ == "" {
		i.typ = Detect(i.head, i.name, i.im.types...)
		i.against = i.typ
		switch claim := claimed(i.name); {
		case claim == typeGzip && i.typ != "UNKNOWN" && string(i.head[:min(3, len(i.head))]) == magicGzip: // it was recognised inside
		case claim != "":
			i.against = claim
		}
	}
	i.checker = NewChecker(i.against, Checks{Full: i.im.full, Blocks: i.im.full, Size: i.size})
	i.checker.Write(i.head)
}

// finish says what is wrong with the file, whose bytes have all passed.
func (i *inspector) finish() error {
	if i.checker == nil {
		i.begin()
	}
	err := i.checker.Finish()
	if err == nil && i.against != i.typ && i.against != typeGzip {
		err = errors.New("its content is something else")
		if i.against == "FASTQ_GZ" {
			err = errors.New("it does not begin with a FASTQ record")
		}
	}
	if err == nil {
		return nil
	}
	hint := "import the whole file again, or with type UNKNOWN to store the bytes as they are"
	if i.im.as == "" && i.against == "JSON" {
		hint = "import the whole file again, or with type TEXT to store the bytes as they are"
	}
	what := fmt.Sprintf("%.200q", i.name)
	if i.name == "" {
		what = "the " + i.field
	}
	return fault.Invalid("artifact.Import", "", fault.Problem{Code: ImportFormat, Field: i.field, Rule: "the bytes agree with the type",
		Msg: fmt.Sprintf("%s is not a whole %s file: %v", what, i.against, err), Hint: hint})
}

// close ends the check, whether or not all bytes passed.
func (i *inspector) close() {
	if i.checker != nil {
		i.checker.Close()
	}
}

// As is the importer for files that a caller says are of a type: it is not detected, and files that are not of it are refused. An empty
// type changes nothing.
func (im *Importer) As(typ string) *Importer {
	as := *im
	as.as = typ
	return &as
}
