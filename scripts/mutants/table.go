package main

// table lists the mutants. First the promises of README, then those of the contracts that were once held by no test,
// then others.
var table = []mutant{
	{"claim-skipped", "slurm/script.tmpl.sh", `if [[ $(cat -- "$ctl/claim") != "$claim" ]]; then`, `if false; then`,
		"slurm", "TestScriptExecutesOnce"},
	{"intent-after-the-send", "run/send.go", `	v, err := e.recordIntent(ctx, v, w)
	if err != nil {
		return err
	}
	k := v.Sends
	stop := lend(v, free)
	res := e.sendOnce(ctx, v, job, k)
`, `	k := v.Sends + 1
	res := e.sendOnce(ctx, v, job, k)
	v, err := e.recordIntent(ctx, v, w)
	if err != nil {
		return err
	}
	stop := lend(v, free)
`, "run", "TestEverySeam"},
	{"digest-of-the-node-skipped", "slurm/script.tmpl.sh", `[[ -f $file ]] && is "$file" "${1:0:64}" && return`, `[[ -f $file ]] && return`,
		"slurm", "TestScriptStartsOnPinnedBytesAlone"},
	{"undeclared-output-accepted", "run/outputs.go", `		if p.Tool != nil && p.Tool.StrictOutputs {`, `		if false {`,
		"run", "TestOutputsRejected"},
	{"undeclared-output-unnoticed", "run/outputs.go", `		d.warnings = append(d.warnings, msg)
	}
	doc,`, `	}
	doc,`, "run", "TestUndeclared"},
	{"call-past-the-capabilities", "gate/dispatch.go", `	if err := g.allowed(who, e.tool); err != nil {`,
		`	if err := g.allowed(who, e.tool); err != nil && false {`, "gate", "TestRefusals"},
	{"query-for-each-run", "run/watch.go", `	jobs, err := e.Queue.Jobs(ctx, sought)
`, `	open, err := e.Index.Waiting(ctx, "", offeredAtOnce, watchedPhases...)
	var jobs []Job
	for range open {
		jobs, err = e.Queue.Jobs(ctx, sought)
	}
`, "run", "TestQueriesDoNotGrowWithRuns"},

	{"hash-before-redaction", "gate/payloads.go", `	if d, _, err = g.redact(d, true); err != nil {
		return "", "", err
	}
	hash = d.hash()
`, `	hash = d.hash()
	if d, _, err = g.redact(d, true); err != nil {
		return "", "", err
	}
`, "gate", "TestHashAfterRedaction"},
	{"event-without-session", "gate/event.go", `, "session_id": req.SessionID})`, `})`, "gate", "TestSessionInTheEvent"},
	{"entry-without-contract", "mcp/tools.go", `"contract_version": t.ContractVersion`, `"contract_version": "v1"`,
		"mcp", "TestMetadataOfAnEntry"},
	{"entry-of-a-read", "mcp/tools.go", `"side_effect": string(t.SideEffect)`, `"side_effect": "READ"`,
		"mcp", "TestMetadataOfAnEntry"},
	{"entry-of-the-idempotent", "mcp/tools.go", `"idempotency": t.Idempotency`, `"idempotency": gate.Idempotent`,
		"mcp", "TestMetadataOfAnEntry"},
	{"entry-of-best-effort", "mcp/tools.go", `"determinism": t.Determinism`, `"determinism": gate.BestEffort`,
		"mcp", "TestMetadataOfAnEntry"},
	{"entry-of-offline", "mcp/tools.go", `"availability": t.Availability`, `"availability": gate.OfflineOK`,
		"mcp", "TestMetadataOfAnEntry"},
	{"entry-without-capabilities", "mcp/tools.go", `"required_capabilities": t.Capabilities`, `"required_capabilities": []string{}`,
		"mcp", "TestMetadataOfAnEntry"},
	{"result-a-byte-too-long", "gate/gate.go", `	if len(res.Result) <= MaxInline {`, `	if len(res.Result) <= MaxInline+1 {`,
		"gate", "TestConformance"},
	{"response-unchecked", "gate/gate.go",
		`res.document(), "the response"); err != nil {`, `res.document(), "the response"); err != nil && false {`,
		"gate", "TestResponsesAreChecked"},
	{"two-inputs-one-name", "plan/validate_io.go", `	v.distinct("PLAN-DEST-DUPLICATE", "io.inputs", "dest_relpath", dests)
`, "", "toolpack", "TestDockerPlans"},
	{"worker-without-default-timeout", "app/services.go", `	return time.Duration(g.Policy.DefaultTimeoutSec) * time.Second`,
		`	return time.Hour`, "app", "TestDefaultTimeoutOfWorkers"},
	{"array-waits-on", "run/pendingarrays.go", `		case <-last.C:
`, "", "run", "TestPartyLeavesInTime"},
	{"image-configuration-unchecked", "apptainer/oci/resolve.go", `hex.EncodeToString(sum[:]) != d.Digest.Hex {
		return nil, lie("the registry sent other bytes than those of " + what)`, `hex.EncodeToString(sum[:]) == "" {
		return nil, lie("the registry sent other bytes than those of " + what)`, "apptainer/oci", "TestHostileRegistry"},

	{"policy-not-asked", "gate/dispatch.go", `	return g.policy.AllowTool(t.Name())`, `	return nil`,
		"gate", "TestRefusals"},
	{"any-version", "gate/dispatch.go", `	if req.ToolVersion != e.tool.Version {`, `	if false {`, "gate", "TestRefusals"},
	{"answer-before-its-record", "gate/gate.go", `g.journal.keep(r, t.effect || r.Outcome != nil)`, `g.journal.keep(r, false)`,
		"gate", "TestRefusedRecord"},
	{"key-of-another-call", "gate/keys.go", `	case got.Binding != binding:
`, `	case false:
`, "gate", "TestConformance"},
	{"any-image", "policy/decide.go", `	case p.ImagesAllowlist != nil && !slices.Contains(*p.ImagesAllowlist, dig):`, `	case false:`,
		"policy", "TestAllowPlan"},
	{"import-of-any-size", "policy/decide.go", `	if size > p.Import.MaxBytes {`, `	if false {`,
		"policy", "TestAllowImport"},
	{"identity-without-policy", "plan/identity.go", `"|policy="+i.PolicyHash+`, `"|policy="+`,
		"plan", "TestIdentityVectors"},
	{"path-out-of-its-folder", "plan/words.go", `		case p == "." || p == "..":`, `		case p == ".":`, "plan", "TestRules"},
	{"no-answer-is-absence", "run/watch.go", `	e.watcher.note(err)
	if err != nil {
		return false, err
	}
`, `	e.watcher.note(err)
`, "run", "TestQueryErrorIsNoObservation"},
	{"output-of-other-bytes", "run/outputs.go", `	case err == nil && got.sum == entry.SHA256 && got.size == entry.Size:`,
		`	case err == nil && got.size == entry.Size:`, "run", "TestOutputsRejected"},
	{"manifest-of-another-job", "run/outputs.go", `	if err == nil && m.Holder != job {`, `	if false {`,
		"run", "TestOutputsRejected"},
	{"output-with-two-names", "staging/form.go", `	case nlink > 1:`, `	case false:`, "staging", "TestOpenOutputRefuses"},
	{"lost-update", "ledger/write.go", `	if err == nil && n != 1 {
		err = stale(r)`, `	if false {
		err = stale(r)`, "ledger", "TestApplyIsCompareAndSwap"},
	{"expired-token", "access/token.go", `	case !a.now().Before(t.ExpiresAt):`, `	case false:`, "access", "TestTokens"},
	{"revoked-token", "access/token.go", `	case err != nil || !same || t.RevokedAt != nil:`, `	case err != nil || !same:`,
		"access", "TestTokens"},
	{"answer-to-another-call", "worker/answer.go", `	case *m.TraceID != sent.TraceID || *m.ToolRunID != sent.ToolRunID:`, `	case false:`,
		"worker", "TestLyingWorkers"},
	{"secret-behind-a-zero-width-blank", "secrets/scanner.go", `	shown, o := normalized(text)`, `	shown, o := text, (*origin)(nil)`,
		"secrets", "TestDisguisedSecrets"},
	{"records-without-bound", "gate/dispatch.go", `	if t.SideEffect != Read && !who.Continues {`, `	if false {`, "gate", "TestRecordsOfACaller"},
	{"forged-receipt", "export/receipt/envelope.go", ` && ed25519.Verify(k.Public, signed, sig) {`, ` {`,
		"export/receipt", "TestDSSEVectors"},
}
