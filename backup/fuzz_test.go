package backup

import (
	"strings"
	"testing"
)

// What is read as a list of objects is what the program writes, line for line.
func FuzzList(f *testing.F) {
	x := object{strings.Repeat("ab", 32), 7}
	f.Add([]byte(x.line()))
	f.Add([]byte("# -1\n"))
	f.Add([]byte(strings.Replace(x.line(), "objects/", "../", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var again strings.Builder
		if err := eachObject(data, func(o object) error { again.WriteString(o.line()); return nil }); err != nil {
			return
		}
		for _, line := range strings.Split(again.String(), "\n") {
			if !strings.Contains(string(data), strings.TrimPrefix(line, "# ")) {
				t.Errorf("%q was read from %q", line, data)
			}
		}
	})
}
