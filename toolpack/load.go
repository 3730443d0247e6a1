package toolpack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"slurmgate/fault"
	"slurmgate/filetype"
	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

const (
	packSuffix = ".tool.yaml"
	maxPacks   = 10000

	maxProblems = 200 // of toolpacks in one report; reading stops there
)

// codeStopped is the code of the problem that reports that not every toolpack was read.
const codeStopped = "PACK-STOPPED"

// Set is the packs of a domain, sorted by id. It is immutable.
type Set struct {
	packs []*Pack
	hash  string
}

// Load reads every *.tool.yaml below dir. Schemas may be anywhere below dir. If any pack breaks a rule, Load returns no
// set and one Validation fault that reports every broken rule.
func Load(dir string, list ...Option) (*Set, error) {
	root, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	set, _, found := loadAll(root.FS(), dir, ".", filetype.Names(), chosen(list))
	if len(found) > 0 {
		return nil, broken(dir, found)
	}
	return set, nil
}

// openRoot opens a folder. It checks the path first: opening a named pipe waits for its other end.
func openRoot(dir string) (root *os.Root, err error) {
	kind := fault.Transport
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist):
		kind = fault.NotFound
	case err == nil && !info.IsDir():
		kind = fault.Validation
	}
	if kind == fault.Validation {
		err = &fs.PathError{Path: dir, Err: syscall.ENOTDIR}
	} else if root, err = os.OpenRoot(dir); err == nil {
		return root, nil
	}
	return nil, fault.Wrap(kind, "domain_not_readable", "the folder "+dir+" cannot be opened", err).
		WithNext("give the path of a domain package's folder")
}

// broken makes the report on a folder: one fault with all its problems.
func broken(dir string, found []fault.Problem) error {
	slices.SortStableFunc(found, func(a, b fault.Problem) int { return cmp.Or(strings.Compare(a.File, b.File), a.Line-b.Line) })
	found = slices.CompactFunc(found, fault.Problem.Equal)
	msg := fmt.Sprintf("%d rules are broken in %s", len(found), dir)
	switch stopped := slices.IndexFunc(found, isStop); {
	case stopped >= 0:
		msg = fmt.Sprintf("rules are broken in %s; %s", dir, found[stopped].Msg)
	case len(found) == 1:
		msg = "a rule is broken in " + dir
	}
	return &fault.Error{Kind: fault.Validation, Code: found[0].Code, Msg: msg, Problems: found,
		Next: "correct the named lines"}
}

func isStop(p fault.Problem) bool { return p.Code == codeStopped }

// loadAll reads the packs below sub in a domain folder. base is how messages name that folder. all holds every pack whose
// file could be read, broken ones included, so that a domain can say more about them; set is nil if there are problems.
func loadAll(fsys fs.FS, base, sub string, types []string, o options) (set *Set, all []*Pack, found []fault.Problem) {
	l := loader{defaults: o.defaults, schemas: &schemaFiles{fsys: fsys, base: filepath.ToSlash(base), docs: map[string]*schemaDoc{}},
		types: types, taken: o.taken, byName: map[string]*Pack{}, byID: map[string]*Pack{}}
	if at, err := fs.Lstat(fsys, sub); err == nil && at.Mode()&fs.ModeSymlink != 0 {
		l.refuseLink(sub)
		return nil, nil, l.problems
	}
	var rels []string
	err := fs.WalkDir(fsys, sub, func(rel string, e fs.DirEntry, err error) error {
		switch {
		case o.packless && rel == sub && errors.Is(err, fs.ErrNotExist):
			return fs.SkipAll
		case err == nil && e.Type()&fs.ModeSymlink != 0:
			if to, err := fs.Stat(fsys, rel); err != nil || !to.Mode().IsRegular() || strings.HasSuffix(rel, packSuffix) {
				l.refuseLink(rel)
			}
		case err != nil:
			l.note("PACK-FILE", rel, "a readable folder or file", clip(err.Error()), "")
			if e != nil && e.IsDir() {
				return fs.SkipDir
			}
		case !e.IsDir() && strings.HasSuffix(path.Base(rel), ".tool.yml"):
			l.note("PACK-FILE", rel, "a name that ends in "+packSuffix, "it ends in .tool.yml", "rename it")
		case e.IsDir() || !strings.HasSuffix(path.Base(rel), packSuffix):
		case clip(rel) != rel && len(rel) <= 200:
			l.note("PACK-FILE", rel, "a path of printable characters", "the file name contains control or invisible characters", "rename it")
		case len(rels) >= maxPacks:
			l.note("PACK-COUNT", rel, "", fmt.Sprintf("the domain has more than %d toolpacks", maxPacks), "split the domain")
			return fs.SkipAll
		default:
			rels = append(rels, rel)
		}
		return nil
	})
	if err != nil {
		l.note("PACK-FILE", sub, "a readable folder", clip(err.Error()), "")
	}
	l.files(rels)
	if len(l.problems) > 0 {
		return nil, l.set.packs, l.problems
	}
	slices.SortFunc(l.set.packs, func(a, b *Pack) int { return strings.Compare(a.ID(), b.ID()) })
	hashes := map[string]string{}
	for _, p := range l.set.packs {
		hashes[p.ID()] = p.Hash()
	}
	if l.set.hash, err = hashOf(hashes); err != nil {
		l.note("PACK-HASH", sub, "canonical JSON", clip(err.Error()), "")
	}
	return &l.set, l.set.packs, l.problems
}

