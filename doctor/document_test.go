package doctor

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// docs/operations.md lists every check, as the list has it.
//
// proves OPS-02
func TestTableOfChecks(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| code | looks at | proves | at start-up |\n|---|---|---|---|\n")
	for _, k := range Table() {
		early := ""
		if k.Early {
			early = "yes"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s |\n", k.Code, k.Where, k.Proves, early)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/operations.md has to contain\n%s", want.String())
	}
}
