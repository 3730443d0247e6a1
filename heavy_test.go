package slurmgate_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// A test that scripts/test runs without the race detector is there, in one of the packages named beside it: else it would run with it
// again, or not at all, and nobody would know.
func TestHeavyTestsAreThere(t *testing.T) {
	script, err := os.ReadFile("scripts/test")
	if err != nil {
		t.Fatal(err)
	}
	list := func(variable string) []string {
		m := regexp.MustCompile(`(?m)^` + variable + `='[^(\n]*\((.*)\)\$'$`).FindSubmatch(script)
		if m == nil {
			t.Fatalf("scripts/test has no %s", variable)
		}
		return strings.Split(string(m[1]), "|")
	}
	want := list("heavy")
	args := []string{"test", "-vet=off", "-list", "^(" + strings.Join(want, "|") + ")$"}
	for _, p := range list("heavy_packages") {
		args = append(args, "./"+p)
	}
	out, err := exec.Command("go", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		if !strings.Contains("\n"+string(out), "\n"+name+"\n") {
			t.Errorf("scripts/test names the test %s, which no package of heavy_packages has", name)
		}
	}
}