type loader struct {
	schemas  *schemaFiles
	defaults *Defaults
	types    []string
	taken    map[string]string // names of the gateway's own operations → ids
	set      Set
	byName   map[string]*Pack
	byID     map[string]*Pack
	problems []fault.Problem
}

func (l *loader) note(code, rel, rule, msg, hint string) {
	l.problems = append(l.problems, fault.Problem{Code: code, Rule: rule, Msg: msg, Hint: hint, File: l.schemas.name(rel)})
}

// refuseLink reports a symbolic link to a toolpack or a folder: its target could change without a change here, and skipping
// it silently would leave tools out.
func (l *loader) refuseLink(rel string) {
	l.note("PACK-LINK", rel, "a file of the domain itself", "it is a symbolic link, and links are not followed",
		"put the files themselves here, or bind-mount the folder")
}

// files reads the packs until there are too many problems for one report.
func (l *loader) files(rels []string) {
	for i, rel := range rels {
		if l.read(rel); len(l.problems) > maxProblems {
			l.problems = l.problems[:maxProblems:maxProblems]
			l.note(codeStopped, path.Dir(rels[0]), "",
				fmt.Sprintf("stopped after %d problems in the first %d of %d toolpacks", maxProblems, i+1, len(rels)),
				"correct these, then check again")
			return
		}
	}
}

// read reads a pack and adds it, broken or not.
func (l *loader) read(rel string) {
	data, msg := readFile(l.schemas.fsys, rel)
	if msg != "" {
		l.note("PACK-FILE", rel, fmt.Sprintf("a regular file of at most %d bytes", yamldoc.MaxBytes), msg, "")
		return
	}
	p := &Pack{file: l.schemas.name(rel), types: l.types}
	d := &draft{Reader: &yamldoc.Reader{File: p.file, Prefix: "PACK", Case: yamldoc.Camel}, Pack: p, rel: rel,
		defaults: l.defaults}
	d.read(data)
	contractOf := func(field string) (c contract) {
		if doc := d.documents[field]; doc != nil {
			var more []fault.Problem
			c, more = l.schemas.contract(d, field, field == "inputSchema", doc)
			l.problems = append(l.problems, more...)
		}
		return c
	}
	p.in, p.out = contractOf("inputSchema"), contractOf("outputSchema")
	d.check()
	p.idAt.line, p.idAt.column = d.Place("id")
	p.imageAt.line, p.imageAt.column = d.Place("container.image")
	p.bindsAt.line, p.bindsAt.column = d.Place("binds")
	if len(d.Problems()) == 0 && p.in.schema != nil && p.out.schema != nil {
		p.def.InputSchema, p.def.OutputSchema = p.in.raw, p.out.raw
		var err error
		if p.hash, err = hashOf(p.def); err != nil {
			d.Add("HASH", "", "canonical JSON of bounded size", fault.First(err), "")
		}
		p.runOutput = p.out.raw
		if role := p.def.resultRole(); p.def.OutputSchemaOf == ofResult && role != "" {
			if p.runOutput, err = runSchema(p.out.raw, role); err != nil {
				d.Add("SCHEMA", "outputSchema", "a schema this gateway can use", fault.First(err), "")
			}
		}
		p.rules, _ = readRules(p.def) // every part was parsed before, so this cannot fail
		p.canonical = sync.OnceValues(func() ([]byte, error) { return plan.Marshal(p.def) })
	}
	l.name(p, d)
	l.problems = append(l.problems, d.Problems()...)
	l.set.packs = append(l.set.packs, p)
}

// name reports a name that is already in use.
func (l *loader) name(p *Pack, d *draft) {
	id := p.def.ID
	if id == "" {
		return
	}
	name, field := p.ToolName(), "id"
	if d.Has("toolName") {
		field = "toolName"
	}
	switch own, twin, known := cmp.Or(l.taken[name], l.taken[toolName(id)]), l.byName[name], l.byID[id]; {
	case own != "":
		d.Add("TOOL-NAME", field, "no id or name of the gateway's own operations",
			`"`+clip(name)+`" is the name of the operation `+own, "choose another "+field)
	case known != nil:
		d.Add("DUPLICATE-ID", "id", "each id once", known.file+" already has it", "choose another id")
	case twin != nil:
		d.Add("TOOL-NAME", field, "each tool name once", twin.file+" already has it", "choose another "+field)
	default:
		l.byName[name] = p
	}
	l.byID[id] = p
}

func hashOf(v any) (string, error) {
	canonical, err := plan.Marshal(v)
	if err != nil {
		return "", err
	}
	return plan.Hash(canonical), nil
}

// List returns the packs, sorted by id.
func (s *Set) List() []*Pack { return slices.Clone(s.packs) }

// Get returns the pack with the id. An absent id is a NotFound fault.
func (s *Set) Get(id string) (*Pack, error) {
	i, ok := slices.BinarySearchFunc(s.packs, id, func(p *Pack, id string) int { return strings.Compare(p.ID(), id) })
	if !ok {
		return nil, fault.New(fault.NotFound, "tool_not_found", `there is no tool "`+clip(id)+`"`).
			WithSteps(fault.Do("tool.list"))
	}
	return s.packs[i], nil
}

// Hash covers the ids and pack hashes of the whole set.
func (s *Set) Hash() string { return s.hash }

// ByHash returns the pack with that pack_hash, if it is loaded.
func (s *Set) ByHash(hash string) (*Pack, bool) {
	i := slices.IndexFunc(s.packs, func(p *Pack) bool { return p.hash == hash })
	if i < 0 {
		return nil, false
	}
	return s.packs[i], true
}
