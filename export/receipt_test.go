package export

import (
	"crypto/ed25519"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"slurmgate/export/receipt"
)

// signer makes keys that are the same each time.
func signer(seed byte) (ed25519.PrivateKey, receipt.Key) {
	secret := ed25519.NewKeyFromSeed([]byte(strings.Repeat(string(rune(seed)), ed25519.SeedSize)))
	public := secret.Public().(ed25519.PublicKey)
	return secret, receipt.Key{ID: receipt.KeyID(public), Public: public}
}

// sign adds the receipt of a run's end, as the ledger makes it.
func sign(t testing.TB, r Record, change func(*receipt.Predicate)) Record {
	t.Helper()
	secret, key := signer('k')
	run := r.Run
	p := receipt.Predicate{RunID: run.RunID, Attempt: run.Attempt, ProjectID: run.Project,
		Tool:      receipt.Tool{ID: run.ToolID, Name: run.ToolName, Version: run.ToolVersion, ContractVersion: run.ContractVersion},
		End:       receipt.End{State: run.State, Reason: run.Reason, RunEnded: true},
		Execution: receipt.Execution{ExecutedAs: run.ExecutedAs},
		ResolvedDependencies: []receipt.Resource{receipt.Hashed(receipt.Image, run.Image), receipt.Hashed(receipt.Params, run.ParamsHash),
			receipt.Hashed(receipt.Policy, run.PolicyHash), receipt.Hashed(receipt.Plan, run.PlanHash), receipt.Hashed(receipt.Pack, run.PackHash),
			receipt.Hashed(receipt.Script, run.Script.SHA256)}}
	for _, a := range run.Inputs {
		p.ResolvedDependencies = append(p.ResolvedDependencies, receipt.Hashed("input/"+a.Relpath, a.SHA256))
	}
	var outputs []receipt.Resource
	for _, a := range run.Outputs {
		outputs = append(outputs, receipt.Hashed(receipt.OutputName(a.Role, a.Label), a.SHA256))
	}
	for _, a := range run.Logs {
		p.Byproducts = append(p.Byproducts, receipt.Hashed(a.Role, a.SHA256))
	}
	if change != nil {
		change(&p)
	}
	body, err := receipt.Encode(outputs, p)
	must(t, err)
	r.Receipt, err = receipt.Wrap(body, key.ID, receipt.Sign(secret, body))
	must(t, err)
	r.Keys, err = Keys([]receipt.Key{key})
	must(t, err)
	return r
}

// A signed archive says whose key signed; it is trusted only where the caller gave that key. A receipt of something else, a missing one
// and another's key are found.
//
// proves EXP-01 EXP-02
func TestSignedArchive(t *testing.T) {
	_, ours := signer('k')
	_, other := signer('o')
	asJSON := func(k receipt.Key) []byte {
		data, err := Keys([]receipt.Key{k})
		must(t, err)
		return data
	}
	for _, x := range []struct {
		name    string
		change  func(*receipt.Predicate)
		failed  bool
		keys    []byte
		trusted bool
		problem string // "": none
	}{
		{name: "no keys given"},
		{name: "the key given as PEM", keys: []byte(ours.PEM()), trusted: true},
		{name: "the key given as JSON, with another", keys: append([]byte(other.PEM()), ours.PEM()...), trusted: true},
		{name: "as JSON", keys: asJSON(ours), trusted: true},
		{name: "a failed run", failed: true, keys: []byte(ours.PEM()), trusted: true},
		{name: "another's key given", keys: []byte(other.PEM()), problem: "no signature is of a key that was given"},
		{name: "of another run", change: func(p *receipt.Predicate) { p.RunID = "run_00000000000000000000000000" },
			problem: "not about this run's end"},
		{name: "of an earlier attempt", change: func(p *receipt.Predicate) { p.End.RunEnded = false }, problem: "not about this run's end"},
		{name: "of another end", change: func(p *receipt.Predicate) { p.End.State = "cancelled" }, problem: `state: it has "succeeded"`},
		{name: "of another user", change: func(p *receipt.Predicate) { p.Execution.ExecutedAs = "bob" }, problem: "executed as"},
		{name: "of other inputs", change: func(p *receipt.Predicate) {
			p.ResolvedDependencies[len(p.ResolvedDependencies)-1].Digest.SHA256 = strings.Repeat("b", 64)
		}, problem: `"input/in/reads one.txt" is `},
		{name: "of fewer inputs", change: func(p *receipt.Predicate) {
			p.ResolvedDependencies = p.ResolvedDependencies[:len(p.ResolvedDependencies)-1]
		}, problem: "is not among the receipt's materials"},
		{name: "of other logs", change: func(p *receipt.Predicate) { p.Byproducts[0].Digest.SHA256 = strings.Repeat("b", 64) },
			problem: "log log has"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, store := made(t)
			if x.failed {
				r = failed(t, r)
			}
			rep, err := Verify(t.Context(), saved(t, archive(t, sign(t, r, x.change), store, Options{})), x.keys)
			must(t, err)
			if found := problems(rep); (found != "") != (x.problem != "") || !strings.Contains(found, x.problem) {
				t.Errorf("problems %q", found)
			}
			if rep.Signature.Trusted != x.trusted || rep.Signature.Signed && rep.Signature.KeyIDs[0] != ours.ID {
				t.Errorf("%+v", rep.Signature)
			}
		})
	}
	r, store := made(t)
	unsigned := saved(t, archive(t, r, store, Options{}))
	if rep := verify(t, unsigned); !rep.OK || rep.Signature.Signed || !strings.Contains(rep.Signature.Text, "no receipt") {
		t.Errorf("%+v", rep)
	}
	if rep, err := Verify(t.Context(), unsigned, []byte(ours.PEM())); err != nil || rep.OK {
		t.Error("keys were given, and an archive without a receipt is intact", err)
	}
	if _, err := Verify(t.Context(), unsigned, []byte("{}")); err == nil {
		t.Error("a file without keys was taken")
	}
}

