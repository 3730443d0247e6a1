package export

import (
	"bytes"
	"crypto/ed25519"
	"maps"
	"os"
	"path/filepath"
	"slices"
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
	r.Key, r.Signer = key, receipt.NewSigner("gw-1", secret)
	run, last := r.Run, r.Exit.Attempts[len(r.Exit.Attempts)-1]
	p := receipt.Predicate{RunID: run.RunID, Attempt: run.Attempt, ProjectID: run.Project, Gateway: receipt.Gateway{ID: "gw-1"},
		Tool: receipt.Tool{ID: run.ToolID, Name: run.ToolName, Version: run.ToolVersion, ContractVersion: run.ContractVersion},
		End: receipt.End{State: run.State, Reason: run.Reason, Ending: last.Ending, ExitCode: last.ExitCode, RunEnded: true,
			At: receipt.Time(&run.FinishedAt)},
		Caller: receipt.Caller{Name: run.Principal, ID: "prn_1", MadeAt: receipt.Time(&run.CreatedAt)},
		Execution: receipt.Execution{Site: run.Site, ExecutedAs: run.ExecutedAs, Cluster: last.Cluster, JobID: last.JobID, JobName: last.JobName,
			Node: last.Node, CreatedAt: receipt.Time(&last.CreatedAt), StartedAt: receipt.Time(last.StartedAt), EndedAt: receipt.Time(last.EndedAt)},
		ResolvedDependencies: []receipt.Resource{receipt.Hashed(receipt.Image, run.Image), receipt.Hashed(receipt.Params, run.ParamsHash),
			receipt.Hashed(receipt.Policy, run.PolicyHash), receipt.Hashed(receipt.Plan, run.PlanHash), receipt.Hashed(receipt.Pack, run.PackHash),
			receipt.Hashed(receipt.Script, run.Script.SHA256)}}
	var events []receipt.Event
	for _, e := range r.Events {
		events = append(events, e.signed())
	}
	p.History, p.Exit = receipt.HistoryOf(events), r.Exit
	for _, w := range run.Rows {
		p.Rows = append(p.Rows, receipt.Row(w))
	}
	for _, a := range run.Inputs {
		p.ResolvedDependencies = append(p.ResolvedDependencies, resourceOf("input/"+a.Relpath, a))
	}
	var outputs []receipt.Resource
	for _, a := range run.Outputs {
		outputs = append(outputs, resourceOf(receipt.OutputName(a.Role, a.Label), a))
	}
	for _, a := range slices.Concat(run.Logs, run.Rejected) { // by role, as a ledger lists them
		p.Byproducts = append(p.Byproducts, resourceOf(a.Role, a))
	}
	p.Byproducts = append(p.Byproducts, receipt.Resource{Name: scriptRole, Digest: receipt.Digest{SHA256: run.Script.SHA256},
		Annotations: receipt.Annotations{ArtifactID: run.Script.ArtifactID}})
	if change != nil {
		change(&p)
	}
	body := value(receipt.Encode(outputs, p))(t)
	r.Receipt = value(receipt.Wrap(body, key.ID, receipt.Sign(secret, body)))(t)
	return r
}

