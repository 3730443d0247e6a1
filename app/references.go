package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/ledger"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// A reference is a name that the site gives to bytes. It is resolved before a call is canonicalised, so a run's
// identity has their checksum and never the name.

func (g *Gateway) references() []Operation {
	return []Operation{{
		ID: "reference.list", Title: "List reference data", Verb: "reference list",
		Description: "Lists the reference data (genomes, indexes, databases) that this site offers. value is what an input of a tool takes in " +
			"place of an artifact id: ref:NAME. pinned names these very bytes, whatever the name stands for later.",
		Chat:   gate.Chat{Has: true},
		Effect: gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.listReferences),
	}, {
		ID: "reference.show", Title: "Show reference data", Verb: "reference show",
		Description: "Shows one reference of this site: its description, type, size, digest, and the contents that the name stood for earlier.",
		Chat:        gate.Chat{Has: true},
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Ledger, Faces: everywhere,
		Does: withProvenance(g, g.showReference),
	}, {
		ID: "reference.add", Title: "Add reference data", Verb: "reference add",
		Description: "Gives a name to an artifact (artifact_id), or to a file or directory that stays where it is (path), so that runs of " +
			"other projects can use it as ref:NAME. Other content under a name that exists needs replace; runs keep what they had.",
		Moves:  true,
		Effect: gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger,
		Faces: noChat, Limit: 6 * time.Hour,
		Does: withProvenance(g, g.addReference),
	}, {
		ID: "reference.remove", Title: "Remove reference data", Verb: "reference rm",
		Description: "Withdraws a name with all of its versions. Runs keep their inputs; the bytes stay until their artifacts are removed.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapAdmin, Needs: Ledger,
		Faces: noChat, Does: withProvenance(g, g.removeReference),
	}}
}

// ReferenceListArgs are the arguments of reference.list.
type ReferenceListArgs struct {
	ProjectID string `json:"project_id,omitzero" kind:"project" name:"project" help:"Only what this project may use (name or id)." placeholder:"NAME"`
}

// ReferenceArgs are the arguments of reference.show and reference.remove.
type ReferenceArgs struct {
	Name string `json:"name" kind:"reference" arg:"" help:"Name."`
}

// AddReferenceArgs are the arguments of reference.add.
type AddReferenceArgs struct {
	Name        string   `json:"name" kind:"reference"`
	ArtifactID  string   `json:"artifact_id,omitzero" kind:"artifact"`
	Path        string   `json:"path,omitzero" kind:"path"`
	Site        string   `json:"site,omitzero" max:"64" about:"with path: the site whose folder it is; default: the first that has it"`
	Type        string   `json:"type,omitzero" kind:"artifact_type" about:"with path: artifact type; detected by default"`
	ByJob       bool     `json:"by_job,omitzero" about:"with path: a job of the site hashes it, instead of the host that the gateway reaches its files through; the type must be given, DIRECTORY for a folder. The call waits for the job. Made again it finds the same job, whatever became of the call"`
	Description string   `json:"description,omitzero" max:"512"`
	ProjectIDs  []string `json:"project_ids,omitzero" kind:"project" count:"1-200" set:"" about:"projects it is offered to; default: all that may use the folder"`
	Replace     bool     `json:"replace,omitzero" about:"the name may stand for something else now"`
}

// ReferenceDoc is a version of a reference.
type ReferenceDoc struct {
	Name        string     `json:"name"`
	Value       string     `json:"value" help:"what an input of a tool takes: ref:NAME"`
	Pinned      string     `json:"pinned" help:"the same with the digest: ref:NAME@sha256:…"`
	Type        string     `json:"type"`
	Label       string     `json:"label"`
	SizeBytes   int64      `json:"size_bytes"`
	SHA256      string     `json:"checksum_sha256"`
	Description string     `json:"description"`
	Site        *string    `json:"site" help:"whose nodes read it in its place; null: there is a copy for every site"`
	Path        string     `json:"path,omitempty"` // on that site; for administrators
	ProjectIDs  []string   `json:"project_ids"`    // that may use it; null: all
	AddedBy     string     `json:"added_by"`
	AddedAt     time.Time  `json:"added_at"`
	ReplacedAt  *time.Time `json:"replaced_at,omitempty"`
	Problem     *string    `json:"problem,omitempty"` // the file in place differs from what was registered, or cannot be read; of reference.show
}

func referenceDoc(c gate.Call, r ledger.Reference) ReferenceDoc {
	d := ReferenceDoc{Name: r.Name, Value: "ref:" + r.Name, Pinned: "ref:" + r.Name + "@sha256:" + r.SHA256, Type: r.Type, Label: r.Label,
		SizeBytes: r.SizeBytes, SHA256: r.SHA256, Description: r.Description, Site: known(r.Site), ProjectIDs: r.Projects, AddedBy: r.By,
		AddedAt: r.At, ReplacedAt: r.Ended}
	if c.Caller.Can(gate.CapAdmin, gate.All) {
		d.Path = r.Path
	} else if r.Projects != nil { // the caller must not learn of other projects
		d.ProjectIDs = slices.DeleteFunc(slices.Clone(r.Projects), func(id string) bool { return !c.Caller.Sees(id) })
	}
	return d
}