// forge unpacks a signed archive, lets f change it, and brings MANIFEST and crate up to date, as a forger who knows the format would.
func forge(t *testing.T, f func(dir string)) Report {
	t.Helper()
	r, store := made(t)
	dir := unpack(t, saved(t, archive(t, sign(t, r, nil), store, Options{})))
	f(dir)
	crate, err := os.ReadFile(filepath.Join(dir, crateFile))
	must(t, err)
	was := map[string]string{}
	list, err := os.ReadFile(filepath.Join(dir, manifestFile))
	must(t, err)
	for line := range strings.Lines(string(list)) {
		was[strings.TrimSpace(line[66:])] = line[:64]
	}
	text := string(crate)
	for name, sum := range was {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err == nil && name != crateFile {
			text = strings.ReplaceAll(text, sum, sumOf(data))
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, crateFile), []byte(text), 0o600))
	run(t, dir, "sh", "-c", `find . -type f ! -name MANIFEST | sed 's|^\./||' | LC_ALL=C sort | tr '\n' '\0' | xargs -0 sha256sum >MANIFEST`)
	return verify(t, dir)
}

// A forger who brings MANIFEST and crate up to date is found by what the run's id, the chain and the signature are made of.
func TestForgedArchive(t *testing.T) {
	edit := func(name, old, text string) func(string) {
		return func(dir string) {
			data, err := os.ReadFile(filepath.Join(dir, name))
			must(t, err)
			changed := strings.Replace(string(data), old, text, 1)
			if changed == string(data) {
				t.Fatalf("%s has no %q", name, old)
			}
			must(t, os.WriteFile(filepath.Join(dir, name), []byte(changed), 0o600))
		}
	}
	for name, x := range map[string]struct {
		forge func(string)
		file  string
		says  string
	}{
		"nothing":           {func(string) {}, "", ""},
		"the output":        {edit("out/n.txt", "4", "5"), "out/n.txt", "it is not artifact"},
		"the plan":          {edit(paramsFile, "count", "count2"), paramsFile, "it has the hash"},
		"the policy":        {edit(policyFile, "STRICT", "OPEN"), policyFile, "it has the hash"},
		"the pack":          {edit(packFile, "Count", "Other"), packFile, "it has the hash"},
		"the tool":          {edit(runFile, "test_count", "test_other"), runFile, "the run id is"},
		"the version":       {edit(runFile, "1.2.0", "1.2.1"), runFile, `tool: it has "test.count 1.2.1"`},
		"an event":          {edit(eventsFile, `"n":1`, `"n":7`), eventsFile, "event 11 was changed"},
		"an event's hash":   {edit(eventsFile, `"hash":"sha256:`, `"hash":"sha256:0`), eventsFile, "was changed"},
		"the order":         {edit(eventsFile, `"seq":10`, `"seq":12`), eventsFile, "comes after"},
		"the module":        {edit("nextflow/main.nf", "exec --", "curl evil; exec --"), "nextflow/main.nf", "does not follow"},
		"the module's name": {edit("nextflow/nextflow.config", "test.count", "best.count"), "nextflow/nextflow.config", "does not follow"},
		"the pinned image":  {edit(pinnedFile, "aaaa", "bbbb"), pinnedFile, "does not follow"},
		"the read-me":       {edit(readmeFile, "succeeded", "failed"), readmeFile, "does not follow"},
		"the receipt":       {edit(ReceiptFile, `"sig":"`, `"sig":"A`), ReceiptFile, ""},
		"a file more": {func(dir string) { must(t, os.WriteFile(filepath.Join(dir, "more.txt"), nil, 0o600)) }, "more.txt",
			"does not describe it"},
		"a file less": {func(dir string) { must(t, os.Remove(filepath.Join(dir, packFile))) }, packFile, "it is missing"},
		"no module":   {func(dir string) { must(t, os.RemoveAll(filepath.Join(dir, "nextflow"))) }, "nextflow/main.nf", "it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			rep := forge(t, x.forge)
			found := false
			for _, p := range rep.Problems {
				found = found || p.File == x.file && strings.Contains(p.Message, x.says)
			}
			if found != (x.file != "") || rep.OK != (x.file == "") {
				t.Errorf("%v\n%s", rep.OK, problems(rep))
			}
		})
	}
}
