package plan

import (
	"fmt"
	"slices"
	"strings"
)

func (v *validator) inputs(inputs []Input) {
	if len(inputs) > maxFiles {
		v.add("PLAN-INPUTS", "io.inputs", fmt.Sprintf("at most %d", maxFiles), fmt.Sprintf("%d inputs are too many", len(inputs)))
		return
	}
	var dests []string
	for i, in := range inputs {
		at := fmt.Sprintf("io.inputs[%d].", i)
		if msg := CheckWord(in.Role); msg != "" {
			v.add("PLAN-ROLE", at+"role", "whitespace-strict, at most 128 bytes", msg)
		}
		if !artifactID.MatchString(in.ArtifactID) && (in.ArtifactID != "" || !v.stored) {
			v.add("PLAN-ARTIFACT", at+"artifact_id", "art_ and 26 characters of base32", "got "+quoted(in.ArtifactID))
		}
		if !hex64.MatchString(in.ChecksumSHA256) {
			v.add("PLAN-CHECKSUM", at+"checksum_sha256", "64 lower-case hex digits", "got "+quoted(in.ChecksumSHA256))
		}
		if msg := CheckRelPath(in.DestRelpath, "in"); msg != "" {
			v.add("PLAN-DEST-PATH", at+"dest_relpath", "a whitespace-strict, safe relative path below in/", msg)
		}
		dests = append(dests, in.DestRelpath)
	}
	v.distinct("PLAN-DEST-DUPLICATE", "io.inputs", "dest_relpath", dests)
}

func (v *validator) outputs(outputs []Output, stdout *string) {
	if n := len(outputs); n == 0 || n > maxFiles {
		v.add("PLAN-OUTPUTS", "io.outputs", fmt.Sprintf("1 to %d declared outputs", maxFiles), fmt.Sprintf("%d outputs", n))
		return
	}
	var srcs []string
	roles := map[string]string{} // by their folded form
	for i, out := range outputs {
		at := fmt.Sprintf("io.outputs[%d].", i)
		if msg := CheckWord(out.Role); msg != "" {
			v.add("PLAN-ROLE", at+"role", "whitespace-strict, at most 128 bytes", msg)
		}
		folded := FoldRole(out.Role)
		if v.stored {
			folded = out.Role // an older gateway took roles that differ only in case
		}
		if slices.Contains(ReservedRoles(), folded) {
			v.add("PLAN-ROLE-RESERVED", at+"role", "not one of "+strings.Join(ReservedRoles(), ", ")+", in any case: the gateway makes these",
				"got "+quoted(out.Role))
		}
		switch was, twin := roles[folded]; {
		case twin && was == out.Role:
			v.add("PLAN-ROLE-DUPLICATE", at+"role", "each output role once", "the role "+quoted(out.Role)+" appears twice")
		case twin:
			v.add("PLAN-ROLE-DUPLICATE", at+"role", "output roles differ in more than case",
				quoted(out.Role)+" and "+quoted(was)+" differ only in case")
		}
		roles[folded] = out.Role
		if msg := CheckRelPath(out.SrcRelpath, "out"); msg != "" {
			v.add("PLAN-SRC-PATH", at+"src_relpath", "a whitespace-strict, safe relative path below out/", msg)
		}
		if !slices.Contains(v.types, out.Type) {
			v.add("PLAN-TYPE", at+"type", "one of "+strings.Join(v.types, " "), "got "+quoted(out.Type))
		}
		if msg := CheckWord(out.Label); msg != "" {
			v.add("PLAN-LABEL", at+"label", "whitespace-strict, at most 128 bytes", msg)
		}
		srcs = append(srcs, out.SrcRelpath)
	}
	v.distinct("PLAN-SRC-DUPLICATE", "io.outputs", "src_relpath", srcs)
	if stdout != nil && !slices.Contains(srcs, *stdout) {
		v.add("PLAN-STDOUT", "execution.command.stdout", "the src_relpath of a declared output", "got "+quoted(*stdout))
	}
}

// distinct refuses a path that appears twice, or that would have to be both a file and a folder.
func (v *validator) distinct(code, list, field string, paths []string) {
	first := map[string]int{}
	for i, p := range paths {
		if j, dup := first[p]; dup {
			v.add(code, fmt.Sprintf("%s[%d].%s", list, i, field), "each path once", fmt.Sprintf("the path is the same as that of %s[%d]", list, j))
			continue
		}
		first[p] = i
	}
	for i, p := range paths {
		for at := strings.LastIndexByte(p, '/'); at > 0; at = strings.LastIndexByte(p[:at], '/') {
			if j, dup := first[p[:at]]; dup {
				v.add(code, fmt.Sprintf("%s[%d].%s", list, i, field), "no path below another's file", fmt.Sprintf("%s[%d] is a file there", list, j))
				break
			}
		}
	}
}
