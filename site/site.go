// Package site is the configuration of one gateway: one strict YAML file, written by the admin, that describes the gateway's folders and
// one cluster. Where there are several clusters, each has a file of its own, which the site file names.
//
// [Load] reads it, fills the defaults and checks everything; all problems come in one Validation fault, with
// line, field, rule and hint. The file site-configs/template.yaml explains every field for an admin.
package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
)

// Site is the site file. Lists and texts that were left out are empty; everything that has a default is
// filled.
type Site struct {
	Version   int       `yaml:"version"`         // of this format: 1
	Name      string    `yaml:"site"`            // name of the cluster: lower-case letters, digits and . _ -, not "local"
	Sites     []string  `yaml:"sites,omitempty"` // files that describe a cluster each, relative to the site file's folder; none: it is here
	Gateway   Gateway   `yaml:"gateway"`         // the gateway's own folders
	DomainDir string    `yaml:"domain_dir"`      // folder of the domain package, relative to that of the site file; Parse makes it absolute
	Slurm     Slurm     `yaml:"slurm"`           // how Slurm is reached and what jobs ask for by default
	Storage   Storage   `yaml:"storage"`         // the cluster's folders
	Apptainer Apptainer `yaml:"apptainer"`       // how containers are run
	Import    Import    `yaml:"import"`          // where files may come from
	Watch     Watch     `yaml:"watch"`           // how often Slurm is asked
	Budget    Budget    `yaml:"budget"`          // limits on the load on the login node and on Slurm's controller
	Access    Access    `yaml:"access"`          // who may use the gateway
	Retention Retention `yaml:"retention"`       // how long files that are no longer needed are kept
	Audit     Audit     `yaml:"audit"`           // how long records of calls are kept
	HTTP      HTTP      `yaml:"http"`            // the port for programs and chats
	Limits    Limits    `yaml:"limits"`          // what callers may do at the same time
	Secrets   Secrets   `yaml:"secrets"`         // what is a secret here
	Images    Images    `yaml:"images"`          // how images come from registries
	Notify    Notify    `yaml:"notify"`          // who may be told that a run or a batch is over

	file string           // the file it was read from; empty for one made in Go
	at   map[string]place // field → where its value is, for the fields that were given
	base string           // folder DomainDir is relative to

	clusters []*Site // of Sites, each with the gateway's part of this one
	cluster  bool    // this is one of them
}

// Gateway is what belongs to the gateway alone. Compute nodes need not see any of it.
type Gateway struct {
	StateDir       string `yaml:"state_dir"`       // absolute, on a local disk: ledger.db, locks/
	ArtifactDir    string `yaml:"artifact_dir"`    // absolute; default state_dir/artifacts. Any disk of the gateway
	Socket         string `yaml:"socket"`          // absolute, at most 107 bytes; default state_dir/gateway.sock
	DefaultProject string `yaml:"default_project"` // project name used when a call names none; default "default"
	ImageStore     string `yaml:"image_store"`     // absolute; images of jobs of this host, if the first cluster is reached by SFTP; default state_dir/images
}

// Slurm says how Slurm is reached.
type Slurm struct {
	Transport              string  `yaml:"transport"`                // "cli": the commands of Slurm on this machine; "ssh"; "rest"; default cli
	SSH                    *SSH    `yaml:"ssh,omitempty"`            // the login node, only with transport ssh
	REST                   *REST   `yaml:"rest,omitempty"`           // slurmrestd, only with transport rest
	BinDir                 string  `yaml:"bin_dir"`                  // absolute folder of Slurm's commands; default /usr/bin; not with rest
	Conf                   string  `yaml:"conf"`                     // absolute path of slurm.conf for SLURM_CONF; empty: Slurm's own default
	Cluster                string  `yaml:"cluster"`                  // ClusterName of the only cluster that is sent to or asked; empty: any
	RunAs                  string  `yaml:"run_as"`                   // "self": jobs belong to the gateway's user; "caller"; default self
	Caller                 *Caller `yaml:"caller,omitempty"`         // the users' logins, only with run_as caller
	DefaultPartition       string  `yaml:"default_partition"`        // for plans that name none
	DefaultAccount         string  `yaml:"default_account"`          // for plans that name none
	DefaultQOS             string  `yaml:"default_qos"`              // for plans that name none; empty: Slurm's own default
	Accounts               string  `yaml:"accounts"`                 // "site": by this file and policy; "associations": by sacctmgr's too; default site
	Accounting             string  `yaml:"accounting"`               // "auto" (use sacct where it works), "required" or "none"; default auto
	VerifyAllowanceSeconds int     `yaml:"verify_allowance_seconds"` // 1..3600 more of time limit, to check image and inputs; default 120
	GraceSeconds           int     `yaml:"grace_seconds"`            // 1..600 from TERM to KILL, below Slurm's KillWait; default 10
	Scratch                string  `yaml:"scratch,omitempty"`        // folder on each node's own disk for /tmp of containers; empty: none
	Arrays                 Arrays  `yaml:"arrays"`                   // when runs are sent together, as one job array
}

