package plan

// The previous form of the canonical params. Until it was replaced, the bytes held the placement with the site's defaults in it, the
// artifact_id of every input, and a null stdout. A run made then is found by the identity it has, so this file writes those bytes for a
// request of today; a submit looks that identity up before the present one. Nothing is stored in this form any more.

type previousCommand struct {
	Argv    []string          `json:"argv"`
	Workdir string            `json:"workdir"`
	Env     map[string]string `json:"env"`
	Stdout  *string           `json:"stdout"`
}

type previousExecution struct {
	Kind      string          `json:"kind"`
	Container Container       `json:"container"`
	Command   previousCommand `json:"command"`
}

type previousSlurm struct {
	SpecVersion   int               `json:"spec_version"`
	ScriptVersion string            `json:"slurm_script_version"`
	Resources     Resources         `json:"resources"`
	Placement     Placement         `json:"placement"`
	Execution     previousExecution `json:"execution"`
	IO            IO                `json:"io"`
}

type previousDocker struct {
	SpecVersion   int               `json:"spec_version"`
	ScriptVersion string            `json:"script_version"`
	Resources     Resources         `json:"resources"`
	Execution     previousExecution `json:"execution"`
	Inputs        []dockerInput     `json:"inputs"`
	Outputs       []Output          `json:"outputs"`
}

type previousParams struct {
	ProjectID string          `json:"project_id"`
	Slurm     *previousSlurm  `json:"slurm,omitempty"`
	Docker    *previousDocker `json:"docker,omitempty"`
	Tool      *ToolExtra      `json:"tool,omitempty"`
}

// Previous returns the bytes that [Params.Canonical] gave of this request before: with the placement it was sent to, and with the
// artifacts that its inputs name.
func (p Params) Previous(placed Placement) ([]byte, error) {
	s, w := p.Spec, previousParams{ProjectID: p.ProjectID, Tool: p.Tool}
	e, c := s.Execution, s.Execution.Command
	x := previousExecution{e.Kind, e.Container, previousCommand{c.Argv, c.Workdir, c.Env, c.Stdout}}
	placed.Site = nil // there was one
	if p.Docker {
		w.Docker = &previousDocker{s.Version, p.Script, s.Resources, x, dockerInputs(s.IO.Inputs), s.IO.Outputs}
	} else {
		w.Slurm = &previousSlurm{s.Version, p.Script, s.Resources, placed, x, s.IO}
	}
	return Marshal(w)
}
