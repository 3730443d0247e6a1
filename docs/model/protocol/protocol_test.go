package protocol

import "testing"

// Every interleaving within the bound keeps the promises.
func TestProtocol(t *testing.T) {
	r := Check(All(), Quick())
	t.Logf("%d states, %d steps", r.States, r.Steps)
	if r.Problem != "" {
		t.Errorf("%s: %q", r.Problem, r.Path)
	}
	if r.States < 10_000 {
		t.Error("the model is too small")
	}
}

// Without any one of its layers the protocol breaks, and the model finds it.
func TestEveryLayerIsNeeded(t *testing.T) {
	for _, name := range LayerNames() {
		t.Run(name, func(t *testing.T) {
			l := All()
			l.Remove(name)
			r := Check(l, Quick())
			t.Logf("%s: %q", r.Problem, r.Path)
			if r.Problem == "" {
				t.Errorf("%d states without it, and nothing breaks", r.States)
			}
		})
	}
}
