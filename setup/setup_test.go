package setup_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"slurmgate/fault"
	"slurmgate/policy"
	"slurmgate/setup"
	"slurmgate/site"
)

// cluster is the output of a Slurm's commands.
type cluster struct {
	config     []string // besides ClusterName
	partitions []string
	nodes      []string
	assoc      []string
}

func ordinary() cluster {
	return cluster{
		config: []string{"AccountingStorageType = accounting_storage/slurmdbd", "AccountingStorageEnforce = associations", "KillWait = 30 sec",
			"SlurmctldParameters = (null)", "SLURM_CONF = /etc/slurm/slurm.conf"},
		partitions: []string{"PartitionName=batch AllowGroups=ALL AllowAccounts=ALL Default=YES Hidden=NO MaxTime=2-00:00:00 RootOnly=NO " +
			"State=UP MaxMemPerNode=UNLIMITED"},
		nodes: []string{"n1|batch|64|256000|(null)|idle|Unknown|none", "n2|batch|128|512000|(null)|mixed|Unknown|none"},
		assoc: []string{"lab-a|alpha|lab-b||normal||", "lab-a|alpha|lab-a||normal,long||"},
	}
}

// install writes the commands and returns their folder.
func (c cluster) install(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text), 0o755))
	}
	say := func(lines ...string) string { return "cat <<'END'\n" + strings.Join(append(lines, "END\n"), "\n") }
	write("sbatch", say("slurm 24.11.5"))
	write("scontrol", "case \"$*\" in *config*)\n"+say(append(c.config, "ClusterName = Alpha")...)+";;\n*)\n"+say(c.partitions...)+";; esac\n")
	write("sinfo", say(c.nodes...))
	write("sacctmgr", "sed \"s/^/$5|/\""+strings.TrimPrefix(say(c.assoc...), "cat")) // of the requested user
	return dir
}

// compose reads the cluster and returns the files.
func compose(t *testing.T, c cluster, change func(*setup.Asked)) (setup.Found, setup.Files, error) {
	t.Helper()
	dir := t.TempDir()
	a := setup.Asked{Site: filepath.Join(dir, "site.yaml"), Shared: dir, StateDir: filepath.Join(dir, "state"), User: "daemon",
		BinDir: c.install(t)}
	if change != nil {
		change(&a)
	}
	found, err := setup.Find(t.Context(), a)
	if err != nil {
		return found, setup.Files{}, err
	}
	files, err := setup.Compose(found, time.Unix(1_800_000_000, 0))
	return found, files, err
}

// read writes the files and reads them as the gateway does.
func read(t *testing.T, c cluster, change func(*setup.Asked)) (*site.Site, *policy.Policy) {
	t.Helper()
	found, files, err := compose(t, c, change)
	if err != nil {
		t.Fatal(fault.ProblemsOf(err), err)
	}
	must(t, setup.Write(found, files))
	s, err := site.Load(found.Site)
	if err != nil {
		t.Fatalf("%v\n%s", err, files.Site)
	}
	text, err := os.ReadFile(filepath.Join(s.DomainDir, "policies.yaml"))
	must(t, err)
	p, err := policy.Parse("policies.yaml", text, os.LookupEnv)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s, p
}

