package e2e

import (
	"testing"
)

// doctor finds nothing broken on a healthy site without a login node, compute nodes included: its probe jobs go through slurmrestd.
//
// proves SITE-06 OPS-02
// slurmrestd: all of it
func TestDoctorOverRESTAllIsWell(t *testing.T) {
	t.Parallel()
	s := restSite(t, "rest-sftp.yaml")
	s.ok(nil, "image", "add", "--replace", "probe", probeImage())
	s.wait(s.submit(probePlan("write", "out/result", "so that there is a ledger")).RunID)
	r := s.cli("doctor", "--json")
	var e examined
	r.object(t, &e)
	e.healthy(t, []string{"fault"}, []string{"accounts", "submit_limits", "tool_jobs"},
		"rest_files", "rest_token", "rest_connection", "rest_login", "rest_version", "rest_user", "sftp_login",
		"sftp_shell", "sftp_tools", "sftp_server", "runs_dir_same", "sftp_syncs_folders", "runs_dir", "runs_dir_write", "runs_dir_links",
		"images", "slurm_controller", "cluster_name", "accounting", "shared_filesystem", "node_runs_dir", "node_images", "node_user",
		"container", "job_name")
	if left := shell(t, "lab", `find "$1/runs" -maxdepth 1 -name '.doctor*'`, s.dir); left != "" {
		t.Errorf("doctor left %s", left)
	}
}
