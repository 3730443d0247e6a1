package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
)

type toolCheckCmd struct{ app.CheckArgs }

// Run checks a folder.
func (c toolCheckCmd) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "tool.check", c.CheckArgs, func(w io.Writer, r app.CheckAnswer) {
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

// Image groups the verbs on images.
type Image struct {
	Add    imageAddCmd    `cmd:"" help:"Check a SIF file, copy it into the image store and record its name."`
	Pull   imagePullCmd   `cmd:"" help:"Pull an image from a registry, make a SIF file of it once, and record its name."`
	List   imageListCmd   `cmd:"" help:"List the named images and those in the store."`
	Verify imageVerifyCmd `cmd:"" help:"Hash all images in the store and compare their digests."`
}

type imageAddCmd struct{ app.ImageAddArgs }

// Run adds an image.
func (c imageAddCmd) Run(ctx context.Context, a *Shell) error {
	c.Site = a.Site
	p := stages{bar: bar{shell: a}}
	defer p.end()
	a.Host.Images = a.Ports.Images(p.step)
	return ask(ctx, a, "image.add", c.ImageAddArgs, func(w io.Writer, r app.ImageAddAnswer) {
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

type imageListCmd struct{ app.ImageListArgs }

// Run lists images.
func (c imageListCmd) Run(ctx context.Context, a *Shell) error {
	return a.images(ctx, "image.list", c.ImageListArgs)
}

type imageVerifyCmd struct{ app.ImageListArgs }

// Run hashes images.
func (c imageVerifyCmd) Run(ctx context.Context, a *Shell) error {
	c.Hash = true
	return a.images(ctx, "image.verify", c.ImageListArgs)
}

func (a *Shell) images(ctx context.Context, id string, args app.ImageListArgs) error {
	args.Site = a.Site
	r, err := answer(ctx, a, id, args, func(w io.Writer, r app.ImageListAnswer) { printDocument(w, r.Says(), nothing) })
	if err == nil && args.Hash && r.Bad > 0 {
		return quietFailure{fault.Tool}
	}
	return err
}