// Arrays says when runs that Slurm need be told the same about are sent as the tasks of one job array.
type Arrays struct {
	Min      int `yaml:"min"`       // 2..1000 that are ready leave at once; 0: every run is a job of its own; default 1000
	LingerMS int `yaml:"linger_ms"` // 1..60000: how long a run waits for others of its caller at most; default 1000
}

// Values of Slurm.Accounts: what a user of this host may charge, where access.peers does not say it.
const (
	AccountsBySite         = "site"         // slurm.default_account, and any that policy allows
	AccountsByAssociations = "associations" // the accounts of the user's own associations in slurmdbd
)

// AlsoNeeds are the commands of Slurm that this site needs besides those of every site.
func (s Slurm) AlsoNeeds() (programs []string) {
	if s.Accounting == "required" {
		programs = append(programs, "sacct")
	}
	if s.Accounts == AccountsByAssociations {
		programs = append(programs, "sacctmgr")
	}
	return programs
}

// Storage is where the cluster's folders are. Paths are as jobs see them, unless a section says otherwise.
type Storage struct {
	Transport      string   `yaml:"transport"`        // "shared": this machine sees the folders under the same path; "sftp"; default shared
	RunsDir        string   `yaml:"runs_dir"`         // absolute and plain: a folder for each run. With run_as caller it has {user} in it
	ImageStore     string   `yaml:"image_store"`      // absolute and plain: images by digest
	Login          *Folders `yaml:"login,omitempty"`  // the folders as the login node names them, where that differs
	SFTP           *SFTP    `yaml:"sftp,omitempty"`   // the SFTP server, only with transport sftp
	MaxOutputBytes int64    `yaml:"max_output_bytes"` // largest declared output collected, in bytes; default 100 GiB. A tool may set less
	BindArtifacts  string   `yaml:"bind_artifacts"`   // absolute: gateway.artifact_dir as the nodes see it; inputs are then mounted, not copied
	InPlace        []Root   `yaml:"in_place"`         // folders of the nodes whose files may be registered and read where they lie
	ReserveMB      int      `yaml:"reserve_mb"`       // MiB, 0..1048576 that must be free on the disks to accept a run; default 256
}

// Apptainer says how containers are run. Path and Module exclude each other.
type Apptainer struct {
	Path             string   `yaml:"path"`              // absolute and plain, on the compute nodes; without module default /usr/bin/apptainer
	Module           *Module  `yaml:"module,omitempty"`  // for sites where Apptainer comes as an environment module
	Verify           string   `yaml:"verify"`            // "all": the job checks image and inputs before it starts; "image_only"; default all
	Binds            []Bind   `yaml:"binds"`             // folders that tools may ask for by name, always read-only
	NetworkIsolation string   `yaml:"network_isolation"` // "required": containers have no network
	NoMount          []string `yaml:"no_mount"`          // further mounts to leave out: sys, devpts or absolute paths
	GPU              string   `yaml:"gpu"`               // "nvidia" (--nv) or "amd" (--rocm), for plans that ask for GPUs; default nvidia
	Seccomp          string   `yaml:"seccomp"`           // absolute and plain: a seccomp profile on the compute nodes; default none
}

// Module is how the job loads Apptainer as an environment module.
type Module struct {
	Init string   `yaml:"init"` // absolute path of the file that defines the command "module"; default /etc/profile.d/modules.sh
	Load []string `yaml:"load"` // modules to load, in this order
}

// Bind is a folder of the compute nodes that a toolpack may ask for by name (binds). Its container sees it read-only; name
// and version are part of the run's identity.
type Bind struct {
	Name    string `yaml:"name"`    // lower-case letters, digits and . _ -, at most 64
	Version string `yaml:"version"` // one word, at most 128 bytes; changed with the folder's content
	Source  string `yaml:"source"`  // absolute and plain, on the compute node
	Target  string `yaml:"target"`  // absolute and plain, in the container
}

// Watch bounds the time between two queries of Slurm.
type Watch struct {
	FloorSeconds   int `yaml:"floor_seconds"`   // 1..3600, while something happens; default 2
	CeilingSeconds int `yaml:"ceiling_seconds"` // floor..3600, while nothing happens; default 60
}

