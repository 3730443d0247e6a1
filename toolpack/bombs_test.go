package toolpack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"slurmgate/fault"
)

// cpuTime returns the CPU time of this process: unlike the clock it does not count other processes on a busy machine.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u unix.Rusage
	must(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// within runs f and fails when it takes long or allocates without bound. The bounds are far above what is usual, for a busy
// machine under the race detector; what they are meant to catch would take minutes or gigabytes.
func within(t *testing.T, name string, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := cpuTime(t)
	f()
	took := cpuTime(t) - begin
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; took > time.Minute || mib > 2048 {
		t.Errorf("%s: %v, %d MiB allocated", name, took, mib)
	}
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }

// Documents made to cost. proves LOAD-11 ABI-20
func TestDocumentBombs(t *testing.T) {
	const most = 1 << 20
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x]\n")
	for i := 1; i < 30; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	long := repeat("k", 1000)
	for name, text := range map[string]string{
		"alias bomb":      laughs.String(),
		"alias to itself": "a: &a {b: *a, c: [*a, *a]}\n",
		"merge keys":      "a: &a {x: 1}\nb: {<<: [*a, *a, *a]}\n",
		"flow depth":      repeat("[", most-1),
		"mapping depth":   repeat("{a: ", most/4-1),
		"block depth":     repeat("- ", most/2-1),
		"key depth":       repeat("? ", most/2-1),
		"indented depth": func() string {
			var b strings.Builder
			for i := range 1000 {
				b.WriteString(repeat(" ", i) + "a:\n")
			}
			return b.String()
		}(),
		"depth in a schema": with(t, "outputSchema: {type: object}", "outputSchema: "+repeat("{not: ", 5000)+"true"+repeat("}", 5000)),
		"many keys": func() string {
			var b strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&b, "k%d: 1\n", i)
			}
			return b.String()
		}(),
		"one key many times": repeat("id: x\n", most/7),
		"many documents":     repeat("---\n", most/4-1),
		"long scalar":        "id: " + repeat("x", most-8),
		"long folded scalar": "id: >\n" + repeat("  x\n", most/4-4),
		"many tags":          repeat("- !!str x\n", most/10-1),
		"many anchors":       repeat("- &a x\n", most/7-1),
		"many comments":      repeat("# x\n", most/4-1),
		"escapes":            "id: \"" + repeat("\\U0001F600", most/10-2) + "\"",
		"control characters": repeat("\x01\x1b[2J", most/5-1),
		"no UTF-8":           "id: \"\xff\xfe\"",
		"UTF-16":             "\xff\xfei\x00d\x00",
		"NUL":                "id: a\x00b",
		"long names":         repeat(long+": {"+long+": 1}\n", 400),
		"too large":          repeat("#", most+1),
		"many inputs":        with(t, "inputs: [", "inputs: ["+repeat("{role: r, param: data, types: [TEXT], destRelpath: in/x}, ", 3_000)),
		"many words":         with(t, "-n,", repeat("-n, ", 50_000)),
		"many templates":     with(t, "-n,", repeat("\"{{ params.n }}\", ", 5_000)),
		"template depth":     with(t, "{{params.n}}", "{{ "+repeat("(", 4000)+"1"+repeat(")", 4000)+" }}"),
		"template chain":     with(t, "{{params.n}}", "{{ "+repeat("params.n ~ ", 700)+"1 }}"),
	} {
		within(t, name, func() {
			set, found := loadText(map[string]string{"a.tool.yaml": text})
			if set != nil && name != "template chain" {
				t.Errorf("%s was accepted", name)
			}
			if len(found) > maxReported {
				t.Errorf("%s: %d problems", name, len(found))
			}
			for _, p := range found {
				if len(p.String()) > 4000 || strings.ContainsAny(p.String(), "\x00\x01\x1b\n") {
					t.Errorf("%s: %.300q", name, p)
				}
			}
		})
	}
}

const maxReported = 600

