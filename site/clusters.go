package site

import (
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"slurmgate/fault"
	"slurmgate/policy/yamldoc"
)

// Local is the name of the site that is the gateway's own host. It needs no entry: policy says what may run there.
const Local = "local"

// clusterKeys are the keys that describe a cluster. The site file has them if there is one cluster; otherwise each
// cluster's file has them.
var clusterKeys = []string{"site", "slurm", "storage", "apptainer", "watch", "budget"}

// Clusters returns the sites that have a Slurm, in the order of the site file. Each has the gateway's part of the
// site file too.
func (s *Site) Clusters() []*Site {
	if len(s.clusters) == 0 {
		return []*Site{s}
	}
	return s.clusters
}

// All returns the clusters and the gateway's own host.
func (s *Site) All() []*Site { return append(slices.Clone(s.Clusters()), s.LocalSite()) }

// Cluster returns the cluster with a name, or nil.
func (s *Site) Cluster(name string) *Site {
	for _, c := range s.Clusters() {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Names returns the names of the clusters, in the order of the site file.
func (s *Site) Names() (names []string) {
	for _, c := range s.Clusters() {
		names = append(names, c.Name)
	}
	return names
}

// LocalSite returns the gateway's own host as a site: it uses the folders and the Apptainer of the first cluster, or
// folders of the gateway if those are out of reach or belong to users. Its processes always belong to the gateway's
// user.
func (s *Site) LocalSite() *Site {
	local := *s.Clusters()[0]
	if local.FarFiles() || local.AsCaller() {
		local.Storage.RunsDir = filepath.Join(s.Gateway.StateDir, "local-runs")
	}
	if local.FarFiles() {
		local.Storage.Transport, local.Storage.SFTP, local.Storage.Login = TransportShared, nil, nil
		local.Storage.ImageStore, local.Storage.InPlace = s.Gateway.ImageStore, nil
	}
	local.Slurm.RunAs, local.Slurm.Caller = RunAsSelf, nil
	if local.Storage.BindArtifacts != "" {
		local.Storage.BindArtifacts = s.Gateway.ArtifactDir
	}
	local.Name = Local
	return &local
}

// File returns the name of the file that describes the cluster; empty for a Site created in Go.
func (s *Site) File() string { return s.file }

// readClusters reads the files that the site file names, and returns the problems in them.
func (s *Site) readClusters() (problems []fault.Problem) {
	if len(s.Sites) == 0 {
		return nil
	}
	add := func(of *Site, code, field, rule, msg, hint string) {
		where := of.at[field]
		problems = append(problems, fault.Problem{Code: code, Field: field, Rule: rule, Msg: msg, Hint: hint, File: of.file, Line: where.line,
			Column: where.column})
	}
	for _, key := range clusterKeys {
		if _, here := s.at[key]; here {
			add(s, "SITE-CLUSTER", key, "not together with sites", "this file names the files of its clusters, and describes a cluster itself",
				"move it to one of those files")
		}
	}
	for i, name := range s.Sites {
		file := name
		if !filepath.IsAbs(file) {
			file = filepath.Join(s.base, file)
		}
		data, err := read(file)
		if err != nil {
			add(s, "SITE-FILE", fmt.Sprintf("sites[%d]", i), "a file that this user may read", fault.Prose(err), "")
			continue
		}
		c := *s // the gateway's part
		c.cluster, c.file, c.at, c.Sites, c.clusters, c.Version = true, file, map[string]place{}, nil, nil, 0
		found, _ := c.parse(data)
		problems = append(problems, found...)
		for _, other := range s.clusters {
			if other.Name == c.Name {
				add(&c, "SITE-NAME", "site", "a unique name", fmt.Sprintf("%s is also the name of %s", c.Name, other.file), "")
			}
			if a, b, same := sameFolder(&c, other); same {
				add(&c, "SITE-PATH-OVERLAP", "storage.runs_dir", "a folder of the cluster's own",
					a+" overlaps with "+b+", which is that of "+other.Name,
					"choose separate folders")
			}
		}
		s.clusters = append(s.clusters, &c)
	}
	return problems
}

// foreign reports whether a key belongs in another file than this one.
func (s *Site) foreign(key string) bool {
	return key != "version" && (s.cluster != slices.Contains(clusterKeys, key))
}

// ownPart removes from a printed site the settings of other files.
func (s *Site) ownPart(doc *yaml.Node) *yaml.Node {
	if !s.cluster && len(s.Sites) == 0 {
		return doc
	}
	var own []*yaml.Node
	for i := 0; i < len(doc.Content); i += 2 {
		if !s.foreign(doc.Content[i].Value) {
			own = append(own, doc.Content[i:i+2]...)
		}
	}
	doc.Content = own
	return doc
}

// topKeys returns the keys that a file may have: all of them, or those of a cluster.
func (s *Site) topKeys() (known map[string][]int, order []string) {
	known, order = yamldoc.Fields(reflect.TypeFor[Site]())
	if s.cluster {
		order = slices.DeleteFunc(order, s.foreign)
		for key := range known {
			if s.foreign(key) {
				delete(known, key)
			}
		}
	}
	return known, order
}

// Title returns the names of the clusters, for people.
func (s *Site) Title() string { return strings.Join(s.Names(), ", ") }
