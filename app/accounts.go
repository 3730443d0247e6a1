package app

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
)

// A job charges the Slurm account that its caller's grant names for the project. A caller without one charges the
// site's default, or any account that policy allows. Two settings change that: where slurm.accounts is associations,
// users of this host charge what their own associations in Slurm allow; and where jobs run as their callers, every
// caller charges by the associations of the Unix user whom the job runs as. A run's account is part of its attempts
// and not of its identity, like the site's defaults.

// charge describes what a caller's jobs of a project may charge on a site.
type charge struct {
	own  string            // the account of the caller's grant; empty: it names none
	site *site.Site        // where
	user string            // the user whose associations count; empty: no user
	has  *run.UserAccounts // of that user
}

// chargeOf returns what the caller's jobs may charge if they run as user; an empty user is the gateway's own. It may
// wait for Slurm's accounting database.
func (g *Gateway) chargeOf(ctx context.Context, c gate.Call, s *site.Site, project, user string) (charge, error) {
	ch := charge{own: c.Caller.Account(project), site: s, user: user}
	if s.Slurm.Accounts != site.AccountsByAssociations {
		return ch, nil
	}
	if user == "" {
		if ch.own != "" || c.Caller.Method != gate.ByPeer || c.Caller.Owner {
			return ch, nil
		}
		ch.user = strings.TrimPrefix(c.Caller.Name, "user:")
	}
	has, err := g.Associations(ctx, s.Name, ch.user)
	if err == nil && len(has.Accounts) == 0 {
		err = ch.denied("no_association", fmt.Sprintf("the user %s has no association in Slurm's accounting for the cluster %s, so it can "+
			"charge no account there", ch.user, s.Slurm.Cluster), "sacctmgr add user "+ch.user+" account=ACCOUNT")
	}
	ch.has = &has
	return ch, err
}

func (ch charge) denied(code, msg, command string) error {
	return &fault.Error{Kind: fault.Policy, Code: code, Msg: msg,
		Next: "ask the cluster's administrator (" + command + "); a change takes effect within 5 minutes"}
}

// place completes a placement with the defaults of the site and the caller. The run goes to the result, and policy
// judges it.
func (ch charge) place(asked plan.Placement) (plan.Placement, error) {
	defaults := SiteDefaults(ch.site)
	switch {
	case ch.own != "":
		defaults.Account = ch.own
	case ch.has == nil:
	case ch.has.Default != "":
		defaults.Account = ch.has.Default
	case ch.has.Account(defaults.Account) == nil && asked.Account == "":
		return asked, ch.denied("no_default_account", fmt.Sprintf("the user %s has no default account in Slurm, and may charge %s", ch.user,
			ch.names()), "sacctmgr modify user "+ch.user+" set DefaultAccount=ACCOUNT")
	}
	return asked.Resolve(defaults), nil
}

// allows refuses a placement whose account the caller may not charge.
func (ch charge) allows(at plan.Placement) error {
	if ch.own != "" && ch.own != at.Account {
		return &fault.Error{Kind: fault.Policy, Code: "account_denied",
			Msg:  "your jobs of this project must charge the Slurm account " + ch.own + ", not " + at.Account,
			Next: "set placement.account to " + ch.own + ", or ask the administrator"}
	}
	if ch.has == nil {
		return nil
	}
	a := ch.has.Account(at.Account)
	switch {
	case a == nil:
		return &fault.Error{Kind: fault.Policy, Code: "account_denied",
			Msg: fmt.Sprintf("the user %s has no association with the Slurm account %s on the cluster %s", ch.user, at.Account,
				ch.site.Slurm.Cluster),
			Next: "charge " + ch.names() + ", or ask the cluster's administrator for an association; a change takes effect within 5 minutes"}
	case a.Partitions != nil && !slices.Contains(a.Partitions, at.Partition):
		return &fault.Error{Kind: fault.Policy, Code: "partition_denied",
			Msg: fmt.Sprintf("the user %s may charge the account %s only in the partitions %s, not in %s", ch.user, a.Name,
				strings.Join(a.Partitions, ", "), at.Partition),
			Next: "use one of these partitions, or charge another account of yours: " + ch.names()}
	case at.QOS != nil && *at.QOS != ch.site.Slurm.DefaultQOS && !offers(a, *at.QOS):
		return &fault.Error{Kind: fault.Policy, Code: "qos_denied",
			Msg:  fmt.Sprintf("the user %s may not use the QOS %s with the account %s", ch.user, *at.QOS, a.Name),
			Next: "use " + cmp.Or(strings.Join(a.QOS, ", "), "no QOS") + ", or ask the cluster's administrator"}
	}
	return nil
}

// offers reports whether the association has a QOS. A list of changes to another list ("+a", "-b") does not show
// that: offers returns true, and Slurm decides.
func offers(a *run.Account, qos string) bool {
	return slices.Contains(a.QOS, qos) || slices.ContainsFunc(a.QOS, func(q string) bool {
		return strings.HasPrefix(q, "+") ||
			strings.HasPrefix(q, "-")
	})
}

func (ch charge) names() string {
	var list []string
	for _, a := range ch.has.Accounts {
		list = append(list, a.Name)
	}
	return strings.Join(list, " or ")
}

// charged returns the placement of a caller's job that asks for a placement. It fails if the caller may not charge
// the account.
func (g *Gateway) charged(ctx context.Context, c gate.Call, s *site.Site, project, user string, asked plan.Placement) (*plan.Placement,
	error) {
	ch, err := g.chargeOf(ctx, c, s, project, user)
	if err != nil {
		return nil, err
	}
	at, err := ch.place(asked)
	if err != nil {
		return nil, err
	}
	return &at, ch.allows(at)
}

// mayRetry refuses a new attempt if the caller's associations do not let it charge the run's account, which is that of the first attempt.
func (g *Gateway) mayRetry(ctx context.Context, c gate.Call, runID string) error {
	v, err := g.Ledger.View(ctx, runID)
	if err != nil {
		return err
	}
	gone, err := g.Ledger.GoneInputs(ctx, runID)
	if err == nil && len(gone) > 0 {
		err = fault.New(fault.Conflict, "inputs_removed", "the bytes of inputs of this run were removed: "+strings.Join(gone, ", ")).
			WithNext("import the same bytes again under the same labels, or retry the runs that made them; then retry this one")
	}
	if err != nil {
		return err
	}
	s := g.Site.Cluster(v.Run.Site)
	if s == nil {
		return nil // this host, where no account is charged
	}
	ch, err := g.chargeOf(ctx, c, s, v.Run.ProjectID, v.Run.ExecutedAs)
	if err != nil || ch.has == nil {
		return err
	}
	at, err := g.placementOf(ctx, v)
	if err != nil {
		return err
	}
	return ch.allows(at)
}

// placementOf returns the placement of a run's current attempt.
func (g *Gateway) placementOf(ctx context.Context, v run.View) (plan.Placement, error) {
	if v.Attempt.Placement != nil {
		return *v.Attempt.Placement, nil
	}
	canonical, err := g.Ledger.Params(ctx, v.Run.ParamsHash)
	if err != nil {
		return plan.Placement{}, err
	}
	p, err := plan.DecodeParams(canonical)
	return p.Spec.Placement, err
}
