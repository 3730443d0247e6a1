package access

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/nss"
	"slurmgate/plan"
)

// Where slurm.run_as is caller, jobs and their files belong to the Unix user that the caller is mapped to. The
// mapping is part of the principal (a peer is its own user, a token names one, an OpenID claim is looked up in a
// table). Whether jobs may run as that user is checked at each call that acts, with answers cached for a minute, and
// fails closed.

// UnixRules restrict the users of this host whom jobs may run as.
type UnixRules struct {
	MinUID, MaxUID int
	RefuseUsers    []string
	RefuseGroups   []string // by name, also as the primary group; a group that does not exist has no effect
}

// Accounts is the user database that [UnixUsers] asks, as nss.Host does. A user or group that does not exist is a NotFound fault; after any
// other error the answer is unknown.
type Accounts interface {
	Directory
	User(ctx context.Context, name string) (nss.User, error)
}

// UnixUsers checks which users jobs may run as. It may be used concurrently.
type UnixUsers struct {
	from   Accounts
	own    int // user id of the gateway
	users  *answers[unixUser]
	groups *answers[int]
}

// CheckUnixUser returns why jobs may not run as a user of this name, or "". It must be a name that both a plan and
// getent accept.
func CheckUnixUser(name string) string { return cmp.Or(nss.CheckName(name), plan.CheckUnixUser(name)) }

// unixUser is the entry of the user database for one name.
type unixUser struct {
	user   nss.User
	byUID  string // name of its user id
	groups []int
}

// NewUnixUsers returns the checks of a gateway with a user id against a user database (nil: this host's).
func NewUnixUsers(from Accounts, own int, now func() time.Time) *UnixUsers {
	if from == nil {
		from = nss.Host{}
	}
	return &UnixUsers{from: from, own: own, users: newAnswers[unixUser](now, memberRetry), groups: newAnswers[int](now, memberRetry)}
}

// Of returns the user whom the principal's jobs run as, in the user database's spelling. Errors: no_unix_user (the
// principal is mapped to no user), unix_user_refused (the rules refuse the user, or it no longer exists),
// users_unknown (retryable).
func (u *UnixUsers) Of(ctx context.Context, p gate.Principal, rules UnixRules) (string, error) {
	if p.UnixUser == "" {
		return "", noUnixUser(p)
	}
	if msg := CheckUnixUser(p.UnixUser); msg != "" {
		return "", refusedUser(p.UnixUser, msg)
	}
	is, err := u.users.get(ctx, p.UnixUser, func(ctx context.Context) (unixUser, error) { return u.find(ctx, p.UnixUser) })
	switch {
	case fault.Is(err, fault.NotFound):
		return "", refusedUser(p.UnixUser, "this host has no such user")
	case err != nil:
		return "", unknownUser(p.UnixUser, err)
	case p.Method == gate.ByPeer && is.user.UID != p.PeerUID:
		return "", refusedUser(p.UnixUser, fmt.Sprintf("its user id is %d, and the caller's is %d", is.user.UID, p.PeerUID))
	}
	why := rules.refusal(is, u.own)
	for i := 0; i < len(rules.RefuseGroups) && why == ""; i++ {
		gid, err := u.groupID(ctx, rules.RefuseGroups[i])
		if err != nil {
			return "", unknownUser(p.UnixUser, err)
		}
		if is.user.GID == gid || slices.Contains(is.groups, gid) {
			why = "it is a member of the group " + rules.RefuseGroups[i] + ", which slurm.caller.refuse_groups names"
		}
	}
	if why != "" {
		return "", refusedUser(p.UnixUser, why)
	}
	return is.user.Name, nil
}

// groupID returns the id of a group, -1 if it does not exist. Unlike for grants, an old answer is not used while the
// directory is away.
func (u *UnixUsers) groupID(ctx context.Context, group string) (int, error) {
	return u.groups.get(ctx, group, func(ctx context.Context) (int, error) {
		gid, err := u.from.GroupID(ctx, group)
		if fault.Is(err, fault.NotFound) {
			return -1, nil
		}
		return gid, err
	})
}

// refusal returns why jobs may not run as a user, "" if only its groups decide.
func (r UnixRules) refusal(is unixUser, own int) string {
	name := is.user.Name
	switch shell := filepath.Base(is.user.Shell); {
	case CheckUnixUser(name) != "":
		return "its name in the user database is " + strconv.Quote(name) + ": " + CheckUnixUser(name)
	case is.user.UID == 0:
		return "its user id is 0, which is root's"
	case is.user.UID == own:
		return "it is the gateway's own user"
	case is.user.UID < r.MinUID || is.user.UID > r.MaxUID:
		return fmt.Sprintf("its user id %d is not between slurm.caller.min_uid (%d) and max_uid (%d)", is.user.UID, r.MinUID, r.MaxUID)
	case is.byUID != name:
		return fmt.Sprintf("its user id %d belongs to %s too, and Slurm would show its jobs as that user's", is.user.UID, is.byUID)
	case slices.Contains(r.RefuseUsers, name):
		return "slurm.caller.refuse_users names it"
	case is.user.GID == 0 || slices.Contains(is.groups, 0):
		return "it is a member of root's group (0)"
	case slices.Contains([]string{"nologin", "false", "true", "sync", "shutdown", "halt"}, shell):
		return "it cannot log in: its shell is " + is.user.Shell
	}
	return ""
}

// find returns the entry of the user database for a name.
func (u *UnixUsers) find(ctx context.Context, name string) (is unixUser, err error) {
	if is.user, err = u.from.User(ctx, name); err == nil {
		is.byUID, err = u.from.NameOf(ctx, is.user.UID)
	}
	if err == nil {
		is.groups, err = u.from.GroupsOf(ctx, is.user.Name)
	}
	return is, err
}

// noUnixUser returns the error of a principal that is mapped to no user, with advice.
func noUnixUser(p gate.Principal) error {
	why, next := "", "ask the gateway's administrator"
	switch {
	case p.Owner:
		why = p.Name + " looks after the gateway, and jobs do not run as root or as the gateway's user"
		next = "make the call as the user whose job it is"
	case p.Method == gate.ByToken:
		why = p.Name + " names no Unix user"
		next = "ask the gateway's administrator for a token that names yours (token create --unix-user USER)"
	case p.Method == gate.ByOIDC:
		why = "access.oidc[].unix_user of the site file maps no Unix user to " + p.Name
		next = "ask the gateway's administrator to add you to that table"
	default:
		why = p.Name + " has no name in this host's user database"
	}
	return fault.New(fault.Policy, "no_unix_user", "jobs run as the caller's Unix user here (slurm.run_as: caller), and "+why).WithNext(next)
}

func refusedUser(name, why string) error {
	return fault.New(fault.Policy, "unix_user_refused", fmt.Sprintf("jobs may not run as the user %s: %s", shown(name), why)).
		WithNext("make the call as another user, or ask the gateway's administrator; a change takes effect within a minute")
}

func unknownUser(name string, err error) error {
	return fault.Wrap(fault.Transport, "users_unknown", fmt.Sprintf("the user %s cannot be looked up now", shown(name)), err).
		WithNext("try again in a few seconds").WithRetry(int(memberRetry / time.Second))
}
