package app

import (
	"context"
	"slices"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// Images is the image store of a site, with the image lock of its domain.
type Images interface {
	// Misfits lists differences between lock and store; none while the store does not exist yet.
	Misfits(s *site.Site) ([]fault.Problem, error)
	// Add checks a SIF file, copies it into the store and records it in the lock.
	Add(ctx context.Context, s *site.Site, a ImageAddArgs) (ImageAddAnswer, error)
	// Pull downloads an image of a registry, converts it to a SIF file unless it is one, and adds that.
	Pull(ctx context.Context, s *site.Site, a ImagePullArgs) (ImagePullAnswer, error)
	// List lists the named images and those that are only in the store; with hash it reads every byte. cluster
	// selects one cluster; empty: all of them.
	List(ctx context.Context, s *site.Site, cluster string, hash bool) (ImageListAnswer, error)
}

// images returns the operations on a site's files. They work in the shell's process: there may be no gateway yet, or
// one that does not start.
func (h Host) images() []Operation {
	return []Operation{{
		ID: "image.add", Title: "Add an image", Verb: "image add",
		Description: "Checks a SIF file, copies it into the image store and records its name and digest in images.lock.yaml.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Site, Faces: shellOnly,
		Limit: time.Hour, // a large image is hashed and copied while the call is open
		Does:  does(h.addImage),
	}, {
		ID: "image.pull", Title: "Pull an image", Verb: "image pull",
		Description: "Downloads an image of a registry by its digest, makes a SIF file of it once, and adds that under a name.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Site, Faces: shellOnly,
		Limit: 6 * time.Hour, // a large image on a slow line
		Does:  does(h.pullImage),
	}, {
		ID: "image.list", Title: "Images", Verb: "image list",
		Description: "Lists the named images and those in the image store.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Site, Faces: shellOnly,
		Limit: 6 * time.Hour,
		Does:  does(h.listImages),
	}, {
		ID: "image.verify", Title: "Images", Verb: "image verify",
		Description: "Lists the named images and those in the image store.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Capability: gate.CapRead, Needs: Site, Faces: shellOnly,
		Limit: 6 * time.Hour, // every byte of every image
		Does:  does(h.listImages),
	}, {
		ID: "site.doctor", Title: "Check the site", Verb: "doctor",
		Description: "Checks the site end to end, including compute nodes.",
		Effect:      gate.Execute, Repeat: gate.Idempotent, Capability: gate.CapSlurm, Needs: Site, Faces: shellOnly,
		Limit: 10 * time.Minute,
		Does: does(func(ctx context.Context, _ gate.Call, a DoctorArgs) (DoctorAnswer, error) {
			return h.Examine(ctx, a), nil
		}),
	}}
}

func (h Host) addImage(ctx context.Context, _ gate.Call, a ImageAddArgs) (ImageAddAnswer, error) {
	if ref, ok := plan.RegistryImage(a.Source); ok {
		a.Source = "docker://" + ref
	} else if a.Source != "" {
		return ImageAddAnswer{}, fault.Invalid("", fault.Problem{Code: "IMAGE-SOURCE", Field: "source",
			Rule: "docker://REPOSITORY@sha256:<64 hex digits>",
			Msg:  fault.Quote(a.Source, 128) + " does not name an image of a registry by its digest",
			Hint: "a tag may be moved, so name the image by its digest"})
	}
	s, err := site.Load(a.Site)
	if err != nil {
		return ImageAddAnswer{}, err
	}
	// Refuse a broken domain; missing images are allowed because this operation adds them.
	if _, _, err := ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
		return ImageAddAnswer{}, err
	}
	return h.Images.Add(ctx, s, a)
}

func (h Host) pullImage(ctx context.Context, _ gate.Call, a ImagePullArgs) (ImagePullAnswer, error) {
	if err := toolpack.CheckImageName(a.Name); err != nil {
		return ImagePullAnswer{}, err
	}
	s, err := site.Load(a.Site)
	if err != nil {
		return ImagePullAnswer{}, err
	}
	if _, _, err := ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
		return ImagePullAnswer{}, err
	}
	return h.Images.Pull(ctx, s, a)
}

// listImages lists the named images and those that are only in the store; with hash it reads every byte.
func (h Host) listImages(ctx context.Context, _ gate.Call, a ImageListArgs) (ImageListAnswer, error) {
	s, err := site.Load(a.Site)
	if err != nil {
		return ImageListAnswer{}, err
	}
	return h.Images.List(ctx, s, a.Cluster, a.Hash)
}

// ImageStoreArgs select the image stores of a site.
type ImageStoreArgs struct {
	Site    string `json:"site" kind:"path" kong:"-"`
	Cluster string `json:"cluster,omitzero" max:"64" name:"site-name" placeholder:"NAME" help:"Only the image store of this cluster, where the site file has several."`
}

// ImageAddArgs are the arguments of image.add.
type ImageAddArgs struct {
	Name    string `json:"name" min:"1" max:"128" arg:"" help:"Name that toolpacks use for the image."`
	File    string `json:"file" kind:"path" arg:"" help:"SIF file." type:"path"`
	Source  string `json:"source,omitzero" min:"1" max:"512" placeholder:"IMAGE" help:"The image of a registry that the file was made from: docker://REPOSITORY@sha256:DIGEST. Plans may name it so."`
	Replace bool   `json:"replace,omitzero" help:"Replace the image that has this name."`
	ImageStoreArgs

	SourceDigest string `json:"-" kong:"-"` // of a pulled image, see [toolpack.LockedImage]
	MadeBy       string `json:"-" kong:"-"`
}

