package e2e

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// doctor of a site over slurmrestd names what is wrong on the way there and says what to do; what comes before it is ok.
//
// proves SITE-06 OPS-02
func TestDoctorOverREST(t *testing.T) {
	t.Parallel()
	at := restOf(t)
	real, err := os.ReadFile(at.ThisMachine.TokenFile)
	must(t, err)
	token := func(t *testing.T, text string, mode os.FileMode) string {
		name := filepath.Join(t.TempDir(), "token")
		must(t, os.WriteFile(name, []byte(text), mode))
		return name
	}
	made := func(t *testing.T, user, lifespan string) string {
		return token(t, shell(t, "root", `devd token "$1" "$2"`, user, lifespan), 0o600)
	}
	unserved := "v0.0.38"
	if slices.Contains(at.Versions, unserved) {
		unserved = "v0.0.45"
	}
	for _, x := range []struct {
		name, code, status, found, remedy string
		plant                             func(t *testing.T, doc, rest tree)
	}{
		{"no socket", "rest_connection", "fault", "no such file", "start slurmrestd",
			func(_ *testing.T, _, rest tree) { rest["url"] = "unix:/nonexistent/s"; delete(rest, "ca") }},
		{"nobody listens", "rest_connection", "fault", "refused", "start slurmrestd",
			func(_ *testing.T, _, rest tree) {
				rest["url"] = strings.Replace(at.ThisMachine.HTTPS, ":6821", ":1", 1)
			}},
		{"an unknown authority", "rest_connection", "fault", "unknown authority", "slurm.rest.ca",
			func(_ *testing.T, _, rest tree) { delete(rest, "ca") }},
		{"no common version", "rest_version", "fault", unserved, "slurm.rest.version",
			func(_ *testing.T, _, rest tree) { rest["version"] = unserved }},
		{"no token", "rest_token", "fault", "no such file", "scontrol token",
			func(_ *testing.T, _, rest tree) { rest["token_file"] = "/nonexistent/token" }},
		{"an open token", "rest_files", "fault", "mode 0644", "chmod 600",
			func(t *testing.T, _, rest tree) { rest["token_file"] = token(t, string(real), 0o644) }},
		{"a token that has ended", "rest_token", "fault", "it ended at", "scontrol token", func(t *testing.T, _, rest tree) {
			part := base64.RawURLEncoding.EncodeToString
			rest["token_file"] = token(t, part([]byte(`{"alg":"HS256"}`))+"."+part([]byte(`{"sun":"lab","exp":1000000000}`))+".x", 0o600)
		}},
		{"another user's token", "rest_files", "fault", "a token of bob", "username=lab",
			func(t *testing.T, _, rest tree) { rest["token_file"] = made(t, "bob", "600") }},
		{"a token of SlurmUser", "rest_user", "fault", "may act for every user", "ordinary user", func(t *testing.T, _, rest tree) {
			rest["user"], rest["token_file"] = "slurm", made(t, "slurm", "3600")
		}},
		{"a token nobody renews", "rest_token", "warning", "nothing has renewed it", "timer",
			func(t *testing.T, _, rest tree) { rest["token_file"] = made(t, "lab", "300") }},
		{"a token of another key", "rest_login", "fault", "does not accept", "scontrol token", func(t *testing.T, _, rest tree) {
			text := strings.TrimSpace(string(real))
			rest["token_file"] = token(t, text[:strings.LastIndexByte(text, '.')+1]+strings.Repeat("A", 43), 0o600)
		}},
		{"another cluster", "cluster_name", "fault", "slurm.cluster is elsewhere", "slurm.cluster",
			func(_ *testing.T, doc, _ tree) { doc["slurm"].(tree)["cluster"] = "elsewhere" }},
		{"files out of reach", "sftp_connection", "fault", "refused", "check host, port",
			func(_ *testing.T, doc, _ tree) { doc["storage"].(tree)["sftp"].(tree)["port"] = 1 }},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			s := restSite(t, "rest-sftp.yaml", func(doc tree) { x.plant(t, doc, doc["slurm"].(tree)["rest"].(tree)) })
			r := s.cli("doctor", "--no-jobs", "--json")
			var e examined
			r.object(t, &e)
			if status, found, remedy := e.find(x.code); status != x.status || !strings.Contains(found, x.found) ||
				!strings.Contains(remedy, x.remedy) {
				t.Errorf("%s is %q: %s; %s\n%v", x.code, status, found, remedy, r)
			}
			for _, before := range []string{"rest_files", "rest_token", "rest_connection", "rest_login", "rest_version", "rest_user"} {
				if before == x.code {
					break
				}
				if status, found, _ := e.find(before); status != "ok" && x.code != "cluster_name" {
					t.Errorf("%s is %q: %s", before, status, found)
				}
			}
			if text := fmt.Sprint(r); strings.Contains(text, strings.TrimPrefix(strings.TrimSpace(string(real)), "SLURM_JWT=")) {
				t.Error("doctor shows the token")
			}
		})
	}
}

// doctor finds nothing broken on a healthy site without a login node, compute nodes included: its probe jobs go through slurmrestd.
//
// proves SITE-06 OPS-02
func TestDoctorOverRESTAllIsWell(t *testing.T) {
	t.Parallel()
	s := restSite(t, "rest-sftp.yaml")
	if r := s.cli("image", "add", "--replace", "probe", probeImage()); r.code != 0 {
		t.Fatal(r)
	}
	s.wait(s.submit(probePlan("write", "out/result", "so that there is a ledger")).RunID)
	r := s.cli("doctor", "--json")
	var e examined
	r.object(t, &e)
	for _, f := range e.Findings {
		ofPolicy := slices.Contains([]string{"accounts", "submit_limits", "tool_jobs"}, f.Code) // the domain's names an account that Slurm lacks
		if f.Status == "fault" && !ofPolicy {
			t.Errorf("%+v", f)
		}
	}
	for _, code := range []string{"rest_files", "rest_token", "rest_connection", "rest_login", "rest_version", "rest_user", "sftp_login",
		"sftp_shell", "sftp_tools", "sftp_server", "runs_dir_same", "sftp_syncs_folders", "runs_dir", "runs_dir_write", "runs_dir_links",
		"images", "slurm_controller", "cluster_name", "accounting", "shared_filesystem", "node_runs_dir", "node_images", "node_user",
		"container", "job_name"} {
		if status, found, _ := e.find(code); status != "ok" {
			t.Errorf("%s is %q: %s", code, status, found)
		}
	}
	if left := shell(t, "lab", `find "$1/runs" -maxdepth 1 -name '.doctor*'`, s.dir); left != "" {
		t.Errorf("doctor left %s", left)
	}
}
