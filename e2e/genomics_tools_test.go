//go:build tools

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// compared are the tools of TestToolsAgainstDirect.
var compared = []string{"samtools.flagstat", "seqkit.stats", "minimap2.map"}

// Each tool of the genomics domain gives on the cluster what the same programs give when they are called directly, byte for byte; where a
// file has the time in it, without the time. No tool of the domain is left out.
//
// It is beside `make test`: see make tools. It proves DATA-01, DATA-02, DATA-03 and DATA-04 on the tools that ship.
func TestEveryToolAgainstDirect(t *testing.T) {
	var manifest struct {
		Tools []struct {
			ID string `yaml:"tool_id"`
		}
	}
	text, err := os.ReadFile(filepath.Join(world.repo, "domains/genomics/manifest.yaml"))
	must(t, err)
	must(t, yaml.Unmarshal(text, &manifest))
	for _, tool := range manifest.Tools {
		if !slices.Contains(compared, tool.ID) && !slices.ContainsFunc(genomicsBenches, func(b bench) bool { return b.tool == tool.ID }) {
			t.Errorf("%s is compared with nothing", tool.ID)
		}
	}
	againstDirect(t, genomicsSite(t), func(bench) bool { return true })
}

// genomicsSite is a site whose domain has all its images.
func genomicsSite(t *testing.T) *site {
	s := newSite(t, "genomics")
	must(t, command("scripts/images/build", "--all"))
	found, err := filepath.Glob(filepath.Join(world.repo, "build/images/*.sif"))
	must(t, err)
	for _, sif := range found {
		name := strings.TrimSuffix(filepath.Base(sif), ".sif")
		if name == "samtools" || name == "seqkit" || name == "minimap2" {
			continue // every site of this domain has them
		}
		to := s.dir + "/files/" + name + ".sif"
		must(t, command("cp", sif, host(to)))
		s.ok(nil, "image", "add", name, to)
	}
	return s
}
