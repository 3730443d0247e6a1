package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

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