// Budget bounds the gateway's rate of Slurm commands and its concurrent work.
type Budget struct {
	RPCPerMinute   int `yaml:"rpc_per_minute"`  // 1..6000 calls of Slurm commands; default 60
	SendsInFlight  int `yaml:"sends_in_flight"` // 1..64 sbatch at once; default 2
	StagingWorkers int `yaml:"staging_workers"` // 1..64 runs whose inputs are copied at once; default 2

	Shared SharedBudget `yaml:"shared"` // of all gateways of this host that name the same file, besides
}

// SharedBudget bounds what several gateways of one host ask of a Slurm.
type SharedBudget struct {
	File         string `yaml:"file"`           // that each of them can write; empty: there is no shared budget
	RPCPerMinute int    `yaml:"rpc_per_minute"` // 1..60000, of all of them together; required with file
}

// text sets the default of a text that was not given.
func (s *Site) text(field string, v *string, def string) {
	if _, given := s.at[field]; *v == "" && !given {
		*v = def
	}
}

// number sets the default of a number that was not given.
func (s *Site) number(field string, v *int, def int) {
	if _, given := s.at[field]; *v == 0 && !given {
		*v = def
	}
}

// fill sets every default. A zero in the file is left for Validate to refuse.
func (s *Site) fill() {
	text, number := s.text, s.number
	if dir := s.Gateway.StateDir; filepath.IsAbs(dir) {
		text("gateway.artifact_dir", &s.Gateway.ArtifactDir, filepath.Join(dir, "artifacts"))
		text("gateway.socket", &s.Gateway.Socket, filepath.Join(dir, "gateway.sock"))
		text("gateway.image_store", &s.Gateway.ImageStore, filepath.Join(dir, "images"))
	}
	text("gateway.default_project", &s.Gateway.DefaultProject, "default")
	text("slurm.transport", &s.Slurm.Transport, TransportCLI)
	if !s.OverREST() {
		text("slurm.bin_dir", &s.Slurm.BinDir, "/usr/bin")
	} else if _, given := s.at["slurm.bin_dir"]; !given {
		s.Slurm.BinDir = "" // of several clusters each begins with the site file's defaults
	}
	text("slurm.run_as", &s.Slurm.RunAs, RunAsSelf)
	text("slurm.accounts", &s.Slurm.Accounts, AccountsBySite)
	text("slurm.accounting", &s.Slurm.Accounting, "auto")
	number("slurm.verify_allowance_seconds", &s.Slurm.VerifyAllowanceSeconds, 120)
	number("slurm.grace_seconds", &s.Slurm.GraceSeconds, 10)
	if _, given := s.at["slurm.arrays.min"]; !given { // 0 is a choice
		s.Slurm.Arrays.Min = 1000
	}
	number("slurm.arrays.linger_ms", &s.Slurm.Arrays.LingerMS, 1000)
	text("storage.transport", &s.Storage.Transport, TransportShared)
	s.fillRemote()
	s.fillCaller()
	if _, given := s.at["storage.max_output_bytes"]; s.Storage.MaxOutputBytes == 0 && !given {
		s.Storage.MaxOutputBytes = 100 << 30
	}
	number("storage.reserve_mb", &s.Storage.ReserveMB, 256)
	if m := s.Apptainer.Module; m != nil {
		text("apptainer.module.init", &m.Init, "/etc/profile.d/modules.sh")
	} else {
		text("apptainer.path", &s.Apptainer.Path, "/usr/bin/apptainer")
	}
	text("import.local", &s.Import.Local, LocalRoots)
	text("apptainer.verify", &s.Apptainer.Verify, "all")
	text("apptainer.network_isolation", &s.Apptainer.NetworkIsolation, "required")
	text("apptainer.gpu", &s.Apptainer.GPU, "nvidia")
	number("watch.floor_seconds", &s.Watch.FloorSeconds, 2)
	number("watch.ceiling_seconds", &s.Watch.CeilingSeconds, max(60, s.Watch.FloorSeconds))
	number("budget.rpc_per_minute", &s.Budget.RPCPerMinute, 60)
	number("budget.sends_in_flight", &s.Budget.SendsInFlight, 2)
	number("budget.staging_workers", &s.Budget.StagingWorkers, 2)
	number("retention.workspace_days", &s.Retention.WorkspaceDays, defaultWorkspaceDays)
	number("audit.look_days", &s.Audit.LookDays, defaultLookDays)
	number("audit.looks", &s.Audit.Looks, defaultLooks)
	number("audit.look_mb", &s.Audit.LookMB, defaultLookMB)
	number("audit.refused_days", &s.Audit.RefusedDays, defaultRefusedDays)
	number("audit.refused", &s.Audit.Refused, defaultRefused)
	number("audit.refused_mb", &s.Audit.RefusedMB, defaultRefusedMB)
	for i := range s.Access.OIDC {
		o := &s.Access.OIDC[i]
		if o.Algorithms == nil {
			o.Algorithms = []string{"RS256", "ES256"}
		}
		if o.Types == nil {
			o.Types = []string{"at+jwt"}
		}
	}
	number("images.max_mb", &s.Images.MaxMB, defaultImageMB)
	text("notify.mail.sendmail", &s.Notify.Mail.Sendmail, defaultSendmail)
	number("notify.mail.per_hour", &s.Notify.Mail.PerHour, defaultMails)
	number("http.max_connections", &s.HTTP.MaxConnections, defaultConnections)
	for _, l := range s.Limits.fields() {
		number("limits."+l.name, l.value, l.def)
	}
	if d := s.DomainDir; d != "" && !filepath.IsAbs(d) && s.base != "" {
		s.DomainDir = filepath.Join(s.base, d)
	}
}

