package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"slurmgate/plan"
	"slurmgate/policy"
)

// Where things are in the cluster. The gateway's own state is on the login node's disk, as in real life.
const (
	sharedDir = "/shared/chaos"
	localDir  = "/home/" + user + "/chaos"
	binary    = sharedDir + "/slurmgate"
	domainDir = sharedDir + "/domain"
	imageName = "chaosprog"
)

// ground holds what all workers share: the program under test, the image and the domain.
type ground struct {
	*cluster
	hosts      hosts  // where there are far gateways
	image      string // sha256:…
	policyHash string
}

const manifestYAML = "domain_id: chaos\nversion: 1.0.0\ndescription: The crash campaign.\nartifact_types: []\n" +
	"tools: [{tool_id: chaos.row, kind: job_worker}, {tool_id: chaos.next, kind: job_worker}]\n"

const policiesYAML = `version: 1
slurm:
  raw_plans:
    allowed: true
    entry_programs: {chaosprog: [chaosprog]}
retry: {infrastructure_attempts: 3}
`

// prepare builds everything and puts it into the cluster, on clean ground.
func prepare(ctx context.Context, c *cluster, repo string, far bool) (*ground, error) {
	g := &ground{cluster: c}
	if _, err := c.output(ctx, "root", nil, "bash", "-c", "squeue -h -o %i | xargs -r scancel; rm -rf "+sharedDir+" "+localDir+
		"; install -d -o "+user+" -g "+user+" "+sharedDir+" "+localDir+" "+domainDir+" "+domainDir+"/toolpacks"); err != nil {
		return nil, err
	}
	work := filepath.Join(repo, "build", "chaos")
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, err
	}
	build := func(env []string, name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = repo, append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return nil
	}
	root := filepath.Join(work, "root")
	if err := makeRoot(root); err != nil {
		return nil, err
	}
	for _, step := range [][]string{
		{"", "go", "build", "-tags", "chaos", "-o", c.path(binary), "./cmd/slurmgate"},
		{"CGO_ENABLED=0", "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(root, "usr/bin/chaosprog"), "./chaos/prog"},
		{"CGO_ENABLED=0", "go", "build", "-o", c.path(sharedDir + "/liar"), "./chaos/liar"},
		{"", "mksquashfs", root, filepath.Join(work, "root.squashfs"), "-noappend", "-no-progress", "-quiet", "-all-root", "-mkfs-time", "0",
			"-all-time", "0", "-no-xattrs"},
		{"", "go", "run", "./scripts/images/mksif", "-o", c.path(sharedDir + "/chaosprog.sif"), filepath.Join(work, "root.squashfs")},
	} {
		if err := build(step[:1], step[1], step[2:]...); err != nil {
			return nil, err
		}
	}
	files := batchPacks()
	files["manifest.yaml"], files["policies.yaml"] = manifestYAML, policiesYAML
	files["images.lock.yaml"] = "version: 1\nimages: []\n"
	for name, text := range files {
		if err := c.write(domainDir+"/"+name, text); err != nil {
			return nil, err
		}
	}
	if far {
		if err := g.layDesk(ctx); err != nil {
			return nil, err
		}
		for _, step := range append([][]string{{"lose", "0"}}, serve("restart")...) {
			if _, err := c.step(ctx, step); err != nil {
				return nil, err
			}
		}
	}
	p, err := policy.Parse("policies.yaml", []byte(policiesYAML), os.LookupEnv)
	if err != nil {
		return nil, err
	}
	g.policyHash = p.Hash
	return g, nil
}

