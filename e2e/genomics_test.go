package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// types of files that an import does not detect by their content.
var types = map[string]string{".fa": "FASTA", ".fai": "FAI", ".bed": "BED", ".tsv": "TSV"}

// The tools of the genomics domain whose image the demo builds give on the cluster what the same programs give when they are called
// directly, byte for byte. The others are large: see TestEveryToolAgainstDirect (make tools).
//
// proves DATA-01 DATA-04
func TestGenomicsAgainstDirect(t *testing.T) {
	t.Parallel()
	againstDirect(t, newSite(t, "genomics"), func(b bench) bool { return b.image == "samtools" })
}

// againstDirect calls the programs of those benches directly, then runs the tools on the cluster, and compares.
func againstDirect(t *testing.T, s *site, chosen func(bench) bool) {
	at := map[string]string{} // "TOOL:PATH" → its file, as the cluster sees it
	for _, b := range genomicsBenches {
		if chosen(b) {
			b.direct(t, s, at)
		}
	}
	must(t, giveToLab(host(s.dir)+"/files"))
	for _, b := range genomicsBenches {
		if chosen(b) {
			t.Run(b.tool, func(t *testing.T) {
				t.Parallel()
				b.onCluster(t, s.as(t), at)
			})
		}
	}
}

// file returns the cluster's path of a file of inputs.
func (b bench) file(what string, at map[string]string) string {
	if name, ok := strings.CutPrefix(what, "data:"); ok {
		return data(name)
	}
	return at[what]
}

// direct calls the programs, in the folder files/TOOL of the site.
func (b bench) direct(t *testing.T, s *site, at map[string]string) {
	t.Helper()
	dir := s.dir + "/files/" + b.tool
	must(t, os.MkdirAll(host(dir)+"/out", 0o755))
	for what, places := range b.at {
		for place := range strings.SplitSeq(places, ",") {
			to := host(dir) + "/in/" + place
			must(t, os.MkdirAll(filepath.Dir(to), 0o755))
			must(t, command("cp", "-r", host(b.file(what, at)), to))
		}
	}
	for _, out := range b.output {
		if filepath.Ext(out) == "" && b.tool != "multiqc.report" {
			must(t, os.Mkdir(host(dir)+"/out/"+out, 0o755)) // as a job has the folders that it declares
		}
		at[b.tool+":"+out] = dir + "/out/" + out
	}
	var list []*exec.Cmd
	var log bytes.Buffer
	for i, argv := range b.pipe {
		c := exec.Command(filepath.Join(world.repo, "scripts/images/inside"),
			append([]string{"--work", host(dir), filepath.Join(world.repo, "build/images/rootfs", b.image)}, argv...)...)
		c.Stderr = &log
		if i > 0 {
			pipe := value(list[i-1].StdoutPipe())(t)
			c.Stdin = pipe
		}
		list = append(list, c)
	}
	if b.stdout != "" {
		f := value(os.Create(host(dir) + "/out/" + b.stdout))(t)
		defer f.Close()
		list[len(list)-1].Stdout = f
	}
	for _, c := range list {
		must(t, c.Start())
	}
	for i := range list {
		c := list[len(list)-1-i] // a pipe is closed when its writer has been waited for
		if err := c.Wait(); err != nil {
			t.Fatalf("%s: %v: %s", c, err, log.Bytes())
		}
	}
}

// onCluster runs the tool as a job and compares its outputs.
func (b bench) onCluster(t *testing.T, s *site, at map[string]string) {
	args := []string{"run", b.tool}
	for name, files := range b.inputs {
		list := strings.Split(files, ",")
		for _, what := range list {
			value := b.file(what, at)
			if typ := types[filepath.Ext(value)]; typ != "" {
				var a artifactRow
				s.ok(&a, "artifact", "import", value, "--type", typ)
				value = a.ArtifactID
			}
			args = append(args, "--input", name+"="+value)
		}
	}
	for _, p := range b.params {
		args = append(args, "--param", p)
	}
	var l looked
	s.ok(&l, append(args, "--wait")...)
	if l.State != "succeeded" || *l.ExitCode != 0 {
		t.Fatalf("%s: %v, want it succeeded with the status 0", b.tool, l)
	}
	for role, out := range b.output {
		to := s.dir + "/out-" + b.tool + "-" + role
		s.ok(nil, "artifact", "get", l.Roles[role], "-o", to)
		want, got := b.filesIn(t, host(at[b.tool+":"+out])), b.filesIn(t, host(to))
		if len(want) == 0 {
			t.Errorf("%s: the program itself wrote nothing", role)
		}
		same(t, b.tool+" "+role, got, want)
	}
}

// filesIn returns the content to compare of a file, or of the files below a folder, by their names.
func (b bench) filesIn(t *testing.T, at string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(at, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == b.left {
			return err
		}
		content, err := os.ReadFile(p)
		if err == nil && b.dated != "" {
			content, err = undated(content)
		}
		out[strings.TrimPrefix(p, at)] = string(content)
		return err
	}))
	return out
}
