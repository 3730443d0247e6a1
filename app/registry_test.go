package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"slurmgate/artifact"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/httpapi"
	"slurmgate/ledger"
	"slurmgate/ledger/ledgertest"
	"slurmgate/plan"
	"slurmgate/policy"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/toolpack"
	"slurmgate/worker"
)

// tableGateway returns a gateway with the shipped domain, a real ledger and a real store, but no Slurm: enough for
// every tool to decide whether it accepts a call.
func tableGateway(t *testing.T) *Gateway {
	t.Helper()
	return gatewayOver(t, t.TempDir(), "../domains/genomics",
		"version: 1\nslurm: {raw_plans: {allowed: true, entry_programs: {x: [samtools]}}}\n")
}

// gatewayOver returns such a gateway with another domain, another policy, and the ledger in dir, if there is one.
func gatewayOver(t *testing.T, dir, domain, policyText string, edit ...func(*site.Site)) *Gateway {
	t.Helper()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	made := site.Site{Version: 1, Name: "table", Gateway: site.Gateway{StateDir: dir}, DomainDir: "/x",
		Slurm:   site.Slurm{DefaultPartition: "main", DefaultAccount: "research"},
		Storage: site.Storage{RunsDir: "/shared/runs", ImageStore: "/shared/images"}}
	for _, f := range edit {
		f(&made)
	}
	s, err := site.New(made)
	must(t, err)
	g := &Gateway{Site: s, Log: log, Secrets: Scanner(s), Script: "slurm_script_v1",
		Entry: func(from *gate.Gate, tool gate.Tool) any { return httpapi.EntryOf(from, tool) }}
	if g.Domain, err = toolpack.OpenDomain(domain, func(string, []byte) error { return nil }, toolpack.AllowMissingImages); err != nil {
		t.Fatal(err)
	}
	file, _ := g.Domain.Policy()
	if g.Policy, err = policy.Parse(file, []byte(policyText), os.LookupEnv); err != nil {
		t.Fatal(err)
	}
	g.Ledger = ledgertest.Open(t, filepath.Join(dir, "ledger.db"), ledger.Options{NewID: func() string { return "gw-table" }})
	if g.Store, err = artifact.Open(filepath.Join(dir, "artifacts")); err != nil {
		t.Fatal(err)
	}
	if g.Importer, err = artifact.NewImporter(g.Store, artifact.ImportPolicy{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	var sites []run.Site
	for _, c := range append(s.Clusters(), s.LocalSite()) {
		cfg := run.Config{Site: c.Name, Placement: SiteDefaults(c), SubmitWait: time.Nanosecond,
			Floor: 10 * time.Millisecond, Ceiling: time.Second}
		sites = append(sites, run.Site{Config: cfg,
			Parts: run.Parts{Store: g.Ledger, Index: g.Ledger.Index(c.Name), Objects: g.Store, Waits: announceWait, Log: log, Now: time.Now},
			Open: func(context.Context) (run.Parts, error) {
				return run.Parts{Workspace: noWorkspace{}, Images: anyImage{}, Renderer: placement{}}, nil
			}})
	}
	g.Sites = run.NewSites(sites...)
	g.Sites.ServeWorkers(run.Config{}, run.Parts{Store: g.Ledger, Index: g.Ledger.Index(run.WorkerSite), Room: g.Quotas().Room,
		Waits: gate.Wait, Log: log, Now: time.Now})
	g.Workers = worker.New(worker.Config{URLs: ServiceURLs(g.Domain)})
	if away := g.Sites.Open(t.Context()); len(away) > 0 {
		t.Fatal(away)
	}
	must(t, g.OpenGate(t.Context()))
	t.Cleanup(func() {
		g.Gate.Close()
		g.Store.Close()
		g.Ledger.Close()
	})
	return g
}

// waitBegins is the key of a context's channel that receives when the call begins to wait for a run. It has room for one.
type waitBegins struct{}

// announceWait begins to wait for a run as the gateway does, and reports it to the channel of ctx, if there is one.
func announceWait(ctx context.Context) (resume func(), ok bool) {
	if begun, ok := ctx.Value(waitBegins{}).(chan struct{}); ok {
		select {
		case begun <- struct{}{}:
		default:
		}
	}
	return gate.Wait(ctx)
}

// anyImage has every image.
type anyImage struct{}

func (anyImage) Verify(_ context.Context, digest string) (string, error) {
	return "/shared/images/" + digest, nil
}

func (anyImage) ExecArgs(spec plan.Spec, binds []plan.Bind, _ []run.Placed, _, _, _ string) []string {
	return append([]string{fmt.Sprint(binds)}, spec.Execution.Command.Argv...)
}

// placement renders the parts of a job that a test reads.
type placement struct{}

func (placement) RenderArray(run.JobSpec) ([]byte, error) { return nil, nil }

func (placement) Render(j run.JobSpec) (script, pinned []byte, err error) {
	return []byte("partition " + j.Spec.Placement.Partition + " account " + j.Spec.Placement.Account), nil, nil
}

// noWorkspace names a folder and does nothing.
type noWorkspace struct{ run.Workspace }

func (noWorkspace) RunDir(id string) string { return "/shared/runs/" + id }

func (noWorkspace) TakeClaim(_ context.Context, id string, _ int, _ []byte) ([]byte, error) {
	return nil, fault.New(fault.NotFound, "attempt_missing", id+" has no folder")
}

func (noWorkspace) RemoveRun(context.Context, string, map[int]string, func() (bool, error)) (int64, error) {
	return 0, nil
}

// Every tool declares all that the faces and an auditor need, and the gateway's own operations are marked as such.
//
// proves HTC-05 AX-01
func TestRegistryIsComplete(t *testing.T) {
	g := tableGateway(t)
	packs := map[string]bool{}
	for _, p := range g.Domain.Packs().List() {
		packs[p.ID()] = true
	}
	if len(packs) == 0 {
		t.Fatal("no packs")
	}
	for _, x := range g.Gate.Registry().List() {
		own := slices.Contains(x.Capabilities, gate.CapGateway)
		switch {
		case own == packs[x.ID]:
			t.Errorf("%s: capability gateway %t, a toolpack's %t", x.ID, own, packs[x.ID])
		case !own && (x.SideEffect != gate.Execute || len(x.RunOutput) == 0):
			t.Errorf("%s is a toolpack's: %s, %d bytes of output schema", x.ID, x.SideEffect, len(x.RunOutput))
		case own && len(x.Capabilities) != 2:
			t.Errorf("%s: %v, want gateway and what it does", x.ID, x.Capabilities)
		}
		for _, c := range x.Capabilities {
			if !slices.Contains(gate.Capabilities(), c) {
				t.Errorf("%s asks for %q, which nobody can be given", x.ID, c)
			}
		}
		if len(x.Output) == 0 {
			t.Errorf("%s says nothing of the form of its answer: add it to shapes", x.ID)
		}
		if !strings.Contains(string(x.Output), `"provenance_run_id"`) {
			t.Errorf("%s does not say in its output schema which run its answer is: it lacks provenance_run_id", x.ID)
		}
		if x.Title == "" || x.Description == "" {
			t.Errorf("%s has no words", x.ID)
		}
		if x.SideEffect == gate.Execute && x.DryRun == nil {
			t.Errorf("%s executes and cannot be rehearsed", x.ID)
		}
		if x.DryRun != nil && x.SaysDryRun == nil {
			t.Errorf("a dry run of %s says nothing: what it returns lacks the method Says", x.ID)
		}
		if x.SideEffect == gate.Read && slices.Contains(x.Capabilities, gate.CapSlurm) {
			t.Errorf("%s reads, and asks for the right to submit", x.ID)
		}
		if deciding := slices.Contains(x.Capabilities, gate.CapAdmin) || slices.Contains(x.Capabilities, gate.CapApprove); deciding &&
			x.Reachable(gate.MCP) {
			t.Errorf("%s decides over others and can be reached from a chat", x.ID)
		}
		var in struct {
			Type                 string
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(x.Input, &in); err != nil || in.Type != "object" || in.AdditionalProperties == nil || *in.AdditionalProperties {
			t.Errorf("%s takes arguments nobody has named: %s", x.ID, x.Input)
		}
	}
}

// belongings are the things of one project.
type belongings struct{ project, name, run, artifact string }

func (g *Gateway) fill(t *testing.T, name string) belongings {
	t.Helper()
	return g.fillAs(t, name, "")
}

// personOf maps callers of the tests to users of this host.
var personOf = map[string]string{"alice": "1001 alice", "bob": "1002 bob"}

// fillAs is fill with a run that a Unix user asked for and that is executed as that user.
func (g *Gateway) fillAs(t *testing.T, name, user string) belongings {
	t.Helper()
	b := belongings{project: plan.ProjectOf(name), name: name}
	sum, size, err := g.Store.Put(t.Context(), strings.NewReader("of "+name+"\n"), 100)
	must(t, err)
	a := run.Artifact{ProjectID: b.project, SHA256: sum, Type: "BAM", Label: "of " + name, SizeBytes: size, Source: "import"}
	if a.ID, err = plan.ArtifactID(a.ProjectID, a.SHA256, a.Type, a.Label); err != nil {
		t.Fatal(err)
	}
	asker := run.Asking{Principal: run.Principal{Name: "user:" + user, ID: "prn_peer_" + user}, Person: personOf[user]}
	if _, _, err := g.Ledger.ImportArtifact(t.Context(), a, asker); err != nil {
		t.Fatal(err)
	}
	b.artifact = a.ID
	params, token := json.RawMessage(`{"project":"`+name+`"}`), fmt.Sprintf("%032x", len(name))
	id := plan.Identity{ToolName: "samtools_flagstat", ContractVersion: "v1", PolicyHash: g.Policy.Hash, ParamsHash: plan.Hash(params)}
	b.run = id.RunID()
	_, _, err = g.Ledger.Insert(t.Context(), run.New{Params: params, Policy: g.Policy.Snapshot, Asking: &asker,
		Inputs: []run.Link{{Role: "bam", ArtifactID: a.ID, Relpath: "in/x"}},
		Run: run.Run{ID: b.run, Site: g.Site.Name, ToolID: "samtools.flagstat", ToolName: "samtools_flagstat", ToolVersion: "1.0.0",
			ContractVersion: "v1",
			PolicyHash:      id.PolicyHash, ParamsHash: id.ParamsHash, PlanHash: id.PlanHash(), ProjectID: b.project, ExecutedAs: user,
			Actor: "human", State: run.Blocked, Phase: run.NeedsOperator, Reason: "table", AttemptN: 1, ResultJSON: json.RawMessage(`{}`)},
		Submission: run.Submission{Token: token, JobName: run.JobName(b.run, 1, token), CreatedAt: time.Now()},
		Event:      run.Event{Type: "run.created", Data: map[string]any{}}})
	must(t, err)
	return b
}

// schemaDoc has the parts of an input schema from which values can be generated.
type schemaDoc struct {
	Type       any
	Pattern    string
	Format     string
	Enum       []any
	Const      any
	Minimum    *float64
	MinItems   int
	Required   []string
	Properties map[string]schemaDoc
	Items      *schemaDoc
}

// value generates a value of a schema about the given things.
func (s schemaDoc) value(name string, b belongings) any {
	switch {
	case s.Type == "array" && s.Items != nil:
		return []any{s.Items.value(name, b)}
	case strings.Contains(s.Pattern, "run_"), strings.HasPrefix(name, "run_id"), name == "run_id":
		return b.run
	case s.Pattern == "^[0-9a-f]{64}$":
		return strings.Repeat("0", 64)
	case strings.Contains(s.Pattern, "art_"), strings.Contains(name, "artifact"):
		return b.artifact
	case strings.Contains(s.Pattern, "file_"):
		return "file_" + strings.Repeat("A", 26)
	case name == "project_id", name == "project":
		return b.name
	case name == "job_spec":
		return map[string]any{"version": 1, "resources": map[string]any{"time_limit_seconds": 60, "cpus": 1, "mem_mb": 64},
			"placement": map[string]any{"partition": "main", "account": "research"},
			"execution": map[string]any{"kind": "container", "container": map[string]any{"engine": "apptainer",
				"image": "sha256:" + strings.Repeat("0", 64), "network_mode": "none", "readonly_rootfs": true},
				"command": map[string]any{"argv": []string{"samtools"}, "env": map[string]string{}}},
			"io": map[string]any{"inputs": []any{map[string]any{"role": "bam", "artifact_id": b.artifact, "checksum_sha256": strings.Repeat("0",
				64), "dest_relpath": "in/x"}}, "outputs": []any{}}}
	case strings.HasPrefix(s.Pattern, "^[A-Z]"):
		return "BAM"
	case name == "job_id":
		return "1"
	case name == "month":
		return "2026-11"
	case name == "zone":
		return "UTC"
	case name == "by":
		return "project"
	case strings.HasPrefix(s.Pattern, "^[0-9]{4}"), s.Format == "date-time":
		return "2026-11-21T08:00:00Z"
	case s.Const != nil:
		return s.Const
	case len(s.Enum) > 0:
		return s.Enum[0]
	}
	switch s.Type {
	case "integer", "number":
		if s.Minimum != nil {
			return *s.Minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		out := map[string]any{}
		for k, p := range s.Properties {
			out[k] = p.value(k, b)
		}
		return out
	}
	switch {
	case name == "cursor":
		return nil
	case strings.HasSuffix(name, "_id") && s.Pattern != "":
		return strings.Map(func(r rune) rune { return r }, "apr_"+strings.Repeat("A", 26))
	}
	return "x"
}

// argsOf returns sets of arguments of a tool: the required ones, then with each optional one, then with all.
func (g *Gateway) argsOf(t *testing.T, x gate.Tool, b belongings) (out []map[string]any) {
	t.Helper()
	var s schemaDoc
	must(t, json.Unmarshal(x.Input, &s))
	least := map[string]any{}
	for _, k := range s.Required {
		least[k] = s.Properties[k].value(k, b)
	}
	files := map[string]any{} // arguments that name artifacts
	if p, err := g.Domain.Packs().Get(x.ID); err == nil {
		for _, in := range p.Inputs() {
			if files[in.Param] = b.artifact; in.List != nil {
				files[in.Param] = slices.Repeat([]string{b.artifact}, max(1, in.List.Min))
			}
			if !in.Optional {
				least[in.Param] = files[in.Param]
			}
		}
	}
	with := func(names ...string) {
		args := map[string]any{}
		for k, v := range least {
			args[k] = v
		}
		for _, k := range names {
			if v := s.Properties[k].value(k, b); files[k] != nil {
				args[k] = files[k]
			} else if v != nil {
				args[k] = v
			}
		}
		out = append(out, args)
	}
	var optional []string
	for k := range s.Properties {
		if !slices.Contains(s.Required, k) {
			optional = append(optional, k)
		}
	}
	slices.Sort(optional)
	with()
	for _, k := range optional {
		with(k)
	}
	with(optional...)
	return out
}

var volatile = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z|"(tool_call_id|trace_id)":"[^"]*"|"duration_ms":[0-9]+`)

// Things of another project do not exist for a caller on any face, and neither do those in users' own projects, which
// are named by id. For every tool of the registry with every argument, an answer about another's run, artifact or
// project equals, except for the id in the call, the answer about things that never existed; and no list shows any of
// it.
//
// proves OPS-04
func TestAnotherProjectDoesNotExist(t *testing.T) {
	own := func(user string) string { return plan.UserProjectID(user, 1) }
	users := [3]string{own("alice"), own("bob"), own("carol")}
	for by, names := range map[gate.Transport][3]string{gate.Local: {"theirs", "own", "never"}, gate.MCP: users, gate.Other: users} {
		t.Run(string(by), func(t *testing.T) { anotherDoesNotExist(t, by, names[0], names[1], names[2]) })
	}
}

func anotherDoesNotExist(t *testing.T, by gate.Transport, theirName, ownName, neverName string) {
	g := tableGateway(t)
	theirs, own := g.fill(t, theirName), g.fill(t, ownName)
	never := belongings{plan.ProjectOf(neverName), neverName, "run_" + strings.Repeat("7", 26), "art_" + strings.Repeat("7", 26)}
	who := gate.Caller{Transport: by, Principal: gate.Principal{Name: "token:x", Method: gate.ByToken,
		Rights: gate.RightsOf([]string{gate.CapGateway, gate.CapRead, gate.CapImport, gate.CapSlurm, gate.CapOperate}, []string{own.project})}}
	if plan.IsUserProject(own.project) {
		who.UserProject = own.project
	}
	ask := func(x gate.Tool, args map[string]any, dry bool) string {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		res, err := json.Marshal(g.Gate.Call(ctx, who, request(t, x, args, dry)))
		must(t, err)
		return volatile.ReplaceAllString(string(res), "…")
	}
	normal := func(s string, b belongings) string {
		return strings.NewReplacer(b.run, "RUN", b.artifact, "ARTIFACT", b.project, "PROJECT", `project `+b.name, "project NAME").Replace(s)
	}
	calls := 0
	for _, x := range g.Gate.Registry().List() {
		if !x.Reachable(by) {
			continue
		}
		if strings.HasPrefix(x.ID, "token.") || strings.HasPrefix(x.ID, "approval.") || strings.HasPrefix(x.ID, "event.") {
			if got := ask(x, g.argsOf(t, x, theirs)[0], false); !strings.Contains(got, "capability_denied") {
				t.Errorf("%s without its capability: %s", x.ID, got)
			}
			continue
		}
		foreign, nothing := g.argsOf(t, x, theirs), g.argsOf(t, x, never)
		for i := range foreign {
			for _, dry := range []bool{false, true} {
				calls++
				ask(x, nothing[i], dry) // what the caller itself may create by it now exists for both
				a, b := ask(x, foreign[i], dry), ask(x, nothing[i], dry)
				if normal(a, theirs) != normal(b, never) {
					t.Errorf("%s %v: another's\n%s\nis not as nothing\n%s", x.ID, foreign[i], a, b)
				}
				for _, word := range []string{"of " + theirs.name, theirs.project} {
					if strings.Contains(a, word) && !strings.Contains(fmt.Sprint(foreign[i]), word) {
						t.Errorf("%s %v tells %q: %s", x.ID, foreign[i], word, a)
					}
				}
			}
		}
	}
	if calls < 60 {
		t.Errorf("only %d calls: does the table see the tools?", calls)
	}
	// The caller sees its own things.
	for _, id := range []string{"run.list", "artifact.list"} {
		got := ask(g.toolOf(t, id), map[string]any{}, false)
		if !strings.Contains(got, own.run) && !strings.Contains(got, own.artifact) || strings.Contains(got, theirs.run) || strings.Contains(got,
			theirs.artifact) {
			t.Errorf("%s: %s", id, got)
		}
	}
}

// request returns the envelope of a call of a tool.
func request(t *testing.T, x gate.Tool, args any, dry bool) gate.Request {
	t.Helper()
	raw, err := json.Marshal(args)
	must(t, err)
	req := gate.NewRequest(x.ID, x.Version, raw)
	req.DryRun = dry
	return req
}

// toolOf returns a tool of the gateway's registry.
func (g *Gateway) toolOf(t *testing.T, id string) gate.Tool {
	t.Helper()
	x, err := g.Gate.Registry().Find(id)
	must(t, err)
	return x
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