func makeRoot(root string) error {
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	for _, d := range []string{"dev", "proc", "sys", "tmp", "var/tmp", "etc", "home", "root", "run", "usr/bin", "work/in", "work/out",
		"work/meta"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"passwd": "root:x:0:0:root:/root:/bin/sh\n", "group": "root:x:0:\n", "hosts": "",
		"resolv.conf": "", "localtime": ""} {
		if err := os.WriteFile(filepath.Join(root, "etc", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// write makes a file of the user's in the cluster.
func (c *cluster) write(inside, text string) error { return writeAs(c.uid, c.path(inside), text) }

func writeAs(uid int, name, text string) error {
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Chown(name, uid, uid)
}

// site is one worker's gateway of one transport, with a separate ledger, runs_dir and folder of Slurm commands.
type site struct {
	*ground
	carrier
	n      int
	login  *proxy // to the login nodes' sshd
	data   *proxy // to the host of the files
	rest   *endpoint
	signer *authority // with run_as: caller, and then:
	users  []string   // whose runs they are
	owners sync.Map   // run id → one of them
	wires  wires      // all of them
	local  string     // state_dir is below it
	shared string     // runs_dir is below it
	home   string     // what the gateway's callers write
	file   string
	client string     // the site file of a shell that cannot become the gateway: it is not given the ledger
	input  plan.Input // the one input of every run
}

//go:embed wrapper.sh
var wrapper string

func (s *site) state() string { return s.local + "/state" }
func (s *site) runs() string  { return s.shared + "/runs" }
func (s *site) flags() string { return s.shared + "/flags" }

// socket returns the path of the gateway's socket. Callers other than its own user must reach it.
func (s *site) socket() string {
	if s.carrier == caller {
		return s.shared + "/gateway.sock"
	}
	return s.state() + "/gateway.sock"
}

// images returns the image store, which the sites of a transport share.
func (s *site) images() string { return sharedDir + "/images-" + string(s.carrier) }

// name returns a name that is unique among the sites.
func (s *site) name() string { return fmt.Sprintf("%s%d", s.carrier, s.n) }

// write makes a file of the gateway's user.
func (s *site) write(file, text string) error {
	if s.far() && s.path(file) == file {
		return writeAs(nobody, file, text)
	}
	return s.cluster.write(file, text)
}

// newSite makes the worker's site and imports its input.
func newSite(ctx context.Context, g *ground, c carrier, n int) (*site, error) {
	s := &site{ground: g, carrier: c, n: n}
	s.local, s.shared = localDir+"/"+s.name(), sharedDir+"/"+s.name()
	s.home = s.shared
	if c.far() {
		s.local = g.desk() + "/" + s.name()
		s.home = s.local
	}
	s.file, s.client = s.home+"/site.yaml", s.home+"/client.yaml"
	own := func(dirs ...string) string {
		return "rm -rf " + strings.Join(dirs[:1], " ") + "; install -d -o " + user + " -g " + user + " " + strings.Join(dirs, " ")
	}
	script := own(s.shared, s.flags(), s.shared+"/bin")
	if !c.far() {
		script += "; " + own(s.local) + "; chmod 1777 " + s.flags()
	}
	if _, err := g.output(ctx, "root", nil, "bash", "-c", script); err != nil {
		return nil, err
	}
	if c.ssh() {
		if err := s.connect(); err != nil {
			return nil, err
		}
	}
	if c == caller {
		if err := errors.Join(s.addUsers(ctx), s.serveSigner(ctx)); err != nil {
			return nil, err
		}
	}
	if c.rest() {
		if err := s.serveREST(ctx); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(s.path(s.home+"/plans"), 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"sbatch", "squeue", "sacct", "scancel", "scontrol", "sacctmgr", "sinfo"} {
		file := s.shared + "/bin/" + name
		if err := s.write(file, strings.ReplaceAll(wrapper, "@FLAGS@", s.flags())); err != nil {
			return nil, err
		}
		if err := os.Chmod(g.path(file), 0o755); err != nil {
			return nil, err
		}
	}
	domain, image := domainDir, sharedDir+"/chaosprog.sif"
	if c.far() {
		domain, image = g.desk()+"/domain", g.desk()+"/chaosprog.sif"
	}
	slurm, storage := s.ofTransport()
	for file, state := range map[string]string{s.file: s.state(), s.client: "/dev/null/state"} {
		runAs, runs, access := "self, arrays: {min: 7, linger_ms: 1500}", s.runs(), ""
		if c == caller {
			runAs, runs = "caller", s.shared+"/of/{user}/runs"
			access = fmt.Sprintf(accessYAML, s.users[0], s.users[1])
		}
		if err := s.write(file, fmt.Sprintf(siteYAML, s.home, state, s.state(), s.socket(), domain, slurm, runAs, runs, s.images(), storage)+
			access); err != nil {
			return nil, err
		}
	}
	if c.far() {
		if err := chownAll(s.local, nobody); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		var added struct{ Digest string }
		if err := s.cli(ctx, user, s.file, &added, "image", "add", imageName, image); err != nil {
			return nil, err
		}
		g.image = added.Digest
	}
	if err := s.write(s.home+"/seed", seedText); err != nil {
		return nil, err
	}
	var a struct {
		ID     string `json:"artifact_id"`
		SHA256 string `json:"checksum_sha256"`
	}
	if err := s.importSeed(ctx, &a); err != nil {
		return nil, err
	}
	s.input = plan.Input{Role: "seed", ArtifactID: a.ID, ChecksumSHA256: a.SHA256, DestRelpath: "in/seed"}
	return s, nil
}

// chownAll gives a folder and all in it to a user.
func chownAll(dir string, uid int) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, uid)
	})
}

const siteYAML = `version: 1
site: chaos
import: {roots: [%s]}
gateway: {state_dir: %s, artifact_dir: %s/artifacts, socket: %s, default_project: chaos}
domain_dir: %s
slurm: {%s, run_as: %s, default_partition: main, default_account: research, accounting: auto, verify_allowance_seconds: 30, grace_seconds: 5}
storage: {runs_dir: %q, image_store: %s%s}
apptainer: {path: /usr/bin/apptainer}
watch: {floor_seconds: 1, ceiling_seconds: 3}
budget: {rpc_per_minute: 6000, sends_in_flight: 4, staging_workers: 2}
`

const accessYAML = `access:
  peers:
    - {user: %s, capabilities: [gateway, read, import, slurm], projects: [chaos]}
    - {user: %s, capabilities: [gateway, read, import, slurm], projects: [chaos]}
`

const seedText = "what every run of the campaign reads\n"

// cliError is a verb's error.
type cliError struct {
	exit int
	code string
	text string
}

func (e *cliError) Error() string {
	return fmt.Sprintf("exit status %d, %s: %s", e.exit, e.code, e.text)
}

// cli runs one verb as a user with --json and decodes its result.
func (s *site) cli(ctx context.Context, as, file string, out any, args ...string) error {
	r, err := outcome(s.program(ctx, as, nil, append([]string{"--site", file, "--json"}, args...)...))
	if err != nil {
		return err
	}
	var e struct {
		Error *struct{ Code, Message string }
	}
	if json.Unmarshal([]byte(r.stdout), &e) == nil && e.Error != nil {
		return &cliError{r.exit, e.Error.Code, e.Error.Message}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal([]byte(r.stdout), out); err != nil {
		return &cliError{r.exit, "no_answer", strings.TrimSpace(r.stderr)}
	}
	return nil
}

// flag makes one of Slurm's commands misbehave, by a line as wrapper.sh reads it.
func (s *site) flag(program, line string) error {
	name := s.path(s.flags() + "/" + program)
	if err := os.WriteFile(name+".new", []byte(line+"\n"), 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// lift makes the commands behave again.
func (s *site) lift(programs ...string) error {
	for _, p := range programs {
		if err := os.RemoveAll(s.path(s.flags() + "/" + p)); err != nil {
			return err
		}
		calls, err := filepath.Glob(s.path(s.flags()+"/"+p) + ".call.*")
		if err != nil {
			return err
		}
		for _, call := range calls {
			if err := os.RemoveAll(call); err != nil {
				return err
			}
		}
	}
	return nil
}
