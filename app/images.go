package app

import (
	"context"
	"fmt"
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
	// Misfits says where lock and store do not agree; nothing while the store is not there yet.
	Misfits(s *site.Site) ([]fault.Problem, error)
	// Add checks a SIF file, copies it into the store and records it in the lock.
	Add(ctx context.Context, s *site.Site, a ImageAddArgs) (ImageAddAnswer, error)
	// List lists the named images and those that are only in the store; with hash it reads every byte.
	// cluster is the only one to look at; empty: all of them.
	List(ctx context.Context, s *site.Site, cluster string, hash bool) (ImageListAnswer, error)
}

// images are the operations on a site's files. They work in the shell's process: there may be no gateway yet, or none that starts.
func (h Host) images() []Operation {
	at, hash, cluster := prop("site", pathSchema), prop("hash", yesNo), prop("cluster", `{"type":"string","maxLength":64}`)
	return []Operation{{
		ID: "image.add", Title: "Add an image", Verb: "image add",
		Description: "Checks a SIF file, copies it into the image store and records its name and digest in images.lock.yaml.",
		Effect:      gate.Write, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Site, Faces: shellOnly,
		Limit: time.Hour, // a large image is hashed and copied while the call is open
		Input: object("site name file", at, prop("name", `{"type":"string","minLength":1,"maxLength":128}`), prop("file", pathSchema),
			prop("source", `{"type":"string","minLength":1,"maxLength":512}`), prop("replace", yesNo), cluster),
		Does: does(h.addImage),
	}, {
		ID: "image.list", Title: "Images", Verb: "image list",
		Description: "Lists the named images and those in the image store.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Site, Faces: shellOnly,
		Limit: 6 * time.Hour,
		Input: object("site", at, hash, cluster), Does: does(h.listImages),
	}, {
		ID: "image.verify", Title: "Images", Verb: "image verify",
		Description: "Lists the named images and those in the image store.",
		Effect:      gate.Read, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapRead, Needs: Site, Faces: shellOnly,
		Limit: 6 * time.Hour, // every byte of every image
		Input: object("site", at, hash, cluster), Does: does(h.listImages),
	}, {
		ID: "site.doctor", Title: "Check the site", Verb: "doctor",
		Description: "Checks the site end to end, including compute nodes.",
		Effect:      gate.Execute, Repeat: gate.Idempotent, Outcome: gate.BestEffort, Capability: gate.CapSlurm, Needs: Site, Faces: shellOnly,
		Limit: 10 * time.Minute,
		Input: object("site", at, prop("no_jobs", yesNo), cluster, prop("user", `{"type":"string","minLength":1,"maxLength":256}`),
			prop("nodes", `{"type":"string","maxLength":4000}`), prop("all_nodes", yesNo)),
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
			Rule: "docker://REPOSITORY@sha256:<64 hex digits>", Msg: fmt.Sprintf("got %.128q", a.Source),
			Hint: "a tag may be moved, so name the image by its digest"})
	}
	s, err := site.Load(a.Site)
	if err != nil {
		return ImageAddAnswer{}, err
	}
	// A broken domain is not added to; missing images are what this operation is for.
	if _, _, err := ReadDomain(s.DomainDir, toolpack.AllowMissingImages); err != nil {
		return ImageAddAnswer{}, err
	}
	return h.Images.Add(ctx, s, a)
}

// listImages lists the named images and those that are only in the store; with hash it reads every byte.
func (h Host) listImages(ctx context.Context, _ gate.Call, a ImageListArgs) (ImageListAnswer, error) {
	s, err := site.Load(a.Site)
	if err != nil {
		return ImageListAnswer{}, err
	}
	return h.Images.List(ctx, s, a.Cluster, a.Hash)
}

// ImageAddArgs are the arguments of image.add.
type ImageAddArgs struct {
	Site    string `json:"site"`
	Name    string `json:"name"`
	File    string `json:"file"`
	Source  string `json:"source,omitzero"` // docker://REPOSITORY@sha256:<64 hex>: what the file was made from
	Replace bool   `json:"replace,omitzero"`
	Cluster string `json:"cluster,omitzero"` // only its image store
}

// ImageDoc is an image: named by the lock, in the store, or both.
type ImageDoc struct {
	Site      string `json:"site,omitempty"` // whose store it is, where there are several
	Name      string `json:"name"`
	Digest    string `json:"digest"`
	Arch      string `json:"arch"`
	SizeBytes int64  `json:"size_bytes"`
	Source    string `json:"source"`
	State     string `json:"state"` // stored, missing, ok, or what is wrong
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
	Site    string `json:"site"`
	Hash    bool   `json:"hash,omitzero"`
	Cluster string `json:"cluster,omitzero"` // only its image store
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
	CheckUnknown CheckStatus = "unknown" // the check could not look
	CheckFault   CheckStatus = "fault"   // something does not work
)

// Worse reports whether a result is worse than another one; any is worse than none.
func (s CheckStatus) Worse(than CheckStatus) bool {
	order := []CheckStatus{"", CheckOK, CheckWarning, CheckUnknown, CheckFault}
	return slices.Index(order, s) > slices.Index(order, than)
}

// Finding is one thing that a check found.
type Finding struct {
	Site   string      `json:"site,omitempty"` // the cluster, where there are several
	User   string      `json:"user,omitempty"` // as whom it was found, where that is not the service's user
	Code   string      `json:"code"`           // of the check; stable
	Where  string      `json:"where"`          // gateway, slurmctld, node
	Node   string      `json:"node,omitempty"` // on which it was found
	Status CheckStatus `json:"status"`
	Found  string      `json:"found"`
	Remedy string      `json:"remedy,omitempty"`
	Stops  bool        `json:"stops,omitempty"` // a fault with which the gateway does not start
}

// Text is a finding of start-up in a line.
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
	Unknown  int       `json:"unknown"` // checks that could not look
	Warnings int       `json:"warnings"`
}

// Count counts a result.
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
	Early  bool   `json:"early"` // start-up and config check make it, too
}

// DoctorArgs are the arguments of site.doctor.
type DoctorArgs struct {
	Site    string `json:"site"`
	NoJobs  bool   `json:"no_jobs,omitzero"`
	Cluster string `json:"cluster,omitzero"` // only this cluster; empty: all
	User    string `json:"user,omitzero"`    // look as this user too, where jobs belong to their callers

	Nodes    string `json:"nodes,omitzero"`     // only these nodes, as Slurm writes lists of them; empty: one in each partition
	AllNodes bool   `json:"all_nodes,omitzero"` // all nodes of the partitions that policy allows
}
