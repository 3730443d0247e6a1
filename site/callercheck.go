package site

import (
	"fmt"
	"net/netip"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"slurmgate/fault"
)

// runAs checks slurm.run_as and what depends on it.
func (c *checker) runAs(s Slurm, st Storage) {
	if s.RunAs != RunAsCaller {
		if s.Caller != nil && s.RunAs == RunAsSelf {
			c.add("SITE-RUN-AS", "slurm.caller", "only with slurm.run_as: caller",
				"the section has no effect: slurm.run_as is self",
				"set slurm.run_as to caller, or remove slurm.caller")
		}
		if strings.Contains(st.RunsDir, UserMark) {
			c.value("SITE-RUN-AS", "storage.runs_dir", st.RunsDir, "without {user}, unless slurm.run_as is caller",
				"set slurm.run_as to caller, or name one folder for all runs")
			return
		}
		c.plain("storage.runs_dir", st.RunsDir)
		return
	}
	if s.Transport == TransportREST {
		c.add("SITE-RUN-AS", "slurm.run_as", "self, with slurm.transport: rest", "with slurmrestd the gateway cannot act as its callers",
			"set slurm.transport to cli or ssh, or slurm.run_as to self")
	}
	c.userFolder("storage.runs_dir", st.RunsDir, c.plain)
	if st.Login != nil {
		c.userFolder("storage.login.runs_dir", st.Login.RunsDir, func(field, got string) { c.path(field, got, true) })
	}
	if st.SFTP != nil && st.SFTP.RunsDir != "" {
		c.add("SITE-RUN-AS", "storage.sftp.runs_dir", "not with slurm.run_as: caller",
			"the files of runs go over slurm.caller.ssh, as the user, and storage.sftp is for images only", "remove it")
	}
	if s.Caller != nil {
		c.caller(*s.Caller)
	}
}

// userFolder checks a folder that each user has.
func (c *checker) userFolder(field, got string, check func(field, got string)) {
	components := 0
	for _, name := range strings.Split(got, "/") {
		if name == UserMark {
			components++
		}
	}
	if got != "" && (components != 1 || strings.Count(got, UserMark) != 1) {
		c.value("SITE-RUN-AS", field, got, "a path in which one folder is {user}, with slurm.run_as: caller",
			"each user has a separate folder for runs, for example /scratch/{user}/slurmgate")
		return
	}
	before := len(c.problems)
	check(field, strings.Replace(got, UserMark, plainUser, 1))
	for i := range c.problems[before:] {
		p := &c.problems[before+i]
		p.Msg = strings.Replace(p.Msg, "/"+plainUser, "/"+UserMark, 1)
	}
}

func (c *checker) caller(a Caller) {
	const at = "slurm.caller"
	ssh := at + ".ssh"
	c.host(ssh, a.SSH.Host, "give the host alone: each user is logged in under the user's own name")
	c.bounds(ssh+".port", int64(a.SSH.Port), 1, 65535)
	for i, file := range a.SSH.KnownHosts {
		c.keyFile(fmt.Sprintf("%s.known_hosts[%d]", ssh, i), file)
	}
	c.jumps(ssh, a.SSH.Jump)
	if len(a.Signer) > maxSocketBytes {
		c.add("SITE-SOCKET", at+".signer", fmt.Sprintf("at most %d bytes, the limit of Unix sockets", maxSocketBytes),
			fmt.Sprintf("the path has %d bytes, which is too long", len(a.Signer)), "use a short path")
	}
	if len(a.SourceAddresses) == 0 {
		c.add("SITE-MISSING", at+".source_addresses", "at least one address or network, unless slurm.caller.ssh.host is a loopback address",
			"the addresses are missing",
			"list the addresses from which sshd on "+a.SSH.Host+" sees this gateway: certificates are good from there only")
	}
	for i, from := range a.SourceAddresses {
		field := fmt.Sprintf("%s.source_addresses[%d]", at, i)
		const rule = "an IP address, or a network such as 10.0.0.0/24"
		if p, err := ParseNetwork(from); err != nil {
			c.value("SITE-ADDRESS", field, from, rule, "")
		} else if p.Bits() == 0 {
			c.value("SITE-ADDRESS", field, from, rule+", not all addresses",
				"a certificate that is good from everywhere is not bound to this gateway")
		} else if !p.Addr().IsLoopback() && a.SSH.isLoopback() {
			c.value("SITE-ADDRESS", field, from, "a loopback address, as slurm.caller.ssh.host is", "sshd sees this gateway at 127.0.0.1 or ::1")
		}
	}
	c.bounds(at+".max_uid", int64(a.MaxUID), int64(max(1, a.MinUID)), maxUID)
}

// callerNotes lists the settings with which a site with run_as: caller weakens its protection.
func (s *Site) callerNotes() (notes []fault.Problem) {
	if !s.AsCaller() {
		return nil
	}
	note := func(field, rule, msg, hint string) {
		notes = append(notes, fault.Problem{Code: "SITE-CALLER-WEAK", Field: field, File: s.file, Rule: rule, Msg: msg, Hint: hint})
	}
	c := s.Slurm.Caller
	if c.MinUID < 1000 {
		note("slurm.caller.min_uid", "1000 or more", fmt.Sprintf("users with a uid from %d are accepted; below 1000 are system users", c.MinUID),
			"leave it at 1000 unless people of this site have lower uids")
	}
	var left []string
	for _, g := range []string{"sudo", "wheel", "docker"} {
		if !slices.Contains(c.RefuseGroups, g) {
			left = append(left, g)
		}
	}
	if len(left) > 0 {
		note("slurm.caller.refuse_groups", "with "+strings.Join(left, ", "),
			"members of "+strings.Join(left, ", ")+" are accepted: where those groups may become root, a stolen key of the gateway may too",
			"list every group whose members may become root")
	}
	for _, from := range c.SourceAddresses {
		if p, err := ParseNetwork(from); err == nil && p.Bits() < p.Addr().BitLen() && !p.Addr().IsLoopback() {
			note("slurm.caller.source_addresses", "single addresses", "certificates are good from the whole network "+p.String(),
				"name the addresses of this gateway alone")
		}
	}
	return notes
}

// patternsMeet reports whether two folders could be one, or inside each other, for some user.
func patternsMeet(a, b string) bool {
	one, other := strings.Split(filepath.Clean(a), "/"), strings.Split(filepath.Clean(b), "/")
	for i := range min(len(one), len(other)) {
		if one[i] != other[i] && one[i] != UserMark && other[i] != UserMark {
			return false
		}
	}
	return true
}

// callerHost names the host of users' files, for comparing clusters.
func (s *Site) callerHost() string {
	if c := s.Slurm.Caller; s.AsCaller() && c != nil {
		if a, err := netip.ParseAddr(c.SSH.Host); err == nil && a.IsLoopback() || c.SSH.Host == "localhost" {
			return path.Join("loopback", fmt.Sprint(c.SSH.Port))
		}
		return c.SSH.Address()
	}
	return ""
}
