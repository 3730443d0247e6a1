package cli

import (
	"context"
	"fmt"
	"io"

	"slurmgate/app"
	"slurmgate/fault"
)

// Projects groups the verbs on projects.
type Projects struct {
	List   Call[app.ProjectListArgs, app.ProjectList] `cmd:"" default:"withargs" help:"List the projects that you may read, with their members."`
	Rebind projectsRebindCmd                          `cmd:"" help:"Decide whose the project of a user is, after the user's name came back with another user id."`
}

type projectsRebindCmd struct {
	User          string `arg:"" help:"Login name of the user."`
	SamePerson    bool   `help:"It is the same person: the user keeps the project." xor:"who" required:""`
	AnotherPerson bool   `help:"It is another person: the user gets an empty project; the one before stays with those who have rights on all projects." xor:"who" required:""`
	Reason        string `help:"Reason; recorded with the decision." placeholder:"TEXT"`
}

// Run records the decision.
func (c projectsRebindCmd) Run(ctx context.Context, a *Shell) error {
	args := app.RebindArgs{User: c.User, SamePerson: c.SamePerson, Reason: c.Reason}
	return ask(ctx, a, "project.rebind", args, func(w io.Writer, r app.Rebound) {
		fmt.Fprintf(w, "%s  {user} of %s (uid %d): %s\n", r.ProjectID, r.User, r.UID, r.Message)
		printNext(w, fault.Do("project.list"))
	})
}
