// Package site has the configuration of one gateway: one strict YAML file, written by the admin, that describes the
// gateway's folders and one cluster. With several clusters, each has a separate file that the site file names.
//
// [Load] reads it, fills the defaults and checks everything; it returns all problems in one Validation fault, with
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

// Site is the site file. Omitted lists and texts are empty; everything that has a default is filled.
type Site struct {
	Version   int       `yaml:"version"`         // of this format: 1
	Name      string    `yaml:"site"`            // name of the cluster: lower-case letters, digits and . _ -, not "local"
	Sites     []string  `yaml:"sites,omitempty"` // files that describe a cluster each, relative to the site file's folder; none: this file has the cluster
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
	Secrets   Secrets   `yaml:"secrets"`         // the patterns of secrets of this site
	Images    Images    `yaml:"images"`          // how images come from registries
	Notify    Notify    `yaml:"notify"`          // who may be notified that a run or a batch has ended

	file string           // the file it was read from; empty for one created in Go
	at   map[string]place // field → place of its value, for the given fields
	base string           // the folder that DomainDir is relative to

	clusters []*Site // of Sites, each with the gateway's part of this file
	cluster  bool    // this is one of the clusters
}

// Gateway has the settings of the gateway alone. Compute nodes need not see any of these files.
type Gateway struct {
	StateDir    string `yaml:"state_dir"`    // absolute, on a local disk: ledger.db, locks/
	ArtifactDir string `yaml:"artifact_dir"` // absolute; default state_dir/artifacts. Any disk of the gateway
	Socket      string `yaml:"socket"`       // absolute, at most 107 bytes; default state_dir/gateway.sock
	// Project of calls that name none, of callers who have no project of their own (access): root and the gateway's user, and tokens
	// without {user}. It is part of a run's identity, so decide on it before the first run.
	DefaultProject string `yaml:"default_project" default:"default"`
	// Unit of systemd that runs the gateway. When set, no verb becomes the gateway: a verb that finds none says that the service is down.
	// Remove it where no service runs the gateway. Default: none.
	Service    string `yaml:"service" is:"unit?"`
	ImageStore string `yaml:"image_store"` // absolute; images of jobs of this host, if the first cluster is reached by SFTP; default state_dir/images
}

// Slurm configures how Slurm is reached.
type Slurm struct {
	// How Slurm is reached. "cli": by sbatch, squeue, sacct, scancel and scontrol on this machine. "ssh": by the same commands on a
	// login node, which needs nothing but sshd, bash and coreutils besides. bin_dir and conf are then paths of the login node, run_as
	// self is the user of ssh.user. "rest": through slurmrestd, for a host without Slurm's commands; leave out bin_dir and conf;
	// run_as self is the user of rest.user.
	Transport string `yaml:"transport" default:"cli" enum:"cli,ssh,rest"`
	SSH       *SSH   `yaml:"ssh,omitempty"`  // the login node, only with transport ssh
	REST      *REST  `yaml:"rest,omitempty"` // slurmrestd, only with transport rest
	BinDir    string `yaml:"bin_dir"`        // absolute folder of Slurm's commands; default /usr/bin; not with rest
	// Path of slurm.conf, if Slurm's commands do not find it themselves; passed to them as SLURM_CONF. Not with transport: rest.
	// Default: none.
	Conf string `yaml:"conf"`
	// Set this. ClusterName of slurm.conf. When set, nothing is sent to or asked of another cluster. Default: not checked.
	Cluster string `yaml:"cluster" is:"slurm?"`
	// Whom jobs and the files of runs belong to. "self": the user the gateway runs as (or ssh.user, rest.user). "caller": the user who
	// asked for the run, with that user's quota, fair-share and accounting. The gateway then logs in as each user over SSH, with
	// certificates of minutes that a separate process signs (`slurmgate signer`), and needs {user} in storage.runs_dir. Not with
	// transport: rest. docs/run/callers.md says how to set it up.
	RunAs            string  `yaml:"run_as" default:"self" enum:"self,caller"`
	Caller           *Caller `yaml:"caller,omitempty"`             // the users' logins, only with run_as caller
	DefaultPartition string  `yaml:"default_partition" is:"slurm"` // for plans that name none
	DefaultAccount   string  `yaml:"default_account" is:"slurm"`   // for plans that name none
	// QOS for plans that name none. Default: none, so Slurm uses its own default.
	DefaultQOS string `yaml:"default_qos" is:"slurm?"`
	// What users of this host may charge, where access.peers names no account for them. "site": default_account, and any that
	// policies.yaml allows. "associations": the accounts of their own associations in Slurm (sacctmgr show user NAME withassoc), and
	// where a call names none their DefaultAccount. All users are asked for at once, at most every 5 minutes; it needs cluster, and
	// sacctmgr in bin_dir. Tokens, OpenID callers, root and the gateway's own user are not affected. As all jobs belong to the
	// gateway's user, it needs an association with each of these accounts too; doctor lists those it lacks.
	Accounts string `yaml:"accounts" default:"site" enum:"site,associations"`
	// Accounting (slurmdbd): "auto" uses sacct where it works, "required" makes its absence an error, "none" never uses it. Without
	// accounting, a job that has left squeue is judged only by the files it wrote.
	Accounting string `yaml:"accounting" default:"auto" enum:"auto,required,none"`
	// Seconds added to the time limit of every job for checking image and inputs before the program starts: about 1 s for 2 GB on a
	// fast filesystem.
	VerifyAllowanceSeconds int `yaml:"verify_allowance_seconds" default:"120" min:"1" max:"3600"`
	// Seconds between TERM and KILL for a program that reaches its time limit. Keep it below KillWait of slurm.conf (30 by default).
	GraceSeconds int `yaml:"grace_seconds" default:"10" min:"1" max:"600"`
	// A folder on each compute node's own disk, such as /scratch or /tmp. Each job makes a private folder in it for /tmp of its
	// container and removes it at the end (only a job that is killed at once, without TERM, leaves it behind). Without it, /tmp is
	// in storage.runs_dir. No part of a run's identity. Default: none. Where it is missing on a node, runs end with scratch_missing;
	// `slurmgate doctor` looks at each node.
	Scratch string `yaml:"scratch,omitempty" is:"plain?"`
	Arrays  Arrays `yaml:"arrays"` // when runs are sent together, as one job array
}

