package convert

import (
	"testing"

	"slurmgate/fault"
)

// A refusal leaves no files; two files of one path are a refusal; nothing to convert is an error, as an unknown system is.
func TestConvert(t *testing.T) {
	made := func(f func(*conversion), in ...File) (Result, error) {
		sources["of-this-test"] = f
		defer delete(sources, "of-this-test")
		return Convert("of-this-test", in)
	}
	in := []File{{"b.yaml", []byte("b")}, {"a.yaml", []byte("a")}}
	r, err := made(func(c *conversion) {
		for _, f := range c.in {
			c.write(f.Path, "toolpacks/../"+f.Path, f.Data)
			c.keep(f.Path, "", "as it is")
		}
	}, in...)
	if err != nil || len(r.Files) != 2 || r.Files[0].Path != "a.yaml" || len(r.Kept) != 2 {
		t.Error(r, err)
	}
	r, err = made(func(c *conversion) {
		c.write("a.yaml", "x", nil)
		c.write("b.yaml", "x", nil)
	}, in...)
	if err != nil || len(r.Files) != 0 || len(r.Refused) != 1 || r.Refused[0].Code != "CONVERT-TWICE" {
		t.Error(r, err)
	}
	if r, err := made(func(*conversion) {}, in...); !fault.Is(err, fault.NotFound) {
		t.Error(r, err)
	}
	r, err = made(func(c *conversion) {}, File{"a.yaml", []byte("a")}, File{"a.yaml", []byte("other")}, File{"a.yaml", []byte("a")})
	if err != nil || len(r.Refused) == 0 {
		t.Error(r, err)
	}
	if r, err := Convert("word", in); !fault.Is(err, fault.Validation) {
		t.Error(r, err)
	}
}
