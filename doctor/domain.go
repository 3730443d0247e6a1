package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"slurmgate/app"
	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/toolpack"
)

const domainCode = "domain"

// domainChecks returns the checks of policy and tools.
func domainChecks() []Check {
	return []Check{{
		Code: domainCode, Proves: "The domain's manifest, policy, toolpacks and image lock can be read and break no rule.", Where: Gateway,
		Stops: true,
		Early: true, Remedy: "correct the named lines: " + command(fault.Do("tool check", "dir", "DIR")),
		Look: func(_ context.Context, x *Exam) (results []Result) {
			var err error
			x.Domain, x.Policy, err = app.ReadDomain(x.Site.DomainDir, toolpack.AllowMissingImages)
			if err != nil {
				return failed(command(fault.Do("tool check", "dir", x.Site.DomainDir)), err)
			}
			file, _ := x.Domain.Policy()
			return ok("%s, %s", plural(len(x.Domain.Packs().List()), "tool"), file)
		},
	}, {
		Code: "import_roots", Proves: "Each import root is a folder and names its projects.", Where: Gateway, Early: true,
		Needs:  []string{domainCode},
		Remedy: "make the folder, or take it out of import.roots", Look: importRoots,
	}, {
		Code: "policy_fits", Proves: "The domain's policy allows what its tools ask for.", Where: Gateway, Early: true,
		Needs: []string{domainCode}, Remedy: "correct policies.yaml or the toolpack",
		Look: func(_ context.Context, x *Exam) (results []Result) {
			for _, misfit := range app.Fits(x.Domain, x.Policy) {
				results = append(results, warning("", "%s", misfit)...)
			}
			if len(results) == 0 {
				return ok("%s", strings.Join(app.NotServed(x.Domain), "; "))
			}
			return results
		},
	}, {
		Code: "tool_binds", Proves: "apptainer.binds has each folder that a tool asks for.", Where: Gateway, Stops: true, Early: true,
		Needs:  []string{domainCode},
		Remedy: "add the folder to apptainer.binds",
		Look: func(_ context.Context, x *Exam) []Result {
			if err := x.Domain.Packs().CheckBinds(app.Offers(x.Site)); err != nil {
				return failed("", err)
			}
			return ok("")
		},
	}, {
		Code: "policy_sites", Proves: "Policy names only clusters of the site file.", Where: Gateway, Stops: true, Early: true,
		Needs:  []string{domainCode},
		Remedy: "correct sites in policies.yaml",
		Look: func(_ context.Context, x *Exam) []Result {
			if err := x.Policy.CheckSites(x.Site.Names()); err != nil {
				return failed("", err)
			}
			return ok("")
		},
	}, {
		Code: "local_runs", Proves: "This host has what runs without Slurm need, if policy allows them.", Where: Gateway,
		Needs:  []string{domainCode},
		Remedy: "install what is missing, or remove local from policies.yaml", Look: local,
	}}
}

func importRoots(_ context.Context, x *Exam) (results []Result) {
	roots := x.Site.Import.Roots
	for _, root := range roots {
		if st, err := os.Stat(root.Path); err != nil || !st.IsDir() {
			results = append(results, warning("", "%s is not a folder here: nothing is imported from it", root.Path)...)
		}
		if root.Projects == nil {
			results = append(results, warning(fmt.Sprintf("write {path: %s, projects: [NAME]} in import.roots", root.Path), "%s",
				site.PlainRoot(root.Path))...)
		}
	}
	if len(results) == 0 {
		return ok("%s", plural(len(roots), "folder"))
	}
	return results
}
