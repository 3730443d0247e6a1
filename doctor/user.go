package doctor

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"slurmgate/nss"
	"slurmgate/shell"
	"slurmgate/site"
)

// account is the user as which the gateway runs, or the one of this process.
type account struct {
	uid         int
	name, group string
}

// me returns the user of this process.
func me() account {
	return account{uid: os.Geteuid(), name: userName(os.Geteuid()), group: fmt.Sprint(os.Getegid())}
}

// both returns the user and the group, for chown.
func (a account) both() string { return a.name + ":" + a.group }

// install returns the command that makes a folder of this user.
func (a account) install(dir string) string {
	return fmt.Sprintf("sudo install -d -o %s -g %s -m 0700 %s", a.name, a.group, shell.Quote(dir))
}

func userName(uid int) string {
	if name, err := (nss.Host{}).NameOf(context.Background(), uid); err == nil {
		return name
	}
	return fmt.Sprint("uid ", uid)
}

// ServiceUser finds the user as which the gateway of a site runs, and how that is known: from the process that serves its socket, or the
// unit. Without either it is this process's own, or for root the owner of the ledger or of a folder, or a user slurmgate.
func ServiceUser(ctx context.Context, s *site.Site) (uid int, how string) {
	if pid := serving(s.Gateway.Socket); pid > 0 {
		if st, err := os.Stat(fmt.Sprint("/proc/", pid)); err == nil {
			return int(st.Sys().(*syscall.Stat_t).Uid), "it serves the socket"
		}
	}
	if u, err := (nss.Host{}).User(ctx, unitUser(ctx)); err == nil {
		return u.UID, "the unit slurmgate.service names it"
	}
	if os.Geteuid() != 0 {
		return os.Geteuid(), "it runs doctor"
	}
	for _, path := range []string{filepath.Join(s.Gateway.StateDir, "ledger.db"), s.Gateway.StateDir, s.LocalSite().Storage.RunsDir} {
		if st, err := os.Stat(path); err == nil && st.Sys().(*syscall.Stat_t).Uid != 0 {
			return int(st.Sys().(*syscall.Stat_t).Uid), "it owns " + path
		}
	}
	if u, err := (nss.Host{}).User(ctx, "slurmgate"); err == nil {
		return u.UID, "it has that name"
	}
	return os.Geteuid(), "it runs doctor"
}

// unitUser returns the User= of the gateway's unit; empty if there is no such unit, or no systemd.
func unitUser(ctx context.Context) string {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=User", "--value", "slurmgate.service").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
