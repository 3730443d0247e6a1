package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/pkg/sftp"

	"slurmgate/fault"
	"slurmgate/remote"
	"slurmgate/signer"
	"slurmgate/slurm"
)

// Where slurm.run_as is caller, the checks of a cluster cover the service's own needs there: the signer, a read of all
// users' jobs, images that users can read. With --user the checks of a cluster elsewhere are made as that user too, by
// way of the signer and sshd: the whole way of the user's runs.

const (
	signerCode, userRules, userCertificate, userFolder = "signer", "user_rules", "user_certificate", "user_folder"
	imagesForUsers                                     = "images_for_users"
)

// AsUser holds the means to make checks as one user.
type AsUser struct {
	MayRun  func(ctx context.Context) error // the gateway's own rules about the user
	Certify func(ctx context.Context) error // gets a certificate from the signer
	Config  Config                          // for logging in to the hosts as the user
}

// asUserChecks returns the checks of clusters where jobs belong to their callers.
func asUserChecks() []Check {
	return []Check{{
		Code: signerCode, Proves: "The signer answers the service's user, runs under a separate user, and signs what the site file asks for.",
		Where: Gateway, Cluster: true, Only: asCaller,
		Remedy: "systemctl start slurmgate-signer; compare slurm.caller in the site file with the signer's configuration (docs/run/callers.md)",
		Look:   theSigner,
	}, {
		Code: imagesForUsers, Proves: "Every user can read the images: their jobs open them.", Where: Gateway, Cluster: true, Early: true,
		Only: func(w Ways) bool { return w.Users && w.Data == nil }, Remedy: "chmod o+rx the folders and o+r the images",
		Look: func(_ context.Context, x *Exam) []Result { return readableByAll(x.Cluster.Storage.ImageStore) },
	}, {
		Code: userRules, Proves: "Jobs may run as the user that --user names.", Where: Gateway, Cluster: true, Only: asCaller,
		Remedy: "name a user whom slurm.caller does not refuse", Look: mayRun,
	}, {
		Code: userCertificate, Proves: "The signer signs a certificate for that user.", Where: Gateway, Cluster: true, Only: asCaller,
		Needs: []string{signerCode, userRules}, Remedy: "look at the signer's log; its own configuration says for whom it signs", Look: certify,
	}}
}

// sightChecks returns the checks that need Slurm's own configuration.
func sightChecks() []Check {
	return []Check{{
		Code: "all_jobs", Proves: "Slurm shows the service's user the jobs, records and associations of all users.", Where: Slurmctld,
		Cluster: true, Only: asCaller, Needs: []string{slurmCondition},
		Remedy: "take jobs and users out of PrivateData, or: sacctmgr modify user NAME set adminlevel=Operator", Look: seesAll,
	}}
}

// oneUserChecks returns the checks that are made as a user.
func oneUserChecks() []Check {
	return []Check{{
		Code: userFolder, Proves: "The user has a folder for runs, or can make it.", Where: Login, Cluster: true, Over: fileSide,
		OneUser: true, Needs: []string{sftpServer},
		Remedy: "let the user make that folder, as storage.runs_dir says", Look: makeFolder,
	}}
}

func theSigner(ctx context.Context, x *Exam) []Result {
	c := x.Cluster.Slurm.Caller
	if st, err := os.Lstat(c.Signer); err == nil {
		switch owner := int(st.Sys().(*syscall.Stat_t).Uid); {
		case st.Mode()&os.ModeSocket == 0:
			return bad("correct slurm.caller.signer", "%s is not a socket", c.Signer)
		case owner == x.User.uid:
			return bad("run the signer as a separate user, with the CA's key in a file that only that user can read",
				"%s belongs to %s, as whom the gateway runs too: an attacker with the gateway's rights has the CA's key", c.Signer, x.User.name)
		case owner == 0:
			return bad("run the signer as a separate user", "%s belongs to root, and the signer does not run as root", c.Signer)
		}
	}
	about, err := signer.Client{Socket: c.Signer}.About(ctx)
	if err != nil {
		return failed("", err)
	}
	var results []Result
	if missing := uncovered(c.SourceAddresses, about.SourceAddresses); len(missing) > 0 {
		results = append(results, bad("add them to source_addresses in the signer's configuration, or take them out of the site file",
			"slurm.caller.source_addresses has %s, for which the signer does not sign: it has %s", strings.Join(missing, ", "),
			strings.Join(about.SourceAddresses, ", "))...)
	}
	if about.Minutes < c.CertificateMinutes {
		results = append(results, warning("set slurm.caller.certificate_minutes to "+fmt.Sprint(about.Minutes),
			"slurm.caller.certificate_minutes is %d, but the signer signs for at most %d", c.CertificateMinutes, about.Minutes)...)
	}
	if len(results) == 0 {
		return ok("it signs with %s", strings.TrimSpace(about.PublicKey))
	}
	return results
}

// uncovered returns the addresses and networks of want that no entry of have contains.
func uncovered(want, have []string) (missing []string) {
	prefix := func(text string) (netip.Prefix, error) {
		if a, err := netip.ParseAddr(text); err == nil {
			return netip.PrefixFrom(a, a.BitLen()), nil
		}
		return netip.ParsePrefix(text)
	}
	for _, text := range want {
		w, err := prefix(text)
		if err == nil && slices.ContainsFunc(have, func(text string) bool {
			h, err := prefix(text)
			return err == nil && h.Bits() <= w.Bits() && h.Contains(w.Addr())
		}) {
			continue
		}
		missing = append(missing, text)
	}
	return missing
}

