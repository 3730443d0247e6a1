package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/site"
)

type toolCheckCmd struct {
	Dir string `arg:"" help:"Folder with *.tool.yaml files, or a domain." type:"path"`
}

// Run checks a folder.
func (c toolCheckCmd) Run(ctx context.Context, a *Shell) error {
	var r app.CheckAnswer
	if err := a.local(ctx, "tool.check", app.CheckArgs{Dir: c.Dir}, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		if len(r.Tools) == 0 {
			fmt.Fprintf(w, "no tools: %s has no file whose name ends in .tool.yaml\n", r.Dir)
			printNext(w, fault.Do("tool init", "dir", r.Dir))
			return
		}
		fmt.Fprintf(w, "%d tools, no mistakes: %s\n", len(r.Tools), strings.Join(r.Tools, " "))
		for _, m := range r.Missing {
			printNext(w, fault.Do("image add", "name", m))
		}
	})
}

type Image struct {
	Add    imageAddCmd    `cmd:"" help:"Check a SIF file, copy it into the image store and record its name."`
	List   imageListCmd   `cmd:"" help:"List the named images and those in the store."`
	Verify imageVerifyCmd `cmd:"" help:"Hash all images in the store and compare their digests."`
}

type imageAddCmd struct {
	Name    string `arg:"" help:"Name that toolpacks use for the image."`
	File    string `arg:"" help:"SIF file." type:"path"`
	Replace bool   `help:"Replace the image that has this name."`
}

// Run adds an image.
func (c imageAddCmd) Run(ctx context.Context, a *Shell) error {
	s, err := site.Load(a.Site)
	if err != nil {
		return err
	}
	var r app.ImageAddAnswer
	if err := a.onSite(ctx, s, "image.add", app.ImageAddArgs{Site: a.Site, Name: c.Name, File: c.File, Replace: c.Replace}, &r); err != nil {
		return err
	}
	return a.show(r, func(w io.Writer) {
		fmt.Fprintf(w, "%s  %s  %s  %s\n", r.Name, r.Digest, r.Arch, bytesText(r.SizeBytes))
		if r.Changed {
			fmt.Fprintf(w, "recorded in %s. A gateway that is running uses it after a restart.\n", r.Lock)
		}
	})
}

type imageListCmd struct{}

// Run lists images.
func (imageListCmd) Run(ctx context.Context, a *Shell) error {
	return a.images(ctx, "image.list", false)
}

type imageVerifyCmd struct{}

// Run hashes images.
func (imageVerifyCmd) Run(ctx context.Context, a *Shell) error {
	return a.images(ctx, "image.verify", true)
}

func (a *Shell) images(ctx context.Context, tool string, hash bool) error {
	s, err := site.Load(a.Site)
	if err != nil {
		return err
	}
	var r app.ImageListAnswer
	if err := a.onSite(ctx, s, tool, app.ImageListArgs{Site: a.Site, Hash: hash}, &r); err != nil {
		return err
	}
	err = a.show(r, func(w io.Writer) {
		var rows [][]string
		for _, d := range r.Images {
			rows = append(rows, []string{orDash(d.Name), d.Digest, d.Arch, bytesText(d.SizeBytes), d.State})
		}
		table(w, "name|digest|arch|size|state", rows)
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
