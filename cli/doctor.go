package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
)

// Doctor is the verb that checks the site.
type Doctor struct {
	NoJobs   bool   `help:"Do not submit probe jobs; compute nodes are then not checked."`
	SiteName string `help:"Check only this cluster; by default all of the site file." placeholder:"NAME"`
	User     string `help:"Where jobs belong to the person who asked (slurm.run_as: caller), try the whole way as this user too: the signer, the login, the folder, probe jobs." placeholder:"NAME"`
	Node     string `help:"Look at these nodes, e.g. n1,n[3-7]; by default one of each allowed partition." placeholder:"LIST" xor:"nodes"`
	AllNodes bool   `help:"Look at all nodes of the partitions that policy allows, with one job array." xor:"nodes"`
	List     bool   `help:"List all checks with their codes; check nothing."`
}

// Run checks the site and prints the findings. A site whose record cannot be written is checked too, but no job is started there.
func (c Doctor) Run(ctx context.Context, a *Shell) error {
	if c.List {
		return a.show(map[string]any{"checks": a.Checks()}, func(w io.Writer) {
			list(w, "code|where|proves", a.Checks(), func(k app.CheckDoc) []string { return []string{k.Code, k.Where, k.Proves} })
		})
	}
	var r app.DoctorAnswer
	err := a.examine(ctx, app.DoctorArgs{Site: a.Site, NoJobs: c.NoJobs, Cluster: c.SiteName, User: c.User, Nodes: c.Node,
		AllNodes: c.AllNodes}, &r)
	if err != nil {
		return err
	}
	if err := a.show(r, func(w io.Writer) { c.print(w, r) }); err != nil {
		return err
	}
	switch {
	case r.Faults > 0:
		return quietFailure{fault.Internal}
	case r.Unknown > 0:
		return quietFailure{fault.Transport}
	}
	return nil
}

func (c Doctor) print(w io.Writer, r app.DoctorAnswer) {
	of := ""
	for _, f := range r.Findings {
		in := f.Site
		if f.User != "" {
			in = strings.TrimSpace(in + " as " + f.User)
		}
		if in != of {
			of = in
			fmt.Fprintf(w, "%s\n", cmp.Or(of, "all sites"))
		}
		found := f.Found
		if f.Node != "" {
			found = f.Node + ": " + found
		}
		fmt.Fprintf(w, "%-8s %-22s %s\n", f.Status, f.Code, found)
		if f.Remedy != "" {
			fmt.Fprintf(w, "%31s Next: %s\n", "", f.Remedy)
		}
	}
	fmt.Fprintf(w, "%d results: %d faults, %d unknown, %d warnings\n", len(r.Findings), r.Faults, r.Unknown, r.Warnings)
	if c.NoJobs {
		fmt.Fprintln(w, "Compute nodes were not checked (--no-jobs).")
	}
}

// examine makes the call through the site's gate. Without a site file there is no gate, and nothing to start a job on.
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
