package plan

import "testing"

// A promise is a run id and a role, and nothing that is nearly one.
func TestParsePromise(t *testing.T) {
	const id = "run_00000000000000000000000000"
	if p, ok := ParsePromise(id + ":sorted"); !ok || p.RunID != id || p.Role != "sorted" || p.String() != id+":sorted" {
		t.Errorf("%+v %v", p, ok)
	}
	for _, s := range []string{"", id, id + ":", id + ":-x", id + ":a b", id + ":a:b", "run_0:a", " " + id + ":a", id + ":a\n",
		"ART" + id + ":a"} {
		if p, ok := ParsePromise(s); ok {
			t.Errorf("%q: %+v", s, p)
		}
	}
}

// A plan without promises has the bytes that it had before there were any.
//
// proves MANY-04
func TestPromisesChangeNothingElse(t *testing.T) {
	p := Params{ProjectID: ProjectID("demo"), Tool: &ToolExtra{Version: "1.0.0"}}
	without, err := p.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	p.Tool.Promises = []Promised{{DestRelpath: "in/x", Output: "run_00000000000000000000000000:a"}}
	with, err := p.Canonical()
	if err != nil || string(with) == string(without) {
		t.Errorf("%s %v", with, err)
	}
	const want = `"tool":{"max_output_bytes":0,"strict_outputs":false,"version":"1.0.0"}}`
	if got := string(without); got[len(got)-len(want):] != want {
		t.Errorf("%s", got)
	}
}