// ImagePullArgs are the arguments of image.pull.
type ImagePullArgs struct {
	Name    string `json:"name" min:"1" max:"128" arg:"" help:"Name that toolpacks use for the image."`
	Source  string `json:"source" min:"1" max:"512" arg:"" help:"docker://REPOSITORY@sha256:DIGEST or docker://REPOSITORY:TAG; oras://… in the same way; https://… of a SIF file."` // docker://…, oras://…, or https://… of a SIF file
	Digest  string `json:"digest,omitzero" max:"128" placeholder:"sha256:DIGEST" help:"SHA-256 of the file at an https:// source; with a tag what it must mean."`
	Arch    string `json:"arch,omitzero" max:"32" placeholder:"ARCH" help:"Architecture, such as amd64 or arm64. Default: that of the sites' nodes."` // in Go's spelling
	Replace bool   `json:"replace,omitzero" help:"Replace the image that has this name."`
	Rebuild bool   `json:"rebuild,omitzero" help:"Only make the image again, and compare the bytes with those that images.lock.yaml names."`
	ImageStoreArgs
}

// ImagePullAnswer is the answer of image.pull.
type ImagePullAnswer struct {
	ImageAddAnswer
	Pulled   bool     `json:"pulled"`            // false: the image existed already
	Same     bool     `json:"same,omitzero"`     // with rebuild: the result has the bytes that the lock names
	Warnings []string `json:"warnings,omitzero"` // parts of the image that are not in the SIF file
}

// ImageDoc is an image: named by the lock, in the store, or both.
type ImageDoc struct {
	Site      string `json:"site,omitempty"` // the site of the store, where there are several
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	Arch      string `json:"arch"`
	SizeBytes int64  `json:"size_bytes"`
	Source    string `json:"source"`
	State     string `json:"state"` // stored, missing, ok, or what is wrong

	SourceDigest string `json:"source_digest,omitzero"` // of a pulled image: its manifest, or the SIF file
	MadeBy       string `json:"made_by,omitzero"`       // the program that built the SIF file from its layers
}

// ImageAddAnswer is the answer of image.add.
type ImageAddAnswer struct {
	ImageDoc
	Changed bool   `json:"changed"` // false: the name already had this digest
	Lock    string `json:"lock_file"`
	Note    string `json:"note,omitzero"` // what could not be checked
}

// ImageListArgs are the arguments of image.list and image.verify.
type ImageListArgs struct {
	ImageStoreArgs
	Hash bool `json:"hash,omitzero" kong:"-"`
}

// ImageListAnswer is the answer of image.list and image.verify.
type ImageListAnswer struct {
	Total  int        `json:"total"`
	Images []ImageDoc `json:"images"`
	Bad    int        `json:"bad"`
}

// CheckStatus is the result of a check.
type CheckStatus string

// The results of a check, from good to bad.
const (
	CheckOK      CheckStatus = "ok"
	CheckWarning CheckStatus = "warning" // it works, but not as it should
	CheckUnknown CheckStatus = "unknown" // the check could not run
	CheckFault   CheckStatus = "fault"   // something does not work
)

// Worse reports whether a result is worse than another; any result is worse than an empty one.
func (s CheckStatus) Worse(than CheckStatus) bool {
	order := []CheckStatus{"", CheckOK, CheckWarning, CheckUnknown, CheckFault}
	return slices.Index(order, s) > slices.Index(order, than)
}

// Finding is one result of a check.
type Finding struct {
	Site   string      `json:"site,omitempty"` // the cluster, where there are several
	User   string      `json:"user,omitempty"` // the user who makes it true, if not the service's user
	Code   string      `json:"code"`           // of the check; stable
	Where  string      `json:"where"`          // gateway, slurmctld, node
	Node   string      `json:"node,omitempty"` // on which it was found
	Status CheckStatus `json:"status"`
	Found  string      `json:"found"`
	Remedy string      `json:"remedy,omitempty"`
	Stops  bool        `json:"stops,omitempty"` // a fault that prevents the gateway from starting
}

// Text returns a finding of start-up in one line.
func (f Finding) Text() string {
	text := f.Code + ": " + f.Found
	if f.Site != "" {
		text = f.Site + ": " + text
	}
	if f.Stops {
		text = "the gateway will not start: " + text
	}
	if f.Remedy != "" {
		text += ". Next: " + f.Remedy
	}
	return text
}

// DoctorAnswer is the answer of site.doctor.
type DoctorAnswer struct {
	Site     string    `json:"site"`
	Findings []Finding `json:"findings"`
	Faults   int       `json:"faults"`
	Unknown  int       `json:"unknown"` // checks that could not run
	Warnings int       `json:"warnings"`
}

// Count adds a result to the counts.
func (a *DoctorAnswer) Count(s CheckStatus) {
	switch s {
	case CheckFault:
		a.Faults++
	case CheckUnknown:
		a.Unknown++
	case CheckWarning:
		a.Warnings++
	}
}

// CheckDoc describes a check.
type CheckDoc struct {
	Code   string `json:"code"`
	Where  string `json:"where"`
	Proves string `json:"proves"`
	Remedy string `json:"remedy"`
	Early  bool   `json:"early"` // start-up and config check make it too
}

// DoctorArgs are the arguments of site.doctor.
type DoctorArgs struct {
	Site    string `json:"site" kind:"path"`
	NoJobs  bool   `json:"no_jobs,omitzero"`
	Cluster string `json:"cluster,omitzero" max:"64"`       // only this cluster; empty: all
	User    string `json:"user,omitzero" min:"1" max:"256"` // check as this user too, where jobs belong to their callers

	Nodes    string `json:"nodes,omitzero" max:"4000"` // only these nodes, as Slurm writes lists of them; empty: one in each partition
	AllNodes bool   `json:"all_nodes,omitzero"`        // all nodes of the partitions that policy allows
}
