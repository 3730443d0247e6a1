package doctor

import (
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"

	"slurmgate/fault"
	"slurmgate/shell"
	"slurmgate/site"
)

//go:embed probe.tmpl.sh
var probeText string

//go:embed container.sh
var containerText string

var (
	probeTemplate     = template.Must(template.New("probe").Option("missingkey=error").Parse(probeText))
	containerTemplate = template.Must(template.New("container").Option("missingkey=error").Parse(containerText))
)

// probeFiles returns the files that the probe reads in its folder: its script, the program for a container, the images,
// and the token that identifies the folder. dir is the folder as nodes see it.
func probeFiles(dir, token string, s *site.Site, images []storedImage, inPlace []Reference) (map[string]string, error) {
	var list strings.Builder
	for _, i := range images {
		fmt.Fprintf(&list, "%d %s\n", i.size, i.path)
	}
	least := smallest(images)
	binds, find := "", "apptainer="+shell.Quote(s.Apptainer.Path)
	for _, b := range s.Apptainer.Binds {
		binds += shell.Quote(b.Source) + " "
	}
	if dir := s.Storage.BindArtifacts; dir != "" {
		binds += shell.Quote(dir+"/objects") + " "
	}
	for _, r := range s.Storage.InPlace {
		binds += shell.Quote(r.Path) + " "
	}
	references := ""
	for _, r := range inPlace {
		references += shell.Quote(r.Path) + " "
	}
	if m := s.Apptainer.Module; m != nil {
		find = "source " + shell.Quote(m.Init) + " && module load"
		for _, l := range m.Load {
			find += " " + shell.Quote(l)
		}
		find += "\napptainer=$(type -P apptainer)"
	}
	image, seccomp := "", ""
	if least.path != "" {
		image = shell.Quote(least.path)
	}
	if s.Apptainer.Seccomp != "" {
		seccomp = shell.Quote(s.Apptainer.Seccomp)
	}
	scratch := ""
	if s.Slurm.Scratch != "" {
		scratch = shell.Quote(s.Slurm.Scratch)
	}
	v := map[string]string{"Scratch": scratch, "Dir": shell.Quote(dir), "Runs": shell.Quote(s.Storage.RunsDir), "Token": token,
		"Store": shell.Quote(s.Storage.ImageStore),
		"Image": image, "Binds": binds, "References": references, "Find": find, "Seccomp": seccomp}
	var probe, container strings.Builder
	err := errors.Join(probeTemplate.Execute(&probe, v), containerTemplate.Execute(&container, v))
	return map[string]string{"token": token, "probe.sh": probe.String(), "container.sh": container.String(), "images": list.String()}, err
}

// storedImage is an image of the store that a tool names.
type storedImage struct {
	path string
	size int64
}

// digest returns the checksum an image is stored under.
func (i storedImage) digest() string { return strings.TrimSuffix(filepath.Base(i.path), ".sif") }

// smallest returns the image that nodes read to its end.
func smallest(images []storedImage) (least storedImage) {
	for _, i := range images {
		if least.path == "" || i.size < least.size {
			least = i
		}
	}
	return least
}

var question = regexp.MustCompile(`^[a-z_]+(\.[A-Za-z]+)?$`)

// parseAnswer parses what a probe wrote: a line with its version and the token, one line for each question, and "end
// yes". It returns an error for an answer that is cut short, or answers a question twice.
func parseAnswer(text, token string) (map[string]string, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != "slurmgate-probe 1 "+token {
		return nil, errors.New("the probe's answer does not begin with its version and token")
	}
	v := map[string]string{}
	for _, line := range lines[1:] {
		q, answer, _ := strings.Cut(line, " ")
		if _, twice := v[q]; twice || !question.MatchString(q) || v["end"] != "" {
			return nil, fmt.Errorf("the probe's answer has a line that is no answer: %s", fault.Quote(line, 80))
		}
		v[q] = answer
	}
	if v["end"] != "yes" {
		return nil, errors.New("the probe's answer is not complete")
	}
	return v, nil
}
