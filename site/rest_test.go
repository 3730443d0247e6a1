package site

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// overREST returns a site file with the given slurm.rest and storage.
func overREST(rest, storage string) string {
	text := strings.Replace(least, "slurm:\n", "slurm:\n  transport: rest\n"+rest, 1)
	return strings.Replace(text, "storage:\n", "storage:\n"+storage, 1)
}

const unixSocket = "  rest: {url: unix:/run/slurmrestd.sock}\n"

// slurmrestd goes with files within reach, and with an SFTP server that gives a shell or none.
//
// proves SITE-01 SITE-06
func TestSiteOverREST(t *testing.T) {
	const sftp = "  transport: sftp\n  sftp: {host: dtn.example, key: /k, runs_dir: /data/runs%s}\n"
	yes, no := true, false
	dtn := func(user string, shell *bool) *SFTP {
		return &SFTP{SSH{Endpoint{"dtn.example", 22, user, nil, "/k", "", ""}, nil}, "/data/runs", "/shared/images", 4, 0, shell, false}
	}
	for name, x := range map[string]struct {
		rest, storage string
		want          REST
		sftp          *SFTP
		shell         bool
		folders       Folders
	}{
		"socket": {unixSocket, "", REST{URL: "unix:/run/slurmrestd.sock"}, nil, false, Folders{"/shared/runs", "/shared/images"}},
		"pipes": {"  rest: {command: [/usr/sbin/slurmrestd, -a, rest_auth/local], version: v0.0.42}\n", "",
			REST{Command: []string{"/usr/sbin/slurmrestd", "-a", "rest_auth/local"}, Version: "v0.0.42"}, nil, false,
			Folders{"/shared/runs", "/shared/images"}},
		"TLS": {"  rest: {url: 'https://slurm.example:6820', user: svc, token_file: /t, ca: /ca.pem}\n", fmt.Sprintf(sftp, ""),
			REST{URL: "https://slurm.example:6820", User: "svc", TokenFile: "/t", CA: "/ca.pem"}, dtn("svc", &yes), true,
			Folders{"/data/runs", "/shared/images"}},
		"no shell": {"  rest: {url: 'http://127.0.0.1:6820', token_command: [/bin/t, x]}\n", fmt.Sprintf(sftp, ", shell: false, user: data"),
			REST{URL: "http://127.0.0.1:6820", TokenCommand: []string{"/bin/t", "x"}}, dtn("data", &no), false,
			Folders{"/data/runs", "/shared/images"}},
	} {
		s := parse(t, overREST(x.rest, x.storage))
		if diff := cmp.Diff(&x.want, s.Slurm.REST, ignorePrivate); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(x.sftp, s.Storage.SFTP, ignorePrivate); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if !s.OverREST() || s.FarSlurm() || s.Slurm.BinDir != "" || s.LoginFolders() != x.folders || (s.ShellHost() != nil) != x.shell {
			t.Errorf("%s: %+v %v", name, s.Slurm, s.LoginFolders())
		}
		if x.shell && s.ShellHost() != &s.Storage.SFTP.SSH {
			t.Errorf("%s: the shell is on %+v", name, s.ShellHost())
		}
		wantReadBack(t, name, s)
	}
	second := fmt.Sprintf(clusterPart, "second")
	second = strings.Replace(second, "slurm: {", "slurm: {transport: rest, rest: {url: unix:/s}, ", 1)
	if s, err := several(t, mainPart, fmt.Sprintf(clusterPart, "first"), second); err != nil || s.Clusters()[1].Slurm.BinDir != "" {
		t.Error("one of several clusters", err)
	}
	if s := parse(t, far(login, "")); s.ShellHost() != s.Slurm.SSH {
		t.Error("over SSH the login node has the shell")
	}
}

