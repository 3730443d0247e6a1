package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"slurmgate/app"
	"slurmgate/run"
)

// Sites is the verb that lists the sites.
type Sites struct{}

// Run lists the sites.
func (Sites) Run(ctx context.Context, a *Shell) error {
	return ask(ctx, a, "site.list", nothing, func(w io.Writer, l app.SiteList) {
		list(w, "site|slurm|files|state|unfinished runs|slurm answered|rpc/min used|left now|partition|accounting", l.Sites,
			func(s app.SiteRow) []string {
				used, left, answered := "-", "-", "-"
				if s.Answered != nil {
					answered = dateTime(*s.Answered)
				}
				if b := s.Budget; b != nil {
					used, left = fmt.Sprintf("%d of %d", b.LastMinute, b.PerMinute), fmt.Sprint(b.Left)
				}
				return []string{s.Site, s.Transport, s.Files, conditionOf(s), runsOf(s), answered, used, left,
					text(s.Partition), yesNo(s.Accounting)}
			})
		for _, s := range l.Sites {
			for _, line := range aboutSite(s) {
				fmt.Fprintf(w, "%s: %s\n", s.Site, line)
			}
			printNext(w, s.NextSteps...)
		}
		if l.Pick != nil {
			fmt.Fprintf(w, "policy picks the site of a run that names none: %s\n", *l.Pick)
		}
	})
}

// conditionOf is a site's state, with since when or until when.
func conditionOf(s app.SiteRow) string {
	text := string(s.State)
	switch {
	case s.Since != nil:
		text += " since " + dateTime(*s.Since)
	case s.Until != nil:
		text += " until " + dateTime(*s.Until)
	}
	if !s.Allowed {
		text += ", not allowed"
	}
	return text
}

func runsOf(s app.SiteRow) string {
	var out []string
	for _, phase := range slices.Sorted(maps.Keys(s.Runs)) {
		out = append(out, fmt.Sprintf("%d %s", s.Runs[phase], phase))
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}

// aboutSite are the lines below the table: why the site is not ready, what to do, and what its connections are like.
func aboutSite(s app.SiteRow) (lines []string) {
	switch {
	case s.Drain != nil && s.Drain.Queue:
		lines = append(lines, s.Drain.String()+"; new runs wait")
	case s.Drain != nil:
		lines = append(lines, s.Drain.String()+"; new runs are refused")
	}
	switch {
	case s.Problem != nil:
		lines = append(lines, *s.Problem)
	case s.Code != nil:
		lines = append(lines, *s.Code+": runs wait; an administrator sees why")
	}
	if s.Budget != nil && s.Budget.Shared != nil {
		b := s.Budget.Shared
		line := fmt.Sprintf("shares a budget of %d RPCs per minute with the other gateways of its host, %d left now", b.PerMinute, b.Left)
		if b.Problem != nil {
			line = fmt.Sprintf("the shared budget of %d RPCs per minute is not used: %s", b.PerMinute, *b.Problem)
		}
		lines = append(lines, line)
	}
	for _, p := range s.Pauses {
		if p.What != "site" || s.State != run.SitePaused {
			lines = append(lines, fmt.Sprintf("no jobs to %s until %s: %s", p.What, dateTime(p.Until), p.Code))
		}
	}
	for _, l := range s.Links {
		if l.To == "users" {
			signer := "the signer answers"
			if !l.Up {
				signer = "the signer does not answer, so nobody else can be logged in"
			}
			lines = append(lines, fmt.Sprintf("runs belong to their users: %d logged in now, %d refused at the last login; %s", l.Users, l.Refused,
				signer))
			continue
		}
		is, times := "up", "times"
		if !l.Up {
			is = "down (it is made again when it is needed)"
		}
		if l.Losses == 1 {
			times = "time"
		}
		lines = append(lines, fmt.Sprintf("connection to %s is %s, lost %d %s", l.To, is, l.Losses, times))
	}
	return lines
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return "-"
	case *b:
		return "yes"
	}
	return "no"
}

// printChoice prints the site that a run is on or would go to, why, and what was in the way at the others that policy's rule looked at.
func printChoice(w io.Writer, p run.Preview) {
	fmt.Fprintf(w, "site     %s", p.Site)
	if p.SiteWhy != "" {
		fmt.Fprintf(w, "  (%s)", p.SiteWhy)
	}
	fmt.Fprintln(w)
	for _, s := range p.Sites {
		if s.Site != p.Site {
			fmt.Fprintf(w, "         not %s: %s\n", s.Site, s.Why)
		}
	}
}