// ReferenceList is the answer of reference.list.
type ReferenceList struct {
	CallRunID
	Listed
	References []ReferenceDoc `json:"references"`
}

func (g *Gateway) listReferences(ctx context.Context, c gate.Call, a ReferenceListArgs) (out ReferenceList, err error) {
	projects, err := g.projectsListed(c, a.ProjectID)
	if err != nil {
		return out, err
	}
	all, err := g.Ledger.References(ctx)
	out.References = []ReferenceDoc{}
	for _, r := range all {
		if offered(r, projects) {
			out.References = append(out.References, referenceDoc(c, r))
		}
	}
	out.Listed = Listed{int64(len(out.References)), true}
	return out, err
}

// offered reports whether a reference is offered to one of the projects; nil means all projects.
func offered(r ledger.Reference, projects []string) bool {
	return projects == nil || r.Projects == nil || slices.ContainsFunc(projects, r.OfferedTo)
}

// ReferenceAnswer is the answer of reference.show, reference.add and reference.remove.
type ReferenceAnswer struct {
	CallRunID
	ReferenceDoc
	Changed  bool           `json:"changed"`  // by this call
	Versions []ReferenceDoc `json:"versions"` // that were replaced and can still be named with their digest, newest first
}

// Unchanged reports whether the call changed nothing.
func (a ReferenceAnswer) Unchanged() bool { return !a.Changed }

func (g *Gateway) showReference(ctx context.Context, c gate.Call, a ReferenceArgs) (out ReferenceAnswer, err error) {
	versions, err := g.versionsOf(ctx, a.Name, c.Projects())
	if err != nil {
		return out, err
	}
	out.ReferenceDoc, out.Versions = referenceDoc(c, versions[0]), []ReferenceDoc{}
	if r := versions[0]; r.Site != "" {
		at, ok, err := g.Ledger.ReferencePlace(ctx, r.Site, r.Path)
		if err != nil {
			return out, err
		}
		if !ok || at.SHA256 != r.SHA256 {
			out.Problem = new(r.Path + " was registered again with other content; add the reference again with replace")
		} else if err := g.stillThere(ctx, at); err != nil {
			out.Problem = new(fault.Prose(err))
		}
		if out.Problem != nil && out.Path == "" {
			out.Problem = new("it is not what was registered, or cannot be looked at; ask an administrator")
		}
	}
	for _, r := range versions[1:] {
		out.Versions = append(out.Versions, referenceDoc(c, r))
	}
	return out, nil
}

// versionsOf returns the versions of a name that is offered to one of the projects, the current one first.
func (g *Gateway) versionsOf(ctx context.Context, name string, projects []string) ([]ledger.Reference, error) {
	versions, err := g.Ledger.ReferenceVersions(ctx, name)
	if err != nil || len(versions) > 0 && offered(versions[0], projects) {
		return slices.DeleteFunc(versions, func(r ledger.Reference) bool { return !offered(r, projects) }), err
	}
	all, err := g.Ledger.References(ctx)
	if err != nil {
		return nil, err
	}
	var known []string
	for _, r := range all {
		if offered(r, projects) {
			known = append(known, r.Name)
		}
	}
	msg := fmt.Sprintf("there is no reference %q", name) + plan.Suggestion(plan.Nearest(name, known))
	return nil, fault.New(fault.NotFound, "reference_not_found", msg).WithSteps(fault.Do("reference.list"))
}

func (g *Gateway) addReference(ctx context.Context, c gate.Call, a AddReferenceArgs) (out ReferenceAnswer, err error) {
	r := ledger.Reference{Name: a.Name, Description: a.Description, By: c.Caller.Name}
	var doc run.Artifact
	var offer []string // the projects that may be offered it
	switch {
	case (a.Path == "") == (a.ArtifactID == ""), a.ArtifactID != "" && (a.Site != "" || a.Type != "" || a.ByJob):
		return out, fault.Invalid("", fault.Problem{Code: "REFERENCE-WHAT", Field: "args",
			Rule: "artifact_id alone, or path with site, type and by_job",
			Msg:  "artifact_id, path, site, type and by_job do not fit together, or all are missing"})
	case a.ArtifactID != "":
		if doc, err = g.Ledger.Artifact(ctx, a.ArtifactID); err != nil {
			return out, err
		}
		if err := g.referable(ctx, doc); err != nil {
			return out, err
		}
	default:
		var at ledger.Place
		var in site.InPlace
		hash := hasher(g.hashed)
		if a.ByJob {
			hash = g.hashedByJob(c)
		}
		doc, at, in, err = g.hashInPlace(ctx, c, ImportArgs{Path: &a.Path, Site: a.Site, Type: a.Type, InPlace: true}, sharedFolder, hash)
		if err == nil {
			err = g.Ledger.AddPlace(ctx, at)
		}
		if err != nil {
			return out, err
		}
		r.Site, r.Path = at.Site, at.Path
		if !slices.Contains(in.ProjectIDs(), artifact.Every) {
			offer = in.ProjectIDs()
		}
	}
	r.SHA256, r.Type, r.Label, r.SizeBytes, r.Projects = doc.SHA256, doc.Type, doc.Label, doc.SizeBytes, offer
	if a.ProjectIDs != nil {
		r.Projects = []string{}
	}
	for _, named := range a.ProjectIDs {
		id, err := g.projectOf(c, named)
		if err != nil {
			return out, err
		}
		if offer != nil && !plan.InProjects(offer, id) {
			return out, &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: "REFERENCE-PROJECT", Field: "project_ids",
				Rule: "projects that the folder in storage.in_place belongs to", Msg: fmt.Sprintf("%s may not use %s", named, a.Path),
				Hint: "leave the project out, or add it to the folder in the site file"}}}
		}
		r.Projects = append(r.Projects, id)
	}
	if out.Changed, err = g.Ledger.AddReference(ctx, r, a.Replace); err != nil {
		return out, err
	}
	changed := out.Changed
	out, err = g.showReference(ctx, c, ReferenceArgs{Name: a.Name})
	out.Changed = changed
	return out, err
}