// Settings that do not fit slurmrestd are refused, all together and each with its line. No message has a token or a
// password.
func TestSiteOverRESTRefused(t *testing.T) {
	const token = "eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJzdmMifQ.c2VjcmV0"
	of := func(rest string) string { return overREST("  rest: {"+rest+"}\n", "") }
	const sftp = "  transport: sftp\n"
	for name, x := range map[string]struct{ text, want string }{
		"no section":         {overREST("", ""), "6 SITE-MISSING slurm.rest"},
		"with another":       {strings.Replace(overREST(unixSocket, ""), "transport: rest", "transport: cli", 1), "8 SITE-TRANSPORT slurm.rest"},
		"with a login node":  {overREST(unixSocket+login, ""), "9 SITE-TRANSPORT slurm.ssh"},
		"no way":             {of("user: svc"), "8 SITE-MISSING slurm.rest.url"},
		"two ways":           {of("url: unix:/s, command: [/c]"), "8 SITE-TRANSPORT slurm.rest.command"},
		"relative socket":    {of("url: unix:s"), "8 SITE-URL slurm.rest.url"},
		"long socket":        {of("url: unix:/" + strings.Repeat("s", 107)), "8 SITE-SOCKET slurm.rest.url"},
		"no scheme":          {of("url: 'slurm.example:6820', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"no host":            {of("url: 'https://', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"no port":            {of("url: 'https://h', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"a name of loopback": {of("url: 'http://localhost:6820', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"a path":             {of("url: 'https://h:1/slurm/v0.0.42', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"a query":            {of("url: 'https://h:1?a=b', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"in the clear":       {of("url: 'http://slurm.example:6820', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"a password":         {of("url: 'https://u:c2VjcmV0@h:1', token_file: /t"), "8 SITE-URL slurm.rest.url"},
		"no token":           {of("url: 'https://h:1'"), "8 SITE-MISSING slurm.rest.token_file"},
		"two tokens":         {of("url: unix:/s, token_file: /t, token_command: [/t]"), "8 SITE-TRANSPORT slurm.rest.token_command"},
		"a token":            {of("url: unix:/s, token_file: " + token), "8 SITE-KEY slurm.rest.token_file"},
		"a printed token":    {of("url: unix:/s, token_file: SLURM_JWT=" + token), "8 SITE-KEY slurm.rest.token_file"},
		"echo of a token":    {of("url: unix:/s, token_command: [/bin/echo, " + token + "]"), "8 SITE-KEY slurm.rest.token_command[1]"},
		"relative token":     {of("url: unix:/s, token_file: t"), "8 SITE-PATH slurm.rest.token_file"},
		"relative command":   {of("command: [slurmrestd]"), "8 SITE-PATH slurm.rest.command[0]"},
		"a broken word":      {of(`command: [/c, "a\nb"]`), "8 SITE-COMMAND slurm.rest.command[1]"},
		"root":               {of("url: unix:/s, user: root"), "8 SITE-USER slurm.rest.user"},
		"no user name":       {of("url: unix:/s, user: a b"), "8 SITE-USER slurm.rest.user"},
		"ca of a socket":     {of("url: unix:/s, ca: /ca"), "8 SITE-TRANSPORT slurm.rest.ca"},
		"relative ca":        {of("url: 'https://h:1', token_file: /t, ca: ca"), "8 SITE-PATH slurm.rest.ca"},
		"version":            {of("url: unix:/s, version: v0.0.37"), "8 SITE-VALUE slurm.rest.version"},
		"unknown":            {of("url: unix:/s, token: " + token), "8 SITE-UNKNOWN-FIELD slurm.rest.token"},
		"commands": {overREST(unixSocket+"  bin_dir: /usr/bin\n  conf: /c\n", ""),
			"9 SITE-TRANSPORT slurm.bin_dir, 10 SITE-TRANSPORT slurm.conf"},
		"login folders":  {overREST(unixSocket, "  login: {runs_dir: /x}\n"), "12 SITE-TRANSPORT storage.login"},
		"no SFTP server": {overREST(unixSocket, sftp), "11 SITE-MISSING storage.sftp"},
		"SFTP without host": {overREST(unixSocket, sftp+"  sftp: {shell: false}\n"),
			"13 SITE-MISSING storage.sftp.host, 13 SITE-MISSING storage.sftp.key"},
		"SFTP without a key": {overREST(unixSocket, sftp+"  sftp: {host: h}\n"), "13 SITE-MISSING storage.sftp.key"},
		"all at once": {of("url: 'ftp://h', user: root, token_file: t, version: v1"),
			"8 SITE-URL slurm.rest.url, 8 SITE-USER slurm.rest.user, 8 SITE-PATH slurm.rest.token_file, 8 SITE-VALUE slurm.rest.version"},
	} {
		wantProblems(t, name, x.text, x.want)
	}
}
