package filetype

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lists of types in schema and documents anew")

// Schema and documents list the types that the table has.
func TestDocumentsListTheTypes(t *testing.T) {
	list, want := regexp.MustCompile(`FASTQ_GZ( [A-Z0-9_]+)+ DIRECTORY`), strings.Join(Names(), " ")
	for _, file := range []string{"../toolpack/toolpack.schema.json", "../docs/tools/toolpacks.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, list.ReplaceAll(text, []byte(want)), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		found := list.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s lists no types, want %s", file, want)
		}
		for _, got := range found {
			if got != want {
				t.Errorf("%s lists the types %s, want %s; write it anew with go test ./filetype -update", file, got, want)
			}
		}
	}
}
