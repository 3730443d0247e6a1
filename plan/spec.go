// Package plan has the canonical plan of one Slurm job, SlurmJobSpec v1: its rules, its only byte form (RFC 8785) and
// the identities derived from that.
//
// A [Spec] comes from [Decode], which reads JSON once and strictly, and [Spec.Validate]; all later steps work from
// the canonical bytes. The package knows no filesystem, no Slurm and no clock.
//
// Nouns: spec (the plan), canonical params (what a run's identity is made of), run_id, plan_hash.
package plan

import "strings"

// SpecVersion is the only version of the plan understood here.
const SpecVersion = 1

// Workdir is the directory the program starts in, inside the container.
const Workdir = "/work"

// Spec is SlurmJobSpec v1. The optional values of version 1 are pointers and canonicalise to null; a field added later is absent from the
// canonical bytes when it is not used, so that it changes no run's identity.
type Spec struct {
	Version   int       `json:"version"`
	Resources Resources `json:"resources"`
	Placement Placement `json:"placement"`
	Execution Execution `json:"execution"`
	IO        IO        `json:"io"`
}

// Resources are the resources that the job may use.
type Resources struct {
	TimeLimitSeconds int     `json:"time_limit_seconds"` // 1..604800 seconds
	CPUs             int     `json:"cpus"`               // 1..256
	MemMB            int     `json:"mem_mb"`             // 1..2097152 MiB
	GPUs             *int    `json:"gpus"`               // null or 1..16
	GPUType          *string `json:"gpu_type"`           // null or a GRES type, only with gpus
}

// Placement is where the job goes, in Slurm's terms. In a toolpack's plan it is the pack's request: an empty
// partition or account, or a null QOS, leaves that to the site.
type Placement struct {
	Partition  string  `json:"partition"`
	Account    string  `json:"account"`
	QOS        *string `json:"qos"`
	Constraint *string `json:"constraint"`    // see [IsConstraint]
	Site       *string `json:"site,omitzero"` // null: policy picks one
}

// Text names a placement, without the parts that are left to others.
func (p Placement) Text() string {
	var parts []string
	for _, x := range []struct {
		what string
		name *string
	}{{"site", p.Site}, {"partition", &p.Partition}, {"account", &p.Account}, {"QOS", p.QOS}, {"constraint", p.Constraint}} {
		if x.name != nil && *x.name != "" {
			parts = append(parts, x.what+" "+*x.name)
		}
	}
	return strings.Join(parts, ", ")
}

// Kinds of execution.
const (
	Contained = "container" // a program in a container
	// Scripted: a script of the gateway itself, which bash runs without a container. The digest of its image is that
	// of the script. No caller can ask for one.
	Scripted = "script"
)

// Execution is the program to run, with its container.
type Execution struct {
	Kind      string    `json:"kind"` // [Contained] or [Scripted]
	Container Container `json:"container"`
	Command   Command   `json:"command"`
}

// Resolve returns the placement with the site's defaults for the parts that it leaves to the site.
func (p Placement) Resolve(site Placement) Placement {
	if p.Partition == "" {
		p.Partition = site.Partition
	}
	if p.Account == "" {
		p.Account = site.Account
	}
	if p.QOS == nil {
		p.QOS = site.QOS
	}
	return p
}

// Container names the image by the SHA-256 of its SIF file.
type Container struct {
	Engine         string `json:"engine"` // "apptainer"; "bash" for a script
	Image          string `json:"image"`  // sha256:<64 hex>, or name@sha256:<64 hex>
	NetworkMode    string `json:"network_mode"`
	ReadonlyRootfs bool   `json:"readonly_rootfs"`
}

// Command is the program. Argv is passed unchanged; no shell sees it.
type Command struct {
	Argv    []string          `json:"argv"`
	Workdir string            `json:"workdir"`
	Env     map[string]string `json:"env"`
	// the src_relpath of the declared output that receives standard output; absent when none does
	Stdout *string `json:"stdout,omitzero"`
	// Pipe lists the programs that follow Argv in a pipe: each reads the output of the previous one. Stdout is the
	// output of the last one.
	Pipe [][]string `json:"pipe,omitempty"`
	// the dest_relpath of the input that the first program reads from standard input; absent when there is nothing to read
	Stdin *string `json:"stdin,omitzero"`
}

// Programs returns the command lines of all programs, in the order of the pipe.
func (c Command) Programs() [][]string { return append([][]string{c.Argv}, c.Pipe...) }

// IO lists the inputs and the outputs.
type IO struct {
	Inputs  []Input  `json:"inputs"`
	Outputs []Output `json:"outputs"`
}

// Input is one artifact placed in the workspace.
type Input struct {
	Role           string `json:"role"`
	ArtifactID     string `json:"artifact_id,omitzero"` // absent from a toolpack's canonical params: the program sees the bytes
	ChecksumSHA256 string `json:"checksum_sha256"`      // 64 hex
	DestRelpath    string `json:"dest_relpath"`         // in/...
	// Directory: the artifact is of type [Directory], and dest_relpath is the folder that holds its files.
	Directory bool `json:"directory,omitzero"`
}

// Output is one declared output: a file, or a folder where its type is [Directory].
type Output struct {
	Role       string `json:"role"`
	SrcRelpath string `json:"src_relpath"` // out/...
	Type       string `json:"type"`
	Label      string `json:"label"`
}

// ImageDigest returns the 64 hex digits of the pinned image. The spec must be valid.
func (s Spec) ImageDigest() string {
	return s.Execution.Container.Image[len(s.Execution.Container.Image)-64:]
}
