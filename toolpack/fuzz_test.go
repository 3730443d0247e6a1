package toolpack

import (
	"strings"
	"testing"
	"testing/fstest"

	"slurmgate/filetype"
)

// Any toolpack and its schema loads or is refused, and what loads canonicalises or refuses.
func FuzzLoad(f *testing.F) {
	linked := with(f, "outputSchema: {type: object}", "outputSchema: {$ref: s.json}")
	for _, pack := range []string{base, linked, "", "a: &a [*a]", "a: &a [1]\nb: [*a, *a]", "<<: {a: 1}", "--- {}\n---\n", "? [a]\n: b",
		"!!binary x", strings.Repeat("[", 5000), "a: \"\\ud800\"", "%YAML 1.2\n---\na: 1"} {
		f.Add([]byte(pack), []byte(`{"type":"object"}`), []byte(`{"data":"`+artifact+`"}`))
	}
	f.Add([]byte(linked), []byte(`{"$ref":"#/allOf/0","allOf":[{"$ref":"#"}]}`), []byte(`{"n":1e400}`))
	f.Add([]byte(linked), []byte(`{"$ref":"s.json#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`), []byte(`[]`))
	for _, element := range []string{"{{ params.n + 1 }}", "{% for x in params.mode %}{{ x }}{% endfor %}",
		"{{ params.free | default('x') }}", "{% include 'x' %}", "{{ 'a' * 999999999 }}"} {
		f.Add([]byte(with(f, "\"{{params.n}}\"", "\""+element+"\"")), []byte(`{}`), []byte(`{"data":"`+artifact+`"}`))
	}
	f.Add([]byte(with(f, baseExec, "execution: {kind: python, module: \"a:b\"}\n")), []byte(`{}`), []byte(`{"data":"`+artifact+`"}`))
	for _, schema := range []string{"$schema: http://json-schema.org/draft-07/schema#\ntype: object\n$ref: ./s.json#/a", "a: [", "type: *x",
		`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"$ref":"#"}],"dependencies":{"a":["b"],"c":{"$ref":"s.yaml"}}}`} {
		f.Add([]byte(bareWith(f, "outputSchema: {type: object, properties: {text: {type: string}}, required: [text]}",
			"outputSchema: {$ref: s.yaml}")), []byte(schema), []byte(`{"text":""}`))
	}
	f.Add([]byte(forms), []byte(`{}`), []byte(formsArgs(f, map[string]any{"regions": art(2), "names": []string{"a"}})))
	for _, word := range []string{`{each: inputs.bam, args: ["{{ item[0] }}"]}`, `{each: "[1, [2]]", args: ["{{ item }}"]}`,
		`{when: "params.level == 1 and", args: [x]}`, `{when: "1 %} {% if 1", args: [x]}`, `{args: {}}`, `[x]`} {
		f.Add([]byte(edited(f, forms, `{each: inputs.bam, args: ["-b", "{{ item }}"]}`, word)), []byte(`{}`), []byte(formsArgs(f, nil)))
	}
	f.Add([]byte(edited(f, forms, "{index}.{label:bam}.bai", "{label:bai}{label:bam}{label:}{index:x}")), []byte(`{}`),
		[]byte(formsArgs(f, nil)))
	env := testEnv()
	env.Artifact = func(id string) (ArtifactInfo, error) {
		a, err := testEnv().Artifact(id)
		if err != nil {
			return formsEnv().Artifact(id)
		}
		return a, nil
	}
	defaults := defaultsOf(f, bareManifest)
	f.Fuzz(func(t *testing.T, pack, schema, args []byte) {
		fsys := fstest.MapFS{"a.tool.yaml": {Data: pack, Mode: 0o644}, "s.json": {Data: schema, Mode: 0o644},
			"s.yaml": {Data: schema, Mode: 0o644}}
		set, _, found := loadAll(fsys, "dom", ".", filetype.Names(), options{defaults: defaults})
		if (set == nil) != (len(found) > 0) {
			t.Fatal("neither loaded nor refused", found)
		}
		if set == nil {
			return
		}
		for _, p := range set.List() {
			if c, err := p.Canonicalize(args, env); err == nil {
				if _, err := c.Params("proj_3TJ9WQ29JJFCYX9JF6VHTEMGBY", "slurm_script_v1").Canonical(); err != nil {
					t.Fatal("a plan without canonical params", err)
				}
			}
			def, err := p.Definition()
			if err != nil {
				t.Fatal("a pack without a definition", err)
			}
			c, err := ReadContract(def)
			if err != nil || (c.CheckOutput(args) == nil) != (p.Contract().CheckOutput(args) == nil) {
				t.Fatal("its stored definition judges differently", err)
			}
			if (c.CheckValue("result", args) == nil) != (p.Contract().CheckValue("result", args) == nil) {
				t.Fatal("its stored definition judges the result differently")
			}
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestText), []byte(lockText))
	f.Fuzz(func(t *testing.T, manifest, lock []byte) {
		fsys := fstest.MapFS{ManifestFile: {Data: manifest, Mode: 0o644}, LockFile: {Data: lock, Mode: 0o644},
			PolicyFileName:            {Data: []byte("version: 1"), Mode: 0o644},
			PacksDir + "/a.tool.yaml": {Data: []byte(base), Mode: 0o644}}
		if d, found := openDomain(fsys, "dom", func(string, []byte) error { return nil }, options{}); (d == nil) != (len(found) > 0) {
			t.Fatal("neither opened nor refused", found)
		}
	})
}