// The files contain the cluster's values, and they load. proves OPS-01
func TestFilesOfClusters(t *testing.T) {
	part := func(name, more string) string {
		return "PartitionName=" + name + " AllowGroups=ALL AllowAccounts=ALL Default=NO Hidden=NO MaxTime=01:00:00 RootOnly=NO State=UP " + more
	}
	for _, c := range []struct {
		name   string
		change func(*cluster)
		want   string
	}{
		{"ordinary", func(*cluster) {}, "site=alpha cluster=Alpha partition=batch account=lab-a accounting=auto grace=10 rpc=60 " +
			"partitions=[batch] accounts=[lab-a lab-b] qos=[normal long] cpus=128 mem=512000 time=172620 gpus=0"},
		{"no accounting", func(c *cluster) { c.config = []string{"AccountingStorageType = (null)", "KillWait = 5 sec"} },
			"site=alpha cluster=Alpha partition=batch account=default accounting=none grace=3 rpc=60 " +
				"partitions=[batch] accounts=[default] qos=none cpus=128 mem=512000 time=172620 gpus=0"},
		{"rate limit", func(c *cluster) { c.config[3] = "SlurmctldParameters = rl_enable,rl_refill_rate=2" },
			"site=alpha cluster=Alpha partition=batch account=lab-a accounting=auto grace=10 rpc=114 " +
				"partitions=[batch] accounts=[lab-a lab-b] qos=[normal long] cpus=128 mem=512000 time=172620 gpus=0"},
		{"rate limit of a longer period", func(c *cluster) {
			c.config[3] = "SlurmctldParameters = a,rl_enable,rl_refill_rate=40,rl_refill_period=60"
		}, "site=alpha cluster=Alpha partition=batch account=lab-a accounting=auto grace=10 rpc=38 " +
			"partitions=[batch] accounts=[lab-a lab-b] qos=[normal long] cpus=128 mem=512000 time=172620 gpus=0"},
		{"a rate without a limit", func(c *cluster) { c.config[3] = "SlurmctldParameters = rl_refill_rate=4" },
			"site=alpha cluster=Alpha partition=batch account=lab-a accounting=auto grace=10 rpc=60 " +
				"partitions=[batch] accounts=[lab-a lab-b] qos=[normal long] cpus=128 mem=512000 time=172620 gpus=0"},
		{"partitions that cannot be used", func(c *cluster) {
			c.partitions = []string{part("down", "State=DOWN"), part("hidden", "Hidden=YES"), part("root", "RootOnly=YES"),
				part("theirs", "AllowAccounts=lab-z"), part("denied", "DenyAccounts=lab-a"), part("group", "AllowGroups=wheel"), part("empty", ""),
				part("dead", ""), part("open", "AllowAccounts=lab-a,lab-c"), part("no", "MaxTime=UNLIMITED")}
			c.nodes = nil
			for _, p := range []string{"down", "hidden", "root", "theirs", "denied", "group", "open", "no"} {
				c.nodes = append(c.nodes, "n1|"+p+"|4|1000|gpu:a100:4(S:0-1),gpu:2,shard:9|idle|Unknown|none")
			}
			c.nodes = append(c.nodes, "n2|dead|4|1000|(null)|down*|Unknown|none")
		}, "site=alpha cluster=Alpha partition=open account=lab-a accounting=auto grace=10 rpc=60 " +
			"partitions=[open no] accounts=[lab-a lab-b] qos=[normal long] cpus=4 mem=1000 time=604800 gpus=6"},
		{"memory limit of a partition", func(c *cluster) {
			c.partitions[0] += " MaxMemPerNode=100000"
			c.partitions[0] = strings.Replace(c.partitions[0], "MaxMemPerNode=UNLIMITED", "", 1)
		}, "site=alpha cluster=Alpha partition=batch account=lab-a accounting=auto grace=10 rpc=60 " +
			"partitions=[batch] accounts=[lab-a lab-b] qos=[normal long] cpus=128 mem=100000 time=172620 gpus=0"},
		{"association with one partition", func(c *cluster) {
			c.partitions = append(c.partitions, part("debug", ""))
			c.nodes = append(c.nodes, "n3|debug|2|500|(null)|idle|Unknown|none")
			c.assoc = []string{"lab-a|alpha|lab-a|debug|normal||"}
		}, "site=alpha cluster=Alpha partition=debug account=lab-a accounting=auto grace=10 rpc=60 " +
			"partitions=[debug] accounts=[lab-a] qos=[normal] cpus=2 mem=500 time=3420 gpus=0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			shape := ordinary()
			c.change(&shape)
			s, p := read(t, shape, nil)
			qos := "none"
			if p.Slurm.QOS != nil {
				qos = fmt.Sprint(*p.Slurm.QOS)
			}
			got := fmt.Sprintf("site=%s cluster=%s partition=%s account=%s accounting=%s grace=%d rpc=%d partitions=%v accounts=%v qos=%s "+
				"cpus=%d mem=%d time=%d gpus=%d",
				s.Name, s.Slurm.Cluster, s.Slurm.DefaultPartition, s.Slurm.DefaultAccount, s.Slurm.Accounting, s.Slurm.GraceSeconds,
				s.Budget.RPCPerMinute,
				*p.Slurm.Partitions, *p.Slurm.Accounts, qos, p.Slurm.MaxCPUs, p.Slurm.MaxMemMB, p.Slurm.MaxTimeLimitSeconds, p.Slurm.MaxGPUs)
			if got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
		})
	}
}

