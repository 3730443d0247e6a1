package cli

import (
	"strings"
	"testing"

	"slurmgate/app"

	"github.com/alecthomas/kong"
)

// An argument has one value: a second one is refused, whether it comes under the same name or under an input's other one.
func TestArgumentsOnce(t *testing.T) {
	for line, want := range map[string]string{
		"-p a=1 -p b=x=y --input r=f": "", "-p a= -p b=,;": "", "-p a": `expected "<key>=<value>"`,
	} {
		var c struct {
			Run Run `cmd:""`
		}
		p, err := kong.New(&c)
		must(t, err)
		_, err = p.Parse(append([]string{"run", "a.tool"}, strings.Fields(line)...))
		switch {
		case want == "" && (err != nil || c.Run.Param[1].value != "x=y" && c.Run.Param[1].value != ",;"):
			t.Errorf("%s: %v %v", line, c.Run.Param, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v", line, err)
		}
	}
	id := "art_183BZJHEYXMKZBB4A0X74BNFSS"
	tool := app.ToolDoc{Inputs: []app.PackInput{{Role: "reads", Param: "fastq"}}}
	for _, c := range []Run{{Input: named{{"reads", id}, {"fastq", id}}}, {Input: named{{"reads", id}},
		Param: named{{"fastq", id}}}, {Input: named{{"reads", id}, {"reads", id}}}, {Param: named{{"x", "1"}, {"x", "2"}}}} {
		if args, err := c.args(t.Context(), nil, nil, tool); err == nil || !strings.Contains(err.Error(), "already has a value") {
			t.Errorf("a value given twice makes the arguments %v (%v), want an error", args, err)
		}
	}
}