// sharedFolder refuses reference data in a folder that the site does not share: others may not read it there.
func sharedFolder(in site.InPlace) error {
	if in.Shared {
		return nil
	}
	return &fault.Error{Kind: fault.Policy, Problems: []fault.Problem{{Code: "REFERENCE-SHARED", Field: "path",
		Rule: "below a folder that the site shares", Msg: in.Path + " is not shared, so runs of others may not read what is in it",
		Hint: "set shared: true for " + in.Path + " in storage.in_place, if only administrators write there; or add a copy"}}}
}

// referable refuses an artifact made by a user's job, since only that user vouches for its bytes, and one that others
// cannot read.
func (g *Gateway) referable(ctx context.Context, a run.Artifact) error {
	if a.ExecutedAs != "" {
		return fault.New(fault.Policy, "reference_forgeable", a.ID+" was made by a run executed as "+a.ExecutedAs+", who could have forged it").
			WithNext("import the file yourself, and give the name to that artifact")
	}
	lies, err := g.Ledger.FilesInPlace(ctx, a.SHA256)
	if err == nil && a.Type != plan.Directory {
		var places []ledger.Place
		places, err = g.placesOf(ctx, a)
		lies = len(places) > 0 && !g.Store.Has(a.SHA256)
	}
	if err == nil && lies {
		err = fault.New(fault.Policy, "reference_in_place", "the bytes of "+a.ID+" lie in place, where they were registered for its project").
			WithNext("add it by its path, with --in-place, from a folder that the site shares; or import a copy and add that")
	}
	return err
}

func (g *Gateway) removeReference(ctx context.Context, c gate.Call, a ReferenceArgs) (out ReferenceAnswer, err error) {
	if _, err := g.versionsOf(ctx, a.Name, nil); err != nil {
		return out, err
	}
	r, err := g.Ledger.RemoveReference(ctx, a.Name, c.Caller.Name)
	out = ReferenceAnswer{ReferenceDoc: referenceDoc(c, r), Changed: true, Versions: []ReferenceDoc{}}
	return out, err
}

// nameReferences sets the reference of each input that has, or had, the same bytes.
func (g *Gateway) nameReferences(ctx context.Context, inputs []ArtifactDoc, project string) error {
	for i, in := range inputs {
		names, err := g.Ledger.NamesOf(ctx, in.ChecksumSHA256, in.Type)
		if err != nil {
			return err
		}
		inputs[i].Reference = ledger.NameFor(names, project, in.Source)
	}
	return nil
}

// inProject returns the artifact that stands for a reference in a project.
func inProject(r ledger.Reference, project string) (a run.Artifact, err error) {
	a = run.Artifact{ProjectID: project, SHA256: r.SHA256, Type: r.Type, Label: r.Label, SizeBytes: r.SizeBytes, Source: r.Source()}
	a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label)
	return a, err
}

// standsFor returns the artifact for which ref:NAME or ref:NAME@sha256:DIGEST stands in a project.
func (g *Gateway) standsFor(ctx context.Context, value, project string) (a run.Artifact, err error) {
	name, pin, pinned := strings.Cut(strings.TrimPrefix(value, "ref:"), "@")
	versions, err := g.versionsOf(ctx, name, []string{project})
	if err != nil {
		return a, err
	}
	i := 0
	if pinned {
		i = slices.IndexFunc(versions, func(r ledger.Reference) bool { return "sha256:"+r.SHA256 == pin })
	}
	if i < 0 {
		return a, fault.New(fault.NotFound, "reference_not_found", fmt.Sprintf("the reference %s never was %s; it is sha256:%s", name,
			cmp.Or(pin, "@"), versions[0].SHA256)).WithSteps(fault.Do("reference.show", "name", name))
	}
	return inProject(versions[i], project)
}
