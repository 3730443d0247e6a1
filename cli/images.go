package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
)

type toolCheckCmd struct {
	Dir string `arg:"" help:"Folder with *.tool.yaml files, or a domain." type:"path"`
}

// Run checks a folder.
func (c toolCheckCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.check", app.CheckArgs{Dir: c.Dir}, func(w io.Writer, r app.CheckAnswer) {
		if len(r.Tools) == 0 {
			fmt.Fprintf(w, "no tools: %s has no file whose name ends in .tool.yaml, and no manifest that lists a service worker\n", r.Dir)
			printNext(w, fault.Do("tool init", "dir", r.Dir))
			return
		}
		fmt.Fprintf(w, "%d tools, no mistakes: %s\n", len(r.Tools), strings.Join(r.Tools, " "))
		for _, note := range r.Notes {
			fmt.Fprintln(w, "warning: "+note)
		}
		for _, m := range r.Missing {
			printNext(w, fault.Do("image add", "name", m))
		}
	})
}

// Image are the verbs on images.
type Image struct {
	Add    imageAddCmd    `cmd:"" help:"Check a SIF file, copy it into the image store and record its name."`
	Pull   imagePullCmd   `cmd:"" help:"Pull an image from a registry, make a SIF file of it once, and record its name."`
	List   imageListCmd   `cmd:"" help:"List the named images and those in the store."`
	Verify imageVerifyCmd `cmd:"" help:"Hash all images in the store and compare their digests."`
}

// imageStoreOf chooses an image store.
type imageStoreOf struct {
	Cluster string `name:"site-name" placeholder:"NAME" help:"Only the image store of this cluster, where the site file has several."`
}

type imageAddCmd struct {
	Name    string `arg:"" help:"Name that toolpacks use for the image."`
	File    string `arg:"" help:"SIF file." type:"path"`
	Source  string `placeholder:"IMAGE" help:"The image of a registry that the file was made from: docker://REPOSITORY@sha256:DIGEST. Plans may name it so."`
	Replace bool   `help:"Replace the image that has this name."`
	imageStoreOf
}

// Run adds an image.
func (c imageAddCmd) Run(ctx context.Context, a *Shell) error {
	args := app.ImageAddArgs{Site: a.Site, Name: c.Name, File: c.File, Source: c.Source, Replace: c.Replace, Cluster: c.Cluster}
	p := stages{bar: bar{shell: a}}
	defer p.end()
	a.Host.Images = a.Ports.Images(p.step)
	return ask(ctx, a, "image.add", args, func(w io.Writer, r app.ImageAddAnswer) {
		p.end()
		fmt.Fprintf(w, "%s  %s  %s  %s\n", r.Name, r.Digest, r.Arch, bytesText(r.SizeBytes))
		if r.Note != "" {
			fmt.Fprintln(w, r.Note)
			printNext(w, fault.Do("doctor"))
		}
		if r.Changed {
			fmt.Fprintf(w, "recorded in %s. A gateway that is running uses it after: systemctl reload slurmgate\n", r.Lock)
		}
	})
}

type imageListCmd struct{ imageStoreOf }

// Run lists images.
func (c imageListCmd) Run(ctx context.Context, a *Shell) error {
	return a.images(ctx, "image.list", c.Cluster, false)
}

type imageVerifyCmd struct{ imageStoreOf }

// Run hashes images.
func (c imageVerifyCmd) Run(ctx context.Context, a *Shell) error {
	return a.images(ctx, "image.verify", c.Cluster, true)
}

func (a *Shell) images(ctx context.Context, id, cluster string, hash bool) error {
	r, err := answer(ctx, a, id, app.ImageListArgs{Site: a.Site, Hash: hash, Cluster: cluster}, func(w io.Writer, r app.ImageListAnswer) {
		list(w, "name|digest|arch|size|state|source", r.Images, func(d app.ImageDoc) []string {
			if d.Site != "" {
				d.State = d.Site + ": " + d.State
			}
			return []string{orDash(d.Name), d.Digest, d.Arch, bytesText(d.SizeBytes), d.State, orDash(d.Source)}
		})
		footer(w, len(r.Images), exactly(int64(r.Total)), "images")
		if r.Bad > 0 {
			fmt.Fprintln(w, "repair an image from the original file")
			printNext(w, fault.Do("image add"))
		}
	})
	if err == nil && hash && r.Bad > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}
