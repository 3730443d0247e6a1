package doctor

import (
	"context"
	"os"
	"strings"

	"slurmgate/apptainer"
	"slurmgate/fault"
)

const imageStore = "image_store"

// imageChecks are the checks of a cluster's image store, and of who can change what runs.
func imageChecks() []Check {
	return []Check{{
		Code: "installed_files", Proves: "Only their owners and groups can change the site file, the domain, the images and the seccomp profile.",
		Where: Gateway, Cluster: true, Early: true, Remedy: "chmod o-w the files and folders, and look at who owns them",
		Look: func(_ context.Context, x *Exam) []Result { return installed(x.Cluster) },
	}, {
		Code: imageStore, Proves: "storage.image_store is a folder that the gateway can read.", Where: Gateway, Cluster: true, Early: true,
		Needs: []string{domainCode}, Remedy: command(fault.Do("image add", "name", "NAME", "file", "FILE")),
		Look: func(_ context.Context, x *Exam) []Result {
			if _, err := apptainer.OpenStore(x.Cluster.Storage.ImageStore); err != nil {
				return failed("", err)
			}
			return ok("%s", x.Cluster.Storage.ImageStore)
		},
	}, {
		Code: "image_lock", Proves: "images.lock.yaml says of each image what is in the store.", Where: Gateway, Cluster: true, Early: true,
		Needs: []string{imageStore}, Remedy: "correct images.lock.yaml, or take it away and add the images again",
		Look: func(_ context.Context, x *Exam) (results []Result) {
			misfits, err := x.Images.Misfits(x.Cluster)
			if err != nil {
				return failed("", err)
			}
			for _, p := range misfits {
				results = append(results, warning(p.Hint, "%s", p.String())...)
			}
			if len(results) == 0 {
				return ok("%s", x.Domain.LockPath())
			}
			return results
		},
	}, {
		Code: "images", Proves: "Each image that a tool names is in the store, with the bytes that the lock names.", Where: Gateway, Alone: true,
		Cluster: true,
		Needs:   []string{imageStore}, Remedy: command(fault.Do("image add", "name", "NAME", "file", "FILE")), Look: lockedImages,
	}}
}

// lockedImages reads every byte of each image that a tool names, once.
func lockedImages(ctx context.Context, x *Exam) (results []Result) {
	store, err := apptainer.OpenStore(x.Cluster.Storage.ImageStore)
	if err != nil {
		return failed("", err)
	}
	seen := map[string]bool{"": true}
	for _, p := range x.Domain.Packs().List() {
		name := p.Image()
		if seen[name] {
			continue
		}
		seen[name] = true
		add := command(fault.Do("image add", "name", name, "file", name+".sif"))
		locked, is := x.Domain.Lock().Lookup(name)
		if !is {
			results = append(results, bad(add, "images.lock.yaml has no image %s", name)...)
			continue
		}
		path, err := store.Verify(ctx, strings.TrimPrefix(locked.Digest, "sha256:"))
		if err != nil {
			r := failed(add, err)
			r[0].Found = "image " + name + ": " + r[0].Found
			results = append(results, r...)
			continue
		}
		if st, err := os.Stat(path); err == nil {
			x.stored = append(x.stored, storedImage{path, st.Size()})
		}
		results = append(results, ok("image %s %s", name, locked.Digest)...)
	}
	if len(results) == 0 {
		return ok("no tool has an image")
	}
	return results
}