// Arrays configures when similar runs are sent together as the tasks of one job array.
type Arrays struct {
	Min      int `yaml:"min" default:"1000"`                           // 2..1000: number of ready runs that are sent immediately; 0: every run is a separate job
	LingerMS int `yaml:"linger_ms" default:"1000" min:"1" max:"60000"` // 1..60000: the longest wait of a run for others of its caller
}

// Values of Slurm.Accounts: what a user of this host may charge, unless access.peers names an account.
const (
	AccountsBySite         = "site"         // slurm.default_account, and any that policy allows
	AccountsByAssociations = "associations" // the accounts of the user's own associations in slurmdbd
)

// AlsoNeeds returns the commands of Slurm that this site needs besides those of every site.
func (s Slurm) AlsoNeeds() (programs []string) {
	if s.Accounting == "required" {
		programs = append(programs, "sacct")
	}
	if s.Accounts == AccountsByAssociations {
		programs = append(programs, "sacctmgr")
	}
	return programs
}

// Storage names the cluster's folders. Paths are as jobs see them, unless a section states otherwise.
type Storage struct {
	// How the gateway reaches these folders. "shared": this machine sees them too, under the same path. "sftp": through an SFTP
	// server, which needs slurm.transport: ssh or rest. runs_dir and image_store are always the paths that jobs see.
	Transport  string   `yaml:"transport" default:"shared" enum:"shared,sftp"`
	RunsDir    string   `yaml:"runs_dir"`               // absolute and plain: a folder for each run; contains {user} with run_as caller
	ImageStore string   `yaml:"image_store" is:"plain"` // absolute and plain: images by digest
	Login      *Folders `yaml:"login,omitempty"`        // the folders as the login node names them, where that differs
	SFTP       *SFTP    `yaml:"sftp,omitempty"`         // the SFTP server, only with transport sftp
	// Largest output file that is collected, in bytes; a run with a larger one fails. A tool's own maxOutputBytes may be lower, never
	// higher. The default is 100 GiB.
	MaxOutputBytes int64 `yaml:"max_output_bytes" default:"107374182400" min:"1" max:"9007199254740991"`
	// gateway.artifact_dir as the compute nodes see it, if they do. Then a job gets an input of 1 MiB or more as a read-only mount of
	// the stored file, not as a copy in its folder ("bound" in runs show); the job still hashes it first. Not with slurm.run_as:
	// caller. `slurmgate doctor` looks for it on the nodes. Default: none, every input is copied.
	BindArtifacts string    `yaml:"bind_artifacts" is:"path?"`
	InPlace       []InPlace `yaml:"in_place"` // folders of the nodes whose files may be registered and read in place
	// MiB. With less free space than this on the disk of state_dir, runs_dir or artifact_dir, new runs are refused; runs that have
	// begun are still recorded and collected.
	ReserveMB int `yaml:"reserve_mb" default:"256" min:"0" max:"1048576"`
}

