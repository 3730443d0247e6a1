package plan

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"minimum", "maximum", "minLength", "enum", "not", "if", "cpus", "mem_mb"}
	for word, want := range map[string]string{"minimun": "minimum", "maxmum": "maximum", "minlength": "minLength", "enmu": "enum",
		"memMb": "mem_mb", "cpu": "cpus",
		"colour": "", "x": "", "": "", "multipleOf": "", "ni": ""} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
	if DidYouMean("enun", known) != `did you mean "enum"?` || DidYouMean("zzzzz", known) != "" {
		t.Error("the question")
	}
}
