package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// The rules of [CheckRole] and [CheckLabel].
const (
	roleRule  = "whitespace-strict, at most 64 characters or 128 bytes"
	labelRule = "whitespace-strict, at most 256 characters"
)

func (v *validator) inputs(inputs []Input, stdin *string) {
	if len(inputs) > maxFiles {
		v.add("PLAN-INPUTS", "io.inputs", fmt.Sprintf("at most %d", maxFiles), fmt.Sprintf("%d inputs are too many", len(inputs)))
		return
	}
	var dests []string
	for i, in := range inputs {
		at := fmt.Sprintf("io.inputs[%d].", i)
		v.sound(CheckRole(in.Role), "PLAN-ROLE", at+"role", roleRule)
		v.form(IsArtifactID(in.ArtifactID) || in.ArtifactID == "" && v.Stored, "PLAN-ARTIFACT", at+"artifact_id",
			"art_ and 26 characters of base32", in.ArtifactID)
		v.form(IsSHA256(in.ChecksumSHA256), "PLAN-CHECKSUM", at+"checksum_sha256", "64 lower-case hex digits", in.ChecksumSHA256)
		v.sound(cmp.Or(CheckRelPath(in.DestRelpath, "in"), checkShown(in.DestRelpath)), "PLAN-DEST-PATH", at+"dest_relpath",
			"a whitespace-strict, safe relative path below in/")
		dests = append(dests, in.DestRelpath)
	}
	v.distinct("PLAN-DEST-DUPLICATE", "io.inputs", "dest_relpath", dests)
	if stdin != nil {
		read := slices.ContainsFunc(inputs, func(in Input) bool { return in.DestRelpath == *stdin && !in.Directory })
		v.form(read, "PLAN-STDIN", "execution.command.stdin", "the dest_relpath of an input that is a file", *stdin)
	}
}

func (v *validator) outputs(outputs []Output, stdout *string) {
	if n := len(outputs); n == 0 || n > maxFiles {
		v.add("PLAN-OUTPUTS", "io.outputs", fmt.Sprintf("1 to %d declared outputs", maxFiles),
			fmt.Sprintf("the plan has %d outputs", n))
		return
	}
	var srcs []string
	types := "one of " + strings.Join(v.Types, " ")
	reserved := "not one of " + strings.Join(ReservedRoles(), ", ") + ", nor one that begins with " + rejectedPrefix +
		", in any case: the gateway makes these"
	roles := map[string]string{} // by their folded form
	for i, out := range outputs {
		at := fmt.Sprintf("io.outputs[%d].", i)
		v.sound(CheckRole(out.Role), "PLAN-ROLE", at+"role", roleRule)
		folded := FoldRole(out.Role)
		if v.Stored {
			folded = out.Role // an older gateway accepted roles that differ only in case
		}
		v.form(!MadeByGateway(folded) || v.Stored && WasRejected(folded), "PLAN-ROLE-RESERVED", at+"role", reserved, out.Role)
		switch was, twin := roles[folded]; {
		case twin && was == out.Role:
			v.add("PLAN-ROLE-DUPLICATE", at+"role", "each output role once", "the role "+quoted(out.Role)+" appears twice")
		case twin:
			v.add("PLAN-ROLE-DUPLICATE", at+"role", "output roles that differ in more than case",
				quoted(out.Role)+" and "+quoted(was)+" differ only in case")
		}
		roles[folded] = out.Role
		v.sound(cmp.Or(CheckRelPath(out.SrcRelpath, "out"), checkShown(out.SrcRelpath)), "PLAN-SRC-PATH", at+"src_relpath",
			"a whitespace-strict, safe relative path below out/")
		v.form(v.Stored || slices.Contains(v.Types, out.Type), "PLAN-TYPE", at+"type", types, out.Type)
		v.sound(CheckLabel(out.Label), "PLAN-LABEL", at+"label", labelRule)
		srcs = append(srcs, out.SrcRelpath)
	}
	v.distinct("PLAN-SRC-DUPLICATE", "io.outputs", "src_relpath", srcs)
	if stdout != nil {
		file := slices.ContainsFunc(outputs, func(o Output) bool { return o.SrcRelpath == *stdout && o.Type != Directory })
		v.form(file, "PLAN-STDOUT", "execution.command.stdout", "the src_relpath of a declared output that is a file", *stdout)
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
				v.add(code, fmt.Sprintf("%s[%d].%s", list, i, field), "no path below another's file",
					fmt.Sprintf("the path is below that of %s[%d], which is a file", list, j))
				break
			}
		}
	}
}
