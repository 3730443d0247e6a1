package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

// Doctor is the verb that checks the site.
type Doctor struct {
	NoJobs   bool   `help:"Do not submit probe jobs; compute nodes are then not checked."`
	SiteName string `help:"Check only this cluster; by default all of the site file." placeholder:"NAME"`
}

// Run checks the site and prints the findings. A site whose record cannot be written is checked too, but no job is started there.
func (c Doctor) Run(ctx context.Context, a *Shell) error {
	var r app.DoctorAnswer
	err := a.examine(ctx, app.DoctorArgs{Site: a.Site, NoJobs: c.NoJobs, Cluster: c.SiteName}, &r)
	if err != nil {
		return err
	}
	err = a.show(r, func(w io.Writer) {
		of := ""
		for _, f := range r.Findings {
			if f.Site != of {
				of = f.Site
				fmt.Fprintf(w, "%s\n", cmp.Or(of, "all sites"))
			}
			fmt.Fprintf(w, "%-5s %-22s %s\n", f.Status, f.Check, f.Detail)
			if f.Next != "" {
				fmt.Fprintf(w, "%29sNext: %s\n", "", f.Next)
			}
		}
		fmt.Fprintf(w, "%d checks, %d failed, %d warnings\n", len(r.Findings), r.Failed, r.Warned)
	})
	if err == nil && r.Failed > 0 {
		return quietFailure{fault.Internal}
	}
	return err
}

// examine makes the call through the site's gate. Without a site file there is none, and nothing to start a job on.
func (a *Shell) examine(ctx context.Context, args app.DoctorArgs, r *app.DoctorAnswer) error {
	var unrecorded error
	a.Host.Examine = func(ctx context.Context, args app.DoctorArgs) app.DoctorAnswer {
		return a.Examine(ctx, args, unrecorded, a.Say)
	}
	tool := operation(a.Host, "site.doctor").Tool()
	s, err := a.Host.LoadSite(args.Site)
	if err != nil {
		return alone(ctx, tool, args, r)
	}
	g, who, err := a.SiteGate(ctx, a, s, tool)
	if err != nil {
		args.NoJobs, unrecorded = true, err
		return alone(ctx, tool, args, r)
	}
	defer g.Close()
	return through(ctx, g, who, tool, args, r)
}