// Apptainer configures how containers are run. Path and Module exclude each other.
type Apptainer struct {
	Path   string  `yaml:"path"`             // absolute and plain, on the compute nodes; without module default /usr/bin/apptainer
	Module *Module `yaml:"module,omitempty"` // for sites where Apptainer comes as an environment module
	// What a job verifies against the pinned SHA-256 before it runs anything. "all": image and inputs. "image_only": for sites where
	// reading large inputs twice costs too much; every run then carries a warning.
	Verify string `yaml:"verify" default:"all" enum:"all,image_only"`
	Binds  []Bind `yaml:"binds"` // folders that tools may ask for by name, always read-only
	// "required": containers have no network at all (apptainer --net --network none).
	NetworkIsolation string `yaml:"network_isolation" default:"required" enum:"required"`
	// Further mounts that containers do not get: "sys" hides /sys (some programs, such as Java, read their memory limit there),
	// "devpts" the terminals, an absolute path a "bind path" of apptainer.conf. Only old versions need the last: home folders, the
	// host's root and all bind paths of apptainer.conf are left out in any case.
	NoMount []string `yaml:"no_mount" is:"mount"`
	// Vendor of the GPUs, for plans that request GPUs: "nvidia" adds --nv, "amd" --rocm.
	GPU string `yaml:"gpu" default:"nvidia" enum:"nvidia,amd"`
	// A seccomp profile, in the form that Apptainer reads, on the compute nodes. Plain. Programs in containers then cannot make the
	// system calls it forbids. site-configs/seccomp.json forbids what a tool has no use for: new namespaces, mounts, tracing of
	// other processes, kernel modules, BPF, io_uring and the like; copy it to a folder that all nodes see. Only root and the gateway's
	// user may be able to write the file. It needs an Apptainer with libseccomp; doctor says whether the profile is in force. A node
	// without the file starts no container. Not part of a run's identity. Default: none.
	Seccomp string `yaml:"seccomp" is:"plain?"`
}

// The values of apptainer.verify.
const (
	VerifyAll    = "all"
	VerifyImages = "image_only"
)

// Module configures how the job loads Apptainer as an environment module.
type Module struct {
	Init string   `yaml:"init" default:"/etc/profile.d/modules.sh" is:"plain"` // absolute path of the file that defines the command "module"
	Load []string `yaml:"load" is:"module"`                                    // modules to load, in this order
}

// Bind is a folder of the compute nodes that a toolpack may ask for by name (binds). Its container sees it read-only; name
// and version are part of the run's identity.
type Bind struct {
	Name    string `yaml:"name"`              // lower-case letters, digits and . _ -, at most 64
	Version string `yaml:"version"`           // one word, at most 128 bytes; changed with the folder's content
	Source  string `yaml:"source" is:"plain"` // absolute and plain, on the compute node
	Target  string `yaml:"target" is:"plain"` // absolute and plain, in the container
}

// Watch bounds the time between two queries of Slurm.
type Watch struct {
	// Seconds between two queries while runs change.
	FloorSeconds int `yaml:"floor_seconds" default:"2" min:"1" max:"3600"`
	// Seconds between two queries while nothing changes; not below the floor.
	CeilingSeconds int `yaml:"ceiling_seconds"`
}

// Budget bounds the gateway's rate of Slurm commands and its concurrent work.
type Budget struct {
	// Calls of Slurm's commands per minute, in total.
	RPCPerMinute int `yaml:"rpc_per_minute" default:"60" min:"1" max:"6000"`
	// Concurrent sbatch commands.
	SendsInFlight int `yaml:"sends_in_flight" default:"2" min:"1" max:"64"`
	// Runs whose inputs are copied concurrently.
	StagingWorkers int `yaml:"staging_workers" default:"2" min:"1" max:"64"`

	Shared SharedBudget `yaml:"shared"` // of all gateways of this host that name the same file, besides
}

// SharedBudget bounds what several gateways of one host ask of a Slurm.
type SharedBudget struct {
	File         string `yaml:"file" is:"path?"` // writable for each of them; empty: there is no shared budget
	RPCPerMinute int    `yaml:"rpc_per_minute"`  // 1..60000, of all of them together; required with file
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

// fill sets every default: those that depend on other settings here, the others by their tags. A zero in the file is left for Validate
// to refuse.
func (s *Site) fill() {
	text, number := s.text, s.number
	if dir := s.Gateway.StateDir; filepath.IsAbs(dir) {
		text("gateway.artifact_dir", &s.Gateway.ArtifactDir, filepath.Join(dir, "artifacts"))
		text("gateway.socket", &s.Gateway.Socket, filepath.Join(dir, "gateway.sock"))
		text("gateway.image_store", &s.Gateway.ImageStore, filepath.Join(dir, "images"))
	}
	s.fillRemote()
	s.fillCaller()
	s.setDefaults()
	if !s.OverREST() {
		text("slurm.bin_dir", &s.Slurm.BinDir, "/usr/bin")
	} else if _, given := s.at["slurm.bin_dir"]; !given {
		s.Slurm.BinDir = "" // of several clusters each begins with the site file's defaults
	}
	if s.Apptainer.Module == nil {
		text("apptainer.path", &s.Apptainer.Path, "/usr/bin/apptainer")
	}
	number("watch.ceiling_seconds", &s.Watch.CeilingSeconds, max(60, s.Watch.FloorSeconds))
	number("notify.mail.per_caller", &s.Notify.Mail.PerCaller, max(1, s.Notify.Mail.PerHour/4))
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

// A Check returns problems of a filled site that this package cannot find. It sets the field; the caller adds file
// and line.
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

// Parse is Load for bytes that were read before. Problems name file, and a relative domain_dir is relative to its
// folder.
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

// New fills the defaults of a Site created in Go and checks it.
func New(s Site) (*Site, error) {
	s.fill()
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &s, nil
}

// Effective prints the effective file, including defaults. Reading it back gives the same site.
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
