package gate

import (
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// Rights are pairs of a capability and a project. A grant means the pairs of each of its capabilities with each of
// its projects; the capabilities of one grant and the projects of another never combine.
type Rights []Grant

// Grant gives each of its capabilities on each of its projects.
type Grant struct {
	Capabilities []string `json:"capabilities"` // [All] for every one
	Projects     []string `json:"projects"`     // ids; [All] for every one, and for the site as a whole
}

// Everything returns every capability on every project.
func Everything() Rights { return RightsOf([]string{All}, []string{All}) }

// RightsOf returns the rights of one grant.
func RightsOf(capabilities, projects []string) Rights { return Rights{{capabilities, projects}} }

func (g Grant) gives(capability string) bool {
	return slices.Contains(g.Capabilities, All) || slices.Contains(g.Capabilities, capability)
}

func (g Grant) covers(projectID string) bool {
	return slices.Contains(g.Projects, All) || slices.Contains(g.Projects, projectID)
}

// Can reports whether the rights have a capability on a project; with project [All]: on every one, and for the site as a whole.
func (r Rights) Can(capability, projectID string) bool {
	return slices.ContainsFunc(r, func(g Grant) bool { return g.covers(projectID) && g.gives(capability) })
}

// Can reports whether the principal has a capability on a project; with project [All]: on every one, and for the site as a whole. A
// principal that can read at all can read its own project too.
func (p Principal) Can(capability, projectID string) bool {
	if p.Rights.Can(capability, projectID) {
		return true
	}
	return (capability == CapRead || capability == CapGateway) && p.owns(projectID) && p.CanSomewhere(capability)
}

// CanAll reports whether the principal has every one of the capabilities on a project; without any, whether it sees the project.
func (p Principal) CanAll(capabilities []string, projectID string) bool {
	for _, c := range capabilities {
		if !p.Can(c, projectID) {
			return false
		}
	}
	return len(capabilities) > 0 || p.Sees(projectID)
}

// CanSomewhere reports whether there is a project on which the principal has every one of the capabilities.
func (p Principal) CanSomewhere(capabilities ...string) bool {
	for _, g := range p.Rights {
		if slices.ContainsFunc(g.Projects, func(id string) bool {
			return !slices.ContainsFunc(capabilities, func(c string) bool { return !p.Rights.Can(c, id) })
		}) {
			return true
		}
	}
	return false
}

// Sees reports whether the principal has any right on the project. To others the project does not exist.
func (p Principal) Sees(projectID string) bool {
	return slices.ContainsFunc(p.Rights, func(g Grant) bool { return len(g.Capabilities) > 0 && g.covers(projectID) }) || p.owns(projectID)
}

// Own returns the project of the principal's private data: answers too large for an envelope. They may be about any
// project the principal sees, or about none, so they must not be in one that others see. No project's name gives this
// id: a name does not begin with a space.
func (p Principal) Own() string { return plan.ProjectID(" answers to " + p.Key()) }

// owns reports whether a project is the principal's own.
func (p Principal) owns(projectID string) bool { return p.Key() != "" && projectID == p.Own() }

// Projects returns the projects on which the principal has every one of the capabilities, in the order of its grants;
// nil for every project.
func (p Principal) Projects(capabilities []string) []string {
	if p.CanAll(capabilities, All) {
		return nil
	}
	out := []string{}
	for _, g := range p.Rights {
		for _, id := range g.Projects {
			if id != All && !slices.Contains(out, id) && p.CanAll(capabilities, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// Project resolves the project that a call names, which needs the capabilities there: an id, a name, {user} for the
// principal's own project, or "". "" means the principal's own project where it has them there, then fallback (a
// name), else its first project where it has them. A project that the principal does not see is NotFound.
func (p Principal) Project(capabilities []string, named, fallback string) (string, error) {
	id := named
	switch msg := plan.CheckProject(named); {
	case named == "":
		id = p.defaultProject(capabilities, plan.ProjectOf(fallback))
	case named == plan.UserProject && p.UserProject != "":
		id = p.UserProject
	case named == plan.UserProject:
		return "", fault.New(fault.NotFound, "no_user_project", orText(p.Name, "an unknown caller")+" has no private project").
			WithNext("name another project, or ask the gateway's administrator for a grant on " + plan.UserProject)
	case plan.IsUserProject(named):
	case msg != "":
		return "", fault.Invalid("this is not a valid project", fault.Problem{Code: "PROJECT-NAME", Field: "project_id",
			Rule: "a project's name or id, or " + plan.UserProject, Msg: msg})
	default:
		id = plan.ProjectOf(named)
	}
	switch {
	case p.CanAll(capabilities, id):
		return id, nil
	case p.Sees(id) && named != "":
		return "", p.lacks(capabilities, id, "this call")
	}
	return "", fault.New(fault.NotFound, "project_not_found", "there is no project "+named).
		WithNext("name one of your own projects, or leave the project out")
}

// defaultProject returns the project of a call that names none.
func (p Principal) defaultProject(capabilities []string, fallback string) string {
	if p.UserProject != "" && p.CanAll(capabilities, p.UserProject) {
		return p.UserProject
	}
	if list := p.Projects(capabilities); len(list) > 0 && !p.CanAll(capabilities, fallback) {
		return list[0]
	}
	return fallback
}

// lacks returns the error for a principal that sees the project and does not have every capability there.
func (p Principal) lacks(capabilities []string, projectID, what string) error {
	var missing []string
	for _, c := range capabilities {
		if !p.Can(c, projectID) {
			missing = append(missing, fmt.Sprintf("%q", c))
		}
	}
	words := "capability " + strings.Join(missing, "")
	if len(missing) > 1 {
		words = "capabilities " + strings.Join(missing, " and ")
	}
	where := "on project " + projectID
	if projectID == All {
		where = "for the whole site (project *)"
	}
	return fault.New(fault.Capability, "capability_denied", fmt.Sprintf("%s needs the %s %s, which %s does not have",
		what, words, where, orText(p.Name, "an unknown caller"))).
		WithNext("ask the administrator for a token or a grant with this right")
}

// Project returns the project of a call: the one it names, else the caller's default. The caller has the tool's
// capabilities there.
func (c Call) Project(named, fallback string) (string, error) {
	return c.Caller.Project(c.Needs, named, fallback)
}

// Projects returns the projects that a list may show: where the caller has the tool's capabilities. nil is every
// project.
func (c Call) Projects() []string { return c.Caller.Projects(c.Needs) }