// BindVersion returns the version of a folder that the site offers under a name.
func (s *Site) BindVersion(name string) (version string, ok bool) {
	for _, b := range s.Apptainer.Binds {
		if b.Name == name {
			return b.Version, true
		}
	}
	return "", false
}

// maxFile bounds a site file; a real one has a few kilobytes.
const maxFile = 1 << 20

// A Check returns problems of a filled site that this package cannot find. It names the field; file and line are added.
type Check func(*Site) []fault.Problem

// Load reads, fills and checks the site file at path. A missing file is a NotFound fault; one that breaks a rule of this
// package or of more is a Validation fault.
func Load(path string, more ...Check) (*Site, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot resolve "+path, err)
	}
	data, err := read(abs)
	if err != nil {
		return nil, err
	}
	return Parse(abs, data, more...)
}

func read(abs string) ([]byte, error) {
	f, err := os.OpenFile(abs, os.O_RDONLY|syscall.O_NONBLOCK, 0) // not to wait for a pipe's other end
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "SITE-FILE", "there is no site file "+abs).
			WithNext("copy site-configs/template.yaml to that path and fill it in")
	}
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "SITE-FILE", "cannot read the site file", err).WithNext(readable)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fault.New(fault.Validation, "SITE-FILE", "the site file "+abs+" is not a regular file").WithNext(readable)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fault.Wrap(fault.Validation, "SITE-FILE", "cannot read the site file "+abs, err).WithNext(readable)
	}
	return data, nil
}

const readable = "name a file that this user may read, with --site or SLURMGATE_SITE"

// Parse is Load for bytes already read. Problems name file, and a relative domain_dir is relative to its folder.
func Parse(file string, data []byte, more ...Check) (*Site, error) {
	s := &Site{file: file, at: map[string]place{}}
	abs, err := filepath.Abs(file)
	if err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot resolve "+file, err)
	}
	s.base = filepath.Dir(abs)
	problems, fatal := s.parse(data, more...)
	if !fatal {
		problems = append(problems, s.readClusters()...)
		for _, p := range s.ownHost() {
			if !reported(problems, p.Field) {
				problems = append(problems, p)
			}
		}
	}
	if len(problems) > 0 {
		return nil, refused(file, problems)
	}
	return s, nil
}

// Validate checks every rule and reports all that are broken, in one Validation fault. A Site from Parse or Load is valid.
func (s *Site) Validate() error {
	if problems := s.check(); len(problems) > 0 {
		return refused(s.file, problems)
	}
	return nil
}

// New fills the defaults of a Site made in Go and checks it.
func New(s Site) (*Site, error) {
	s.fill()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &s, nil
}

// Effective prints the effective file, defaults included. Reading it back gives the same site.
func (s *Site) Effective() ([]byte, error) {
	var buf bytes.Buffer
	var doc yaml.Node
	e := yaml.NewEncoder(&buf)
	e.SetIndent(2)
	if err := errors.Join(doc.Encode(s), e.Encode(s.ownPart(&doc)), e.Close()); err != nil {
		return nil, fault.Wrap(fault.Internal, "", "cannot print the site", err)
	}
	return buf.Bytes(), nil
}

func refused(file string, problems []fault.Problem) error {
	what := "the site file " + file
	if file == "" {
		what = "the site configuration"
	}
	e := fault.Invalid(fmt.Sprintf("%s has %d problems", what, len(problems)), problems...)
	if len(problems) == 1 {
		e.Msg = what + " has a problem"
	}
	return e.WithNext("correct them and check again").WithSteps(fault.Do("config check"))
}