// Schemas made to cost: when they are loaded, and when a caller's arguments are checked. proves LOAD-10
func TestSchemaBombs(t *testing.T) {
	double := func() string { // 2^40 ways to the same place
		var b strings.Builder
		for i := range 40 {
			fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
		}
		return `{"$ref":"#/$defs/d0","$defs":{` + b.String() + `"d40":{"type":"object"}}}`
	}()
	tree := `{"$defs":{"n":{"oneOf":[{"properties":{"l":{"$ref":"#/$defs/n"}}},{"required":["r"],"properties":{"l":{"$ref":"#/$defs/n"}}}]}},"$ref":"#/$defs/n"}`
	chain := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
		}
		return `{"$ref":"#/$defs/d0","$defs":{` + b.String() + fmt.Sprintf(`"d%d":true}}`, n)
	}
	for _, c := range []struct {
		name, schema, output string
		loads, holds         bool
	}{
		{"doubling", double, `{}`, true, false},
		{"doubling with a default", `{"properties":{"a":{"default":{},"$ref":"#/$defs/x"}},"$defs":{"x":` + strings.ReplaceAll(double,
			"#/$defs/", "#/$defs/x/$defs/") + `}}`, `{}`, false, false},
		{"doubling by depth", tree, repeat(`{"l":`, 50) + `{"r":1}` + repeat(`}`, 50), true, false},
		{"recursion that ends", `{"properties":{"a":{"$ref":"#"}}}`, repeat(`{"a":`, 60) + `{}` + repeat(`}`, 60), true, true},
		{"itself", `{"$ref":"#"}`, `{}`, false, false},
		{"itself by way of another", `{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"anyOf":[{"$ref":"#"}]}}}`, `{}`, false, false},
		{"itself in a condition", `{"if":{"$ref":"#"},"then":true}`, `{}`, false, false},
		{"itself, not at the top", `{"properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"not":{"$ref":"#/$defs/a"}}}}`, `{}`, false, false},
		{"a long chain", chain(5000), `{}`, true, true},
		{"many patterns", `{"patternProperties":{` + strings.TrimSuffix(func() string {
			var b strings.Builder
			for i := range 5000 {
				fmt.Fprintf(&b, `"^x%d$":true,`, i)
			}
			return b.String()
		}(), ",") + `}}`, `{"x1":1}`, true, true},
		{"backtracking, had it any", `{"properties":{"a":{"pattern":"^(a+)+$"}}}`, `{"a":"` + repeat("a", 60_000) + `!"}`, true, false},
		{"nested repetition", `{"properties":{"a":{"pattern":"((a{0,30}){0,30}b)*"}}}`, `{}`, true, true},
		{"huge repetition", `{"properties":{"a":{"pattern":"[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}[a-z]{1000}"}}}`, `{}`,
			false, false},
		{"repetition beyond RE2", `{"properties":{"a":{"pattern":"(a{1000}){1000}"}}}`, `{}`, false, false},
		{"long pattern", `{"properties":{"a":{"pattern":"` + repeat("a", 1001) + `"}}}`, `{}`, false, false},
		{"pattern as a name", `{"patternProperties":{"` + repeat("[a-z]{900}", 8) + `":true}}`, `{}`, false, false},
		{"look-behind", `{"properties":{"a":{"pattern":"(?<=x)y"}}}`, `{}`, false, false},
		{"back-reference", `{"properties":{"a":{"pattern":"(a)\\1"}}}`, `{}`, false, false},
		{"large enum", `{"properties":{"a":{"enum":[` + strings.TrimSuffix(repeat("1,", 1), ",") + repeat(`,"`+repeat("x", 100)+`"`,
			1) + `]}}}`, `{"a":1}`, true, true},
		{"dynamic reference", `{"$dynamicRef":"#x"}`, `{}`, false, false},
		{"over the network", `{"$ref":"http://127.0.0.1:1/x.json"}`, `{}`, false, false},
		{"a file of the host", `{"$ref":"file:///etc/passwd"}`, `{}`, false, false},
		{"another dialect", `{"$schema":"http://127.0.0.1:1/meta"}`, `{}`, false, false},
		{"metaschema over the network", `{"properties":{"a":{"$ref":"https://json-schema.org/draft/2020-12/schema"}}}`, `{}`, false, false},
	} {
		within(t, c.name, func() {
			set, found := loadText(map[string]string{"a.tool.yaml": with(t, "outputSchema: {type: object}", "outputSchema: {$ref: s.json}"),
				"s.json": c.schema})
			if (set != nil) != c.loads {
				t.Errorf("%s: loads %v, %v", c.name, set != nil, found)
			}
			if set == nil {
				return
			}
			err := set.List()[0].Contract().CheckOutput(json.RawMessage(c.output))
			if (err == nil) != c.holds || err != nil && !fault.Is(err, fault.Tool) {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
}

// A caller's arguments against a schema that invites trouble: given up, not endured.
func TestArgumentBombs(t *testing.T) {
	p := packOf(t, "    free: {type: string}\n", "    free: {type: string}\n    tree: {$ref: \"#/$defs/n\"}\n  $defs: {n: {oneOf: "+
		"[{properties: {l: {$ref: \"#/$defs/n\"}}}, {required: [r], properties: {l: {$ref: \"#/$defs/n\"}}}]}}\n")
	for name, args := range map[string]string{
		"depth":     `{"data":"` + artifact + `","tree":` + repeat(`{"l":`, 55) + `{"r":1}` + repeat(`}`, 55) + `}`,
		"too deep":  `{"data":"` + artifact + `","tree":` + repeat(`{"l":`, 5000) + `1` + repeat(`}`, 5000) + `}`,
		"too large": `{"data":"` + artifact + `","text":"` + repeat("x", 2<<20) + `"}`,
		"many unknown": `{"data":"` + artifact + `"` + func() string {
			var b strings.Builder
			for i := range 20_000 {
				fmt.Fprintf(&b, `,"u%d":1`, i)
			}
			return b.String()
		}() + `}`,
	} {
		within(t, name, func() {
			_, err := p.Canonicalize(json.RawMessage(args), testEnv())
			if !fault.Is(err, fault.Validation) || len(err.Error()) > 100_000 {
				t.Errorf("%s: %.300v", name, err)
			}
		})
	}
	if _, err := p.Canonicalize(json.RawMessage(`{"data":"`+artifact+`","tree":{"l":{"l":{}}}}`), testEnv()); err != nil {
		t.Error(err)
	}
	c := packOf(t).in
	if err := c.validate(c.schema, map[string]any{}); err == nil || errors.Is(err, errCostly) {
		t.Error(err)
	}
}

// Names with terminal control characters are printed escaped, and files of 100 MB are not read.
func TestOddDomains(t *testing.T) {
	dir := domainDir(t, nil)
	odd := []string{"a\x1b[2Jb.tool.yaml", "new\nline.tool.yaml", "bell\a.tool.yaml"}
	for _, name := range odd {
		write(t, dir, filepath.Join(PacksDir, name), base)
	}
	must(t, os.WriteFile(filepath.Join(dir, PacksDir, "latin\xe9.tool.yaml"), []byte(base), 0o644))
	_, err := openDir(dir)
	if n := len(fault.ProblemsOf(err)); n != 4 || strings.ContainsAny(strings.NewReplacer("\n  ", "", "\nNext: ", "").
		Replace(err.Error()), "\x1b\a\n") {
		t.Errorf("%d problems: %q", n, err)
	}
	for _, name := range []string{ManifestFile, PolicyFileName, LockFile, PacksDir + "/a.tool.yaml"} {
		dir := domainDir(t, nil)
		must(t, os.Truncate(filepath.Join(dir, name), 100<<20))
		within(t, name, func() {
			if _, err := openDir(dir); !strings.Contains(err.Error(), "larger than") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	dir = domainDir(t, map[string]string{PacksDir + "/a.tool.yaml": with(t, "outputSchema: {type: object}", "outputSchema: {$ref: s.json}"),
		PacksDir + "/s.json": "{}"})
	must(t, os.Truncate(filepath.Join(dir, PacksDir, "s.json"), 100<<20))
	if _, err := openDir(dir); fault.CodeOf(err) != "PACK-REF" {
		t.Error(err)
	}
}

// Ten thousand broken packs: reading stops, and the report has the number that was read.
func TestManyBrokenPacks(t *testing.T) {
	fsys := fstest.MapFS{}
	text := []byte("id: A\n" + repeat("field: x\n", 1))
	for i := range 9999 {
		fsys[fmt.Sprintf("toolpacks/p%05d.tool.yaml", i)] = &fstest.MapFile{Data: text, Mode: 0o644}
	}
	var wide strings.Builder
	for i := range 400 {
		fmt.Fprintf(&wide, "field%d: x\n", i)
	}
	fsys["toolpacks/a.tool.yaml"] = &fstest.MapFile{Data: []byte(wide.String()), Mode: 0o644}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, found := loadAll(fsys, "dom", PacksDir, nil, options{})
	runtime.ReadMemStats(&after)
	mib := (after.TotalAlloc - before.TotalAlloc) >> 20
	t.Logf("%d MiB allocated", mib)
	if len(found) != maxProblems+1 || mib > 100 {
		t.Errorf("%d problems, %d MiB", len(found), mib)
	}
	err := broken("dom", found)
	if !strings.Contains(err.Error(), "rules are broken in dom; stopped after 200 problems in the first 1 of 10000 toolpacks") ||
		!strings.Contains(err.Error(), "correct these, then check again") {
		t.Errorf("%.300v", err)
	}
}

// A link to a pack or to a folder of packs is refused by its name, wherever it leads; other links are no business of the loader.
func TestLinkedPacks(t *testing.T) {
	for name, c := range map[string]struct {
		link, to string
		refused  bool
	}{
		"a pack":              {"toolpacks/b.tool.yaml", "a.tool.yaml", true},
		"a folder":            {"toolpacks/more", "../elsewhere", true},
		"a folder outside":    {"toolpacks/more", "/", true},
		"nothing":             {"toolpacks/more", "gone", true},
		"a text beside packs": {"toolpacks/README", "a.txt", false},
	} {
		dir := t.TempDir()
		write(t, dir, "toolpacks/a.tool.yaml", base)
		write(t, dir, "toolpacks/a.txt", "x")
		write(t, dir, "elsewhere/c.tool.yaml", base)
		must(t, os.Symlink(c.to, filepath.Join(dir, c.link)))
		_, _, found := loadAll(os.DirFS(dir), dir, PacksDir, []string{"TEXT", "JSON"}, options{})
		if refused := len(found) == 1 && found[0].Code == "PACK-LINK" && found[0].File == filepath.Join(dir, c.link); refused != c.refused ||
			!refused && found != nil {
			t.Errorf("%s: %v", name, found)
		}
	}
	dir := t.TempDir()
	write(t, dir, "real/a.tool.yaml", base)
	must(t, os.Symlink("real", filepath.Join(dir, PacksDir)))
	if _, _, found := loadAll(os.DirFS(dir), dir, PacksDir, nil, options{}); len(found) != 1 || found[0].Code != "PACK-LINK" {
		t.Errorf("toolpacks/ itself: %v", found)
	}
}
