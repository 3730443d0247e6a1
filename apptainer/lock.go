package apptainer

import (
	"fmt"

	"slurmgate/fault"
)

// Named is an entry of the domain's image lock.
type Named struct {
	Name      string
	Digest    string // sha256:<64 hex>
	Arch      string // in Go's spelling, e.g. amd64
	SizeBytes int64  // of the SIF file
}

// CodeNotStored is the code of an image that has an entry in the lock and is not in the store.
const CodeNotStored = "IMAGE-NOT-STORED"

// Misfits returns the mismatches of a lock and the store: images that the store lacks, and sizes or architectures that
// differ from the file's. file is the lock file's name in the problems.
func Misfits(file string, locked []Named, stored []Image) (found []fault.Problem) {
	byRef := map[string]Image{}
	for _, i := range stored {
		byRef[i.Ref()] = i
	}
	for i, n := range locked {
		add := func(code, field, rule, msg string) {
			found = append(found, fault.Problem{Code: code, Field: fmt.Sprintf("images[%d].%s", i, field), Rule: rule, Msg: msg, File: file,
				Next: []fault.Step{fault.Do("image add", "name", n.Name)}})
		}
		have, ok := byRef[n.Digest]
		switch {
		case !ok:
			add(CodeNotStored, "digest", "an image of the store", "the image store does not have "+n.Name+" ("+n.Digest+")")
			continue
		case have.Bad != "":
			add("IMAGE-LOCK", "digest", "an image that runs here", n.Name+" cannot be used: "+have.Bad)
		case have.Arch != n.Arch:
			add("IMAGE-LOCK", "arch", "the image's own architecture", n.Name+" is "+have.Arch+", but the lock says "+n.Arch)
		}
		if have.SizeBytes != n.SizeBytes {
			add("IMAGE-LOCK", "size_bytes", "the size of the image's file", fmt.Sprintf("%s has %d bytes, but the lock says %d", n.Name,
				have.SizeBytes, n.SizeBytes))
		}
	}
	return found
}