// A signed archive names the key that signed it; it is trusted only where the caller gave that key. A receipt of
// something else, a missing one and another's key are found.
//
// proves EXP-01 EXP-02
func TestSignedArchive(t *testing.T) {
	_, ours := signer('k')
	_, other := signer('o')
	asJSON := func(k receipt.Key) []byte {
		data := value(document(keysDoc(k)))(t)
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
		{name: "of another caller", change: func(p *receipt.Predicate) { p.Caller.Name = "user:bob" }, problem: `caller: it has "user:ann"`},
		{name: "of another sample", change: func(p *receipt.Predicate) { p.Rows[0].Sample = "B" }, problem: "rows: it has"},
		{name: "of another node", change: func(p *receipt.Predicate) {
			p.Exit.Attempts = slices.Clone(p.Exit.Attempts)
			p.Exit.Attempts[0].Node = "n2"
		}, problem: "not the exit record"},
		{name: "of another history", change: func(p *receipt.Predicate) { p.History = receipt.HistoryOf([]receipt.Event{{Seq: 1}}) },
			problem: "the receipt has 1 with"},
		{name: "of other inputs", change: func(p *receipt.Predicate) {
			p.ResolvedDependencies[len(p.ResolvedDependencies)-1].Digest.SHA256 = strings.Repeat("b", 64)
		}, problem: `"input/in/reads one.txt" is `},
		{name: "of an input of another label", change: func(p *receipt.Predicate) {
			p.ResolvedDependencies[len(p.ResolvedDependencies)-1].Annotations.Label = "other"
		}, problem: `"input/in/reads one.txt" is artifact`},
		{name: "of fewer inputs", change: func(p *receipt.Predicate) {
			p.ResolvedDependencies = p.ResolvedDependencies[:len(p.ResolvedDependencies)-1]
		}, problem: "is not among the receipt's materials"},
		{name: "of other logs", change: func(p *receipt.Predicate) { p.Byproducts[0].Digest.SHA256 = strings.Repeat("b", 64) },
			problem: `"log" is `},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, store := made(t)
			if x.failed {
				r = failed(t, r)
			}
			rep := value(Verify(t.Context(), saved(t, archive(t, sign(t, r, x.change), store, Options{})), x.keys))(t)
			if found := problems(rep); (found != "") != (x.problem != "") || !strings.Contains(found, x.problem) {
				t.Errorf("Verify found %q, want %q", found, x.problem)
			}
			if rep.Signature.Trusted != x.trusted || rep.Signature.Signed && rep.Signature.KeyIDs[0] != ours.ID {
				t.Errorf("Verify says of the signature: signed %t by %q, trusted %t; want key %s, trusted %t", rep.Signature.Signed,
					rep.Signature.KeyIDs, rep.Signature.Trusted, ours.ID, x.trusted)
			}
		})
	}
	r, store := made(t)
	unsigned := unpack(t, saved(t, archive(t, r, store, Options{})))
	must(t, os.Remove(filepath.Join(unsigned, signatureFile)))
	if rep := verify(t, unsigned); rep.OK || len(rep.Problems) > 0 || len(rep.NotJudged) != 1 || rep.Signature.Signed {
		t.Errorf("an archive without %s: problems %q, not judged %v; want that it cannot be judged", signatureFile, problems(rep), rep.NotJudged)
	}
	if rep, err := Verify(t.Context(), unsigned, []byte(ours.PEM())); err != nil || len(rep.Problems) == 0 {
		t.Errorf("an archive without %s, and keys given: no problem, %v", signatureFile, err)
	}
	if _, err := Verify(t.Context(), unsigned, []byte("{}")); err == nil {
		t.Error("a file without keys was taken")
	}
}

// relist writes MANIFEST again.
func relist(files map[string][]byte) {
	var list []file
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != manifestFile && name != signatureFile {
			list = append(list, fileOf(name, files[name]))
		}
	}
	files[manifestFile] = manifest(list)
}

// replaced returns a change of the files of an archive: in the named file, text replaces old.
func replaced(t *testing.T, name, old, text string) func(map[string][]byte) {
	return func(files map[string][]byte) {
		t.Helper()
		changed := bytes.Replace(files[name], []byte(old), []byte(text), 1)
		if bytes.Equal(changed, files[name]) {
			t.Fatalf("%s has no %q", name, old)
		}
		files[name] = changed
	}
}

// A forger who brings MANIFEST and crate up to date is found by what the run's id, the chain and the signature are made of.
func TestForgedArchive(t *testing.T) {
	edit := func(name, old, text string) func(map[string][]byte) { return replaced(t, name, old, text) }
	r, store := made(t)
	signed := members(t, archive(t, r, store, Options{}))
	for name, x := range map[string]struct {
		forge func(files map[string][]byte)
		file  string
		says  string
	}{
		"nothing":           {func(map[string][]byte) {}, "", ""},
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
		"a file more":       {func(files map[string][]byte) { files["more.txt"] = []byte{} }, "more.txt", "does not describe it"},
		"a file less":       {func(files map[string][]byte) { delete(files, packFile) }, packFile, "it is missing"},
		"no module":         {func(files map[string][]byte) { delete(files, "nextflow/main.nf") }, "nextflow/main.nf", "it is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(signed)
			x.forge(files)
			for name, data := range files {
				if name != crateFile && name != manifestFile {
					files[crateFile] = bytes.ReplaceAll(files[crateFile], []byte(sumOf(signed[name])), []byte(sumOf(data)))
				}
			}
			relist(files)
			rep := value(verifyBytes(t, packed(files)))(t)
			found := false
			for _, p := range rep.Problems {
				found = found || p.File == x.file && strings.Contains(p.Message, x.says)
			}
			if found != (x.file != "") || rep.OK != (x.file == "") {
				t.Errorf("Verify of a forged archive: intact %t, problems %q; want %q of the file %q", rep.OK, problems(rep), x.says, x.file)
			}
		})
	}
}
