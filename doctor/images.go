package doctor

import (
	"context"
	"os"
	"strings"

	"github.com/pkg/sftp"

	"slurmgate/apptainer"
	"slurmgate/fault"
)

const imageStore = "image_store"

// imageChecks returns the checks of a cluster's image store, and of who can change what runs.
func imageChecks() []Check {
	return []Check{{
		Code: "installed_files", Proves: "Only their owners and groups can change the site file, the domain, the images and the seccomp profile.",
		Where: Gateway, Cluster: true, Early: true, Remedy: "chmod o-w the files and folders, and look at who owns them",
		Look: func(_ context.Context, x *Exam) []Result { return x.installed() },
	}, {
		Code: imageStore, Proves: "storage.image_store is a folder that the gateway can read.", Where: Gateway, Cluster: true, Early: true,
		Over: fileSide, Needs: []string{domainCode, sftpServer}, Remedy: command(fault.Do("image add", "name", "NAME", "file", "FILE")),
		Look: func(ctx context.Context, x *Exam) []Result {
			if x.Data != nil {
				return farStore(ctx, x)
			}
			if _, err := apptainer.OpenStore(x.Cluster.Storage.ImageStore); err != nil {
				return failed("", err)
			}
			return ok("%s", x.Cluster.Storage.ImageStore)
		},
	}, {
		Code: "image_lock", Proves: "images.lock.yaml says of each image what is in the store.", Where: Gateway, Cluster: true, Early: true,
		Only: func(w Ways) bool { return w.Data == nil }, Needs: []string{imageStore},
		Remedy: "correct images.lock.yaml, or take it away and add the images again",
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
		Cluster: true, Over: fileSide,
		Needs: []string{imageStore}, Remedy: command(fault.Do("image add", "name", "NAME", "file", "FILE")), Look: lockedImages,
	}}
}

// farStore checks the folder of a far image store.
func farStore(ctx context.Context, x *Exam) []Result {
	f := x.Cluster.Storage.SFTP
	err := x.sftp(ctx, func(c *sftp.Client) error {
		_, err := c.ReadDir(f.ImageStore)
		return err
	})
	if err != nil {
		return farFault(err, f.ImageStore, x.Cluster, "install -d -m 755 "+f.ImageStore)
	}
	return ok("%s on %s", f.ImageStore, f.Host)
}

// lockedImages reads every byte of each image that a tool names, once, where the images are.
func lockedImages(ctx context.Context, x *Exam) (results []Result) {
	verify, err := x.VerifyImages()
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
		if !is && x.Domain.OptionalImage(name) {
			continue // policy_fits warns that its tools are not served
		}
		if !is {
			results = append(results, bad(add, "images.lock.yaml has no image %s", name)...)
			continue
		}
		path, err := verify(ctx, strings.TrimPrefix(locked.Digest, "sha256:"))
		if err != nil {
			r := failed(add, err)
			r[0].Found = "image " + name + ": " + r[0].Found
			results = append(results, r...)
			continue
		}
		size := locked.SizeBytes
		if st, err := os.Stat(path); err == nil && x.Data == nil {
			size = st.Size()
		}
		x.stored = append(x.stored, storedImage{path, size})
		results = append(results, ok("image %s %s", name, locked.Digest)...)
	}
	if len(results) == 0 {
		return ok("no tool has an image")
	}
	return results
}
