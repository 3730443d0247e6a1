package site

import (
	"fmt"
	"strings"
	"testing"
)

// Every limit accepts the ends of its range and nothing beyond them.
func TestLimits(t *testing.T) {
	var none Limits
	for _, f := range none.fields() {
		for n, good := range map[int]bool{f.low - 1: false, f.low: true, f.high: true, f.high + 1: false} {
			_, err := Parse("site.yaml", fmt.Appendf([]byte(least), "limits: {%s: %d}\n", f.name, n))
			if good != (err == nil) || err != nil && !strings.Contains(err.Error(), "limits."+f.name) {
				t.Errorf("%s: %d: %v", f.name, n, err)
			}
		}
	}
}
