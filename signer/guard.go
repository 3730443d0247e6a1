package signer

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"

	"slurmgate/fault"
	"slurmgate/nss"
)

// Directory finds users and groups; nss.Host is one. An unknown name is a NotFound fault, a failed query another one.
type Directory interface {
	User(ctx context.Context, name string) (nss.User, error)
	Users(ctx context.Context, names ...string) (map[string]nss.User, error)
	UserOf(ctx context.Context, uid int) (nss.User, error)
	GroupID(ctx context.Context, name string) (int, error)
	GroupsOf(ctx context.Context, user string) ([]int, error)
}

// guard decides for whom certificates are signed. It has no cache: each request queries the directory, so that a user
// who was removed, or became a member of a refused group, gets no further certificate.
type guard struct {
	config Config
	users  Directory
}

// admit returns the user of a name, or a Policy fault with the reason why there is no certificate. If that is unknown
// it is a Transport fault.
func (g guard) admit(ctx context.Context, name string) (nss.User, error) {
	u, err := g.users.User(ctx, name)
	if err != nil {
		return u, unknown(name, err, "this host has no such user")
	}
	for _, rule := range []func(context.Context, nss.User) (string, error){g.identity, g.listed, g.grouped} {
		why, err := rule(ctx, u)
		switch {
		case err != nil:
			return u, unknown(name, err, "")
		case why == "" && u.Name != name:
			why = fmt.Sprintf("this host calls that user %q; map the caller to that name", u.Name)
		}
		if why != "" {
			return u, refuse(name, why)
		}
	}
	return u, nil
}

// unknown returns the error after a failed query.
func unknown(name string, err error, missing string) error {
	if missing != "" && (fault.Is(err, fault.NotFound) || fault.Is(err, fault.Validation)) {
		return refuse(name, missing)
	}
	return away("the signer cannot look up user "+fault.Clip(name)+", so it signs nothing", err).WithRetry(max(1, fault.RetryOf(err)))
}

// identity refuses what the account itself excludes.
func (g guard) identity(ctx context.Context, u nss.User) (string, error) {
	shell := u.Shell
	switch {
	case u.UID == 0:
		return "its user id is 0, which is root's", nil
	case u.UID == os.Geteuid():
		return "the signer itself runs as that user", nil
	case slices.Contains(g.config.GatewayUsers, u.Name):
		return "the gateway itself runs as that user (gateway_users)", nil
	case u.UID < g.config.MinUID || u.UID > g.config.MaxUID:
		return fmt.Sprintf("user id %d is outside of %d to %d (min_uid, max_uid)", u.UID, g.config.MinUID, g.config.MaxUID), nil
	case shell != "" && (slices.Contains(g.config.RefuseShells, shell) || slices.Contains(g.config.RefuseShells, path.Base(shell))):
		return "its login shell is " + fault.Clip(shell) + " (refuse_shells)", nil
	}
	other, err := g.users.UserOf(ctx, u.UID)
	if err == nil && other.Name != u.Name {
		return fmt.Sprintf("user id %d also has the name %q, and jobs would be that user's", u.UID, other.Name), nil
	}
	return "", err
}

// listed applies users and refuse_users.
func (g guard) listed(ctx context.Context, u nss.User) (string, error) {
	if slices.Contains(g.config.RefuseUsers, u.Name) {
		return "it is in refuse_users", nil
	}
	refused, err := g.users.Users(ctx, g.config.RefuseUsers...)
	if err != nil {
		return "", err
	}
	for name, r := range refused {
		if r.UID == u.UID {
			return fmt.Sprintf("%s, who has the same user id, is in refuse_users", name), nil
		}
	}
	return "", nil
}

// grouped applies groups and refuse_groups.
func (g guard) grouped(ctx context.Context, u nss.User) (string, error) {
	member, err := g.users.GroupsOf(ctx, u.Name)
	if err != nil {
		return "", err
	}
	member = append(member, u.GID)
	of := func(groups []string) (string, error) {
		for _, name := range groups {
			gid, err := g.users.GroupID(ctx, name)
			switch {
			case fault.Is(err, fault.NotFound):
			case err != nil:
				return "", err
			case slices.Contains(member, gid):
				return name, nil
			}
		}
		return "", nil
	}
	refused, err := of(g.config.RefuseGroups)
	switch {
	case err != nil:
		return "", err
	case refused != "":
		return fmt.Sprintf("it is a member of group %q (refuse_groups)", refused), nil
	case len(g.config.Users)+len(g.config.Groups) == 0 || slices.Contains(g.config.Users, u.Name):
		return "", nil
	}
	allowed, err := of(g.config.Groups)
	if err == nil && allowed == "" {
		return "it is neither in users nor a member of one of groups", nil
	}
	return "", err
}

// uids returns the ids of the users who may send requests.
func uids(ctx context.Context, users Directory, names []string) ([]int, error) {
	var out []int
	for _, name := range names {
		u, err := users.User(ctx, name)
		switch {
		case fault.Is(err, fault.NotFound):
			return nil, fault.New(fault.Validation, "gateway_users", "gateway_users: this host has no user "+name)
		case err != nil:
			return nil, err
		case u.UID == 0:
			return nil, fault.New(fault.Validation, "gateway_users", "gateway_users: "+name+" is root; the gateway does not run as root")
		case u.UID == os.Geteuid():
			return nil, sameUser(name)
		}
		out = append(out, u.UID)
	}
	return out, nil
}

func sameUser(name string) error {
	return fault.New(fault.Validation, "gateway_users", "gateway_users: the signer itself runs as "+name+", so an attacker with the "+
		"gateway's rights would have the CA's key").WithNext("run the signer as a separate user, such as slurmgate-signer")
}
