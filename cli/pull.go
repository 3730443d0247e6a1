package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"slurmgate/app"
	"slurmgate/fault"
)

type imagePullCmd struct{ app.ImagePullArgs }

// Run pulls an image.
func (c imagePullCmd) Run(ctx context.Context, a *Shell) error {
	c.Site = a.Site
	p := stages{bar: bar{shell: a}}
	defer p.end()
	a.Host.Images = a.Ports.Images(p.step)
	return ask(ctx, a, "image.pull", c.ImagePullArgs, func(w io.Writer, r app.ImagePullAnswer) {
		p.end()
		fmt.Fprintf(w, "image      %s\ndigest     %s\narch       %s\nsize       %s\nsource     %s\n", r.Name, r.Digest, r.Arch,
			bytesText(r.SizeBytes), r.Source)
		if r.MadeBy != "" {
			fmt.Fprintf(w, "made by    %s\n", r.MadeBy)
		}
		for _, text := range r.Warnings {
			fmt.Fprintln(w, "warning: "+text)
		}
		if r.Note != "" {
			fmt.Fprintln(w, r.Note)
		}
		switch {
		case c.Rebuild:
			fmt.Fprintln(w, "made again: the same bytes")
		case !r.Changed:
			fmt.Fprintf(w, "nothing changed: %s has this image already\n", r.Lock)
		case !r.Pulled:
			fmt.Fprintln(w, "the image store had it already")
		}
		if r.Changed {
			fmt.Fprintf(w, "recorded in %s. A gateway that is running uses it after: systemctl reload slurmgate\n", r.Lock)
			printNext(w, fault.Do("image verify"))
		}
	})
}

// stages shows how far something of several stages is: on a terminal in one line, elsewhere in one for each stage and one every ten
// seconds.
type stages struct {
	bar
	stage string
	began time.Time
	first int64 // bytes that were there when the stage began
	said  time.Time
}

const sayEvery = 10 * time.Second

func (s *stages) step(stage string, done, of int64) {
	now := time.Now()
	fresh := stage != s.stage
	if fresh {
		s.stage, s.began, s.first = stage, now, done
	}
	text := stage
	if of > 0 || done > 0 {
		text += " " + rateText(done, of, done-s.first, now.Sub(s.began))
	}
	if s.shell.tty {
		s.print(text)
	} else if !s.shell.JSON && (fresh || now.Sub(s.said) >= sayEvery) {
		s.said = now
		fmt.Fprintln(s.shell.Err, text)
	}
}

// rateText returns how many bytes of how many are done, at which rate, and how long the rest takes at that rate. lately
// were done in took.
func rateText(done, of, lately int64, took time.Duration) string {
	text := bytesText(done)
	if of > 0 {
		text += " of " + bytesText(of)
	}
	if took < time.Second || lately <= 0 {
		return text
	}
	rate := float64(lately) / took.Seconds()
	text += ", " + bytesText(int64(rate)) + "/s"
	if of > done {
		text += ", " + (time.Duration(float64(of-done)/rate) * time.Second).String() + " left"
	}
	return text
}
