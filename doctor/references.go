package doctor

import (
	"context"

	"slurmgate/fault"
)

// Reference is a name that the site gives to bytes, as the ledger and the store describe it.
type Reference struct {
	Name    string
	Site    string // the site whose folders hold its bytes in place; empty: they are stored
	Path    string // there
	State   string // with which they were registered
	Missing string // what the gateway lacks of it; empty: nothing
}

// mostReferences bounds how many references one result names.
const mostReferences = 5

// referenceChecks returns the checks of the site's references, before and after their cluster is known.
func referenceChecks() []Check {
	return []Check{{
		Code: "references", Proves: "The gateway has what each reference stands for: its bytes, or the list of the files of a folder in place.",
		Where: Gateway, Needs: []string{ledgerCode, "artifact_dir"}, Alone: true,
		Remedy: "add the reference again with replace, or withdraw it: " + command(fault.Do("reference.list")),
		Look: func(ctx context.Context, x *Exam) []Result {
			list, err := x.named(ctx, "")
			if err != nil {
				return failed("", err)
			}
			return problemsOf(list, "reference", func(r Reference) string { return r.Missing })
		},
	}, {
		Code: "references_in_place", Proves: "Each reference in place is there and is what was registered.", Where: Gateway, Cluster: true,
		Needs: []string{ledgerCode}, Alone: true,
		Remedy: "put back what was registered, or add the reference again with replace: runs that used it keep what they had",
		Look: func(ctx context.Context, x *Exam) []Result {
			list, err := x.named(ctx, x.Cluster.Name)
			if err != nil {
				return failed("", err)
			}
			var away error
			results := problemsOf(list, "reference", func(r Reference) string {
				if away != nil {
					return ""
				}
				err := x.Registered(ctx, r.Path, r.State)
				if err == nil {
					return ""
				}
				if fault.KindOf(err).Retryable() {
					away = err
				}
				return fault.Prose(err)
			})
			if away != nil {
				return failed("", away)
			}
			return results
		},
	}}
}

// named returns the references of a cluster with registered bytes in place, or all of them for "".
func (x *Exam) named(ctx context.Context, cluster string) (list []Reference, err error) {
	if x.Books == nil {
		return nil, nil
	}
	all, err := x.Books.References(ctx)
	for _, r := range all {
		if cluster == "" || r.Site == cluster && r.State != "" {
			list = append(list, r)
		}
	}
	return list, err
}

// problemsOf makes a result of each reference with which something is wrong.
func problemsOf(list []Reference, what string, wrong func(Reference) string) (out []Result) {
	more := 0
	for _, r := range list {
		switch msg := wrong(r); {
		case msg == "":
		case len(out) == mostReferences:
			more++
		default:
			out = append(out, bad("", "the reference %s: %s", r.Name, msg)...)
		}
	}
	if more > 0 {
		out = append(out, bad("", "and %d more", more)...)
	}
	if len(out) == 0 {
		return ok("%s", plural(len(list), what))
	}
	return out
}

// nodeReferences judges the probe's answer about the references in place.
func nodeReferences(_ *Exam, n *Seen) []Result {
	if missing := n.Value["references"]; missing != "" {
		return bad("", "jobs cannot read %s there", missing)
	}
	return ok("jobs can read every reference in place")
}