// readableByAll checks the permissions of the image store, its files and the folders above it.
func readableByAll(dir string) (results []Result) {
	for at := filepath.Dir(dir); ; at = filepath.Dir(at) {
		if st, err := os.Stat(at); err == nil && st.Mode().Perm()&0o001 == 0 {
			results = append(results, bad("chmod o+x "+at, "users cannot reach the image store: %s has mode %04o", at, st.Mode().Perm())...)
		}
		if at == filepath.Dir(at) {
			break
		}
	}
	st, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return append(results, ok("%s is not there yet", dir)...)
	case err != nil:
		return append(results, failed("", err)...)
	case st.Mode().Perm()&0o005 != 0o005:
		results = append(results, bad("chmod o+rx "+dir, "users cannot read the image store: %s has mode %04o", dir, st.Mode().Perm())...)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return append(results, failed("", err)...)
	}
	for _, e := range entries {
		if i, err := e.Info(); err == nil && i.Mode().IsRegular() && strings.HasSuffix(e.Name(), ".sif") && i.Mode().Perm()&0o004 == 0 {
			results = append(results, bad("chmod o+r "+filepath.Join(dir, e.Name()), "users cannot read the image %s: it has mode %04o",
				filepath.Join(dir, e.Name()), i.Mode().Perm())...)
		}
	}
	if len(results) == 0 {
		return ok("%s", dir)
	}
	return results
}

func seesAll(ctx context.Context, x *Exam) []Result {
	s, can := x.Slurm.(*slurm.CLI)
	if !can {
		return unknown("", "this transport does not tell whether Slurm hides other users' jobs")
	}
	if err := s.CheckSight(ctx, x.Cluster.Slurm.Accounting != "none"); err != nil {
		return failed("", err)
	}
	return ok("%s sees the jobs of all users", x.User.name)
}

func mayRun(ctx context.Context, x *Exam) []Result {
	if x.args.User == "" {
		return ok("no user was named: doctor --user NAME tries the whole way as NAME")
	}
	as, err := x.As(x.Cluster, x.args.User)
	if err == nil {
		err = as.MayRun(ctx)
	}
	if err != nil {
		return failed("", err)
	}
	return ok("%s", x.args.User)
}

func certify(ctx context.Context, x *Exam) []Result {
	if x.args.User == "" {
		return ok("no user was named")
	}
	as, err := x.As(x.Cluster, x.args.User)
	if err == nil {
		err = as.Certify(ctx)
	}
	if err != nil {
		return failed("", err)
	}
	return ok("for %s, %s", x.args.User, plural(x.Cluster.Slurm.Caller.CertificateMinutes, "minute"))
}

// oneUser makes the checks of a cluster elsewhere as the user named.
func (x *Exam) oneUser(ctx context.Context) {
	if x.args.User == "" || x.missing(Check{Needs: []string{userRules, userCertificate}}) != "" {
		return
	}
	as, err := x.As(x.Cluster, x.args.User)
	if err != nil {
		return // user_rules reported it
	}
	view, err := x.Cluster.As(x.args.User)
	if err != nil {
		return
	}
	u := x.on(view)
	u.Config, u.Ways, u.user, u.Slurm, u.stored, u.Now = as.Config, as.Config.Reach(view), x.args.User, nil, nil, x.Now
	defer as.Config.Close()
	for _, k := range Checks() { // what was found there is of the service
		if k.Cluster {
			delete(u.worst, k.Code)
		}
	}
	u.run(ctx, ofOneUser)
	if !x.args.NoJobs {
		u.nodes(ctx)
	}
}

// ofOneUser reports whether a check is made as the user too. Slurm's answers about itself are the same for every user.
func ofOneUser(k Check) bool {
	switch {
	case !k.Cluster || k.Code == ledgerRuns: // a folder has its mark from the user's first run on
		return false
	case k.Where == Login || k.Where == Data || k.Over != "":
		return true
	}
	return slices.Contains([]string{"ssh_files", slurmController, clusterName, slurmCondition, "tool_jobs"}, k.Code)
}

// makeFolder makes the folder of a user's runs as the gateway does before the user's first run.
func makeFolder(ctx context.Context, x *Exam) []Result {
	dir, user, made := x.Cluster.Storage.SFTP.RunsDir, x.user, false
	err := x.sftp(ctx, func(c *sftp.Client) error {
		if _, err := c.Stat(dir); err == nil {
			return nil
		}
		own, _, _ := strings.Cut(dir+"/", "/"+user+"/") // the name may be the last of dir
		own = path.Join(own, user)
		if _, err := c.Stat(own); err != nil && own != dir {
			return fault.Wrap(fault.Validation, "runs_dir_unavailable", "there is no "+own+" on "+x.Cluster.Storage.SFTP.Host, err).
				WithNext("ask an admin of the cluster to make that folder, owned by " + user)
		}
		made = true
		if err := c.MkdirAll(dir); err != nil {
			return fault.Wrap(fault.Validation, "runs_dir_unavailable", user+" cannot make "+dir, x.whyNot(ctx, err)).
				WithNext("let " + user + " make folders in " + path.Dir(dir))
		}
		return c.Chmod(dir, 0o700)
	})
	switch {
	case err != nil:
		return failed("", err)
	case made:
		return ok("%s, made just now", dir)
	}
	return ok("%s", dir)
}

// loginCode reports whether the code of an error of a connection is about the login, from any source.
func loginCode(code string) bool {
	return slices.Contains([]string{remote.BadLogin, remote.Refused, signer.Away, signer.Refused, signer.Busy, signer.Misfit}, code)
}