// The package's unit may write to the folders of the site file; where those are others than the unit names, a drop-in adds them.
func TestUnitMayWriteToTheFolders(t *testing.T) {
	found, files, err := compose(t, ordinary(), nil)
	must(t, err)
	if all := strings.Join(files.Commands, "\n"); strings.Contains(all, "systemctl") {
		t.Errorf("a gateway without the package's unit gets the commands\n%s\nwant no drop-in", all)
	}
	found.User = "slurmgate"
	files, err = setup.Compose(found, time.Unix(1_800_000_000, 0))
	must(t, err)
	c, err := site.Parse(found.Site, []byte(files.Site))
	must(t, err)
	want := "ReadWritePaths=" + filepath.Dir(c.Storage.RunsDir) + " " + c.Gateway.StateDir + `\n`
	if last := files.Commands[len(files.Commands)-1]; !strings.Contains(last, want) {
		t.Errorf("the last command is\n%s\nwant a drop-in with %s", last, want)
	}
	unit, err := os.ReadFile("../packaging/slurmgate.service")
	must(t, err)
	found.Shared, found.StateDir = "/shared", "/var/lib/slurmgate"
	files, err = setup.Compose(found, time.Unix(1_800_000_000, 0))
	must(t, err)
	for _, line := range []string{"\nReadWritePaths=-/shared/slurmgate\n", "\nStateDirectory=slurmgate\n"} {
		if !strings.Contains(string(unit), line) {
			t.Errorf("packaging/slurmgate.service lacks the line %q", line)
		}
	}
	if all := strings.Join(files.Commands, "\n"); strings.Contains(all, "systemctl") {
		t.Errorf("for the folders that the unit names the commands are\n%s\nwant no drop-in", all)
	}
}

// A domain is copied, and keeps its policy except for what concerns Slurm.
func TestDomainIsCopied(t *testing.T) {
	_, p := read(t, ordinary(), func(a *setup.Asked) { a.Domain = "../domains/genomics" })
	if got := fmt.Sprint(*p.Slurm.Partitions, p.Limits.PreviewLines, p.EquivalentRuns); got != "[batch] 200submit" {
		t.Error(got)
	}
}

// All missing options are reported together, and nothing is written.
func TestWhatIsMissing(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*cluster)
		asked  func(*setup.Asked)
		want   string
	}{
		{"nothing is there", nil, func(a *setup.Asked) { a.User, a.Shared = "nobody-of-this-name", "/no/such/folder" },
			"SETUP-USER SETUP-SHARED"},
		{"root", nil, func(a *setup.Asked) { a.User = "root" }, "SETUP-USER"},
		{"account of others", nil, func(a *setup.Asked) { a.Account = "lab-z" }, "SETUP-ACCOUNT"},
		{"no association", func(c *cluster) { c.assoc = nil }, nil, "SETUP-USER"},
		{"no partition", func(c *cluster) { c.nodes = nil }, nil, "SETUP-ACCOUNT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("PATH", "/usr/bin:/bin")
			shape := ordinary()
			if c.change != nil {
				c.change(&shape)
			}
			found, _, err := compose(t, shape, c.asked)
			var codes []string
			for _, p := range fault.ProblemsOf(err) {
				if p.Hint == "" || p.Msg == "" {
					t.Errorf("the problem %s of %s has message %q and hint %q, want both", p.Code, p.Field, p.Msg, p.Hint)
				}
				codes = append(codes, p.Code)
			}
			if got := strings.Join(codes, " "); got != c.want {
				t.Errorf("%s: %v", got, err)
			}
			if _, err := os.Stat(found.Site); err == nil {
				t.Error("the site file was written")
			}
		})
	}
}

// No file is overwritten, and a failed write leaves nothing.
func TestWriteReplacesNothing(t *testing.T) {
	found, files, err := compose(t, ordinary(), nil)
	must(t, err)
	must(t, os.WriteFile(found.Site, []byte("mine"), 0o600))
	if err := setup.Write(found, files); fault.CodeOf(err) != "file_exists" {
		t.Error(err)
	}
	if text, _ := os.ReadFile(found.Site); string(text) != "mine" {
		t.Errorf("%q", text)
	}
	if entries, _ := os.ReadDir(filepath.Dir(found.Site)); len(entries) != 1 {
		t.Error(entries)
	}
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
