package toolpack

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// A python, node or php pack runs a program of its image that reads its arguments as JSON from one file and writes its
// result as JSON to another. The file with the arguments is an input like any other: an artifact with a checksum that the
// plan names, copied into in/, verified on the compute node and mounted read-only. So the plan determines it, and the job
// has no other source.
const (
	// ArgsRole is the role of that input, and ArgsLabel its label.
	ArgsRole  = "args"
	ArgsLabel = "arguments"
	argsDest  = "in/args.json"

	toolDir    = "/opt/tool"      // in the image: the folder of scripts and modules
	runnerDir  = "/opt/slurmgate" // in the image: the runners that call a module's function
	resultType = "JSON"
)

// runners are the words before the program: the interpreter, and for a module the runner that calls it.
var runners = map[string]struct{ interpreter, runner []string }{
	"python": {[]string{"python3", "-B", "-s"}, []string{runnerDir + "/run.py"}}, // no .pyc files, no user's site-packages
	"node":   {[]string{"node"}, []string{runnerDir + "/run.mjs"}},
	"php":    {[]string{"php"}, nil},
}

// runs reports whether the pack is of a kind that runs a program with JSON in and out.
func (x execution) runs() bool {
	_, ok := runners[x.Kind]
	return ok
}

// argv returns the command of a python, node or php pack.
func (x execution) argv() []string {
	r := runners[x.Kind]
	var program []string
	if x.Module != "" {
		program = append(program, append(r.runner, x.Module)...)
	} else {
		program = []string{toolDir + "/" + x.Script}
	}
	argv := append(append([]string{}, r.interpreter...), program...)
	if x.PHP != "" {
		argv[0] = x.PHP
	}
	return append(append(argv, plan.Workdir+"/"+argsDest, plan.Workdir+"/"+x.Result), x.Args...)
}

// checkRunner finds the output that receives the result, and reserves the role and path of the arguments.
func (d *draft) checkRunner() {
	x := &d.def.Execution
	var candidates []string
	for _, o := range d.def.Outputs {
		if o.Type == resultType {
			candidates = append(candidates, o.SrcRelpath)
		}
	}
	const rule = "the srcRelpath of a declared output of type JSON: it receives the result"
	switch {
	case x.Result != "":
		found := false
		for _, c := range candidates {
			found = found || c == x.Result
		}
		if !found {
			d.Add("EXECUTION", "execution.result", rule, `"`+clip(x.Result)+`" is not the path of a JSON output`, "")
		}
	case len(candidates) == 1:
		x.Result = candidates[0]
	default:
		d.Add("EXECUTION", "execution.result", rule, fmt.Sprintf("there are %d JSON outputs, and result names none of them", len(candidates)),
			"declare one, and name it in result if there are several")
	}
	for i, in := range d.def.Inputs {
		if plan.FoldRole(in.Role) == ArgsRole {
			d.Add("ROLE-DUPLICATE", fmt.Sprintf("inputs[%d].role", i), "not "+ArgsRole,
				`the role "`+ArgsRole+`" is that of the file with the arguments`, "rename the role")
		}
		if in.DestRelpath == argsDest || strings.HasPrefix(in.DestRelpath, argsDest+"/") {
			d.Add("INPUT-DEST", fmt.Sprintf("inputs[%d].destRelpath", i), "not "+argsDest,
				`"`+clip(in.DestRelpath)+`" is the path of the file with the arguments`, "choose another path")
		}
	}
}

// Made is an artifact made from the arguments of a call. It must be stored before the run is created, because the plan
// names it.
type Made struct {
	ID     string
	Type   string
	Label  string
	SHA256 string
	Bytes  []byte
}

// request is the file with the arguments.
type request struct {
	ToolID    string             `json:"tool_id"`
	Version   string             `json:"tool_version"`
	Args      map[string]any     `json:"args"`   // with defaults
	Inputs    map[string]any     `json:"inputs"` // an inFile; of a list the list of them; absent where nothing is given
	Outputs   map[string]outFile `json:"outputs"`
	Resources map[string]int     `json:"resources"`
	Result    string             `json:"result"` // path of the output that receives the result
}

type inFile struct {
	Path       string `json:"path"`
	ArtifactID string `json:"artifact_id"`
	SHA256     string `json:"checksum_sha256"`
	Type       string `json:"type"`
	Label      string `json:"label"`
}

type outFile struct {
	Path  string `json:"path"`
	Type  string `json:"type"`
	Label string `json:"label"`
}

// madeArgs returns the file with the arguments of a call, as an artifact of the project.
func (p *Pack) madeArgs(values map[string]any, given takes, project string) (Made, error) {
	r := p.def.Resources
	req := request{ToolID: p.def.ID, Version: p.def.Version, Args: plainValue(values).(map[string]any),
		Inputs: map[string]any{}, Outputs: map[string]outFile{}, Result: plan.Workdir + "/" + p.def.Execution.Result,
		Resources: map[string]int{"cpus": r.CPUs, "memMb": r.MemMB, "timeLimitSeconds": r.TimeLimitSeconds}}
	for i := range p.def.Inputs {
		in := &p.def.Inputs[i]
		list := []inFile{}
		for _, one := range given.of(in.Role) {
			list = append(list, inFile{plan.Workdir + "/" + one.dest, one.id, one.info.SHA256, one.info.Type, one.info.Label})
		}
		switch {
		case !given.roles[in.Role]:
		case in.List != nil:
			req.Inputs[in.Role] = list
		default:
			req.Inputs[in.Role] = list[0]
		}
	}
	for _, o := range p.def.Outputs {
		req.Outputs[o.Role] = outFile{plan.Workdir + "/" + o.SrcRelpath, o.Type, o.Label}
	}
	var content any = req
	if p.def.Execution.Payload == payloadArguments {
		content = req.Args
	}
	raw, err := plan.Marshal(content)
	if err != nil {
		return Made{}, err
	}
	if most := p.def.Limits.MaxInputBytes; p.def.Execution.Payload == payloadArguments && int64(len(raw)) > most {
		return Made{}, p.refused([]fault.Problem{{Code: "ARGS-INPUT-BYTES", Rule: "limits.maxInputBytes of the toolpack",
			Msg: fmt.Sprintf("the arguments have %d bytes; the tool accepts at most %d bytes", len(raw), most)}})
	}
	sum := sha256.Sum256(raw)
	m := Made{Type: resultType, Label: ArgsLabel, SHA256: hex.EncodeToString(sum[:]), Bytes: raw}
	m.ID, err = plan.ArtifactID(project, m.SHA256, m.Type, m.Label)
	return m, err
}
