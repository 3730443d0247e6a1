package gate

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"slurmgate/fault"
	"slurmgate/plan"
)

// MaxInline is the maximum size of args and of result inside an envelope, as canonical JSON (HTC-04).
const MaxInline = 32 << 10

const refPrefix = "artifact://"

// arguments returns the canonical arguments of a request: those in it, or those of the artifact it names. If it has both, they are the
// same; a handle that is not one of this gateway's artifacts then is the caller's own record of them, and is not opened.
func (g *Gate) arguments(ctx context.Context, who Caller, req Request, given plan.Doc) (plan.Doc, error) {
	inline := string(given.Bytes) != "{}"
	if req.ArgsRef == nil || inline && artifactOf(*req.ArgsRef) == "" {
		if len(given.Bytes) > MaxInline {
			next := "import them as a JSON artifact and name it in args_ref"
			switch who.Transport {
			case MCP:
				next = "pass less: import large data as an artifact and pass its id" // a chat's call has no args_ref
			case Other:
				next += " of an envelope (POST /v1/tool-calls)"
			}
			return plan.Doc{}, fault.New(fault.Validation, "args_too_large",
				fmt.Sprintf("the arguments have %d bytes; an envelope holds at most %d", len(given.Bytes), MaxInline)).WithNext(next)
		}
		return given, nil
	}
	args, err := g.referred(ctx, who, *req.ArgsRef)
	if err == nil && inline && !bytes.Equal(args.Bytes, given.Bytes) {
		return plan.Doc{}, fault.Invalid("", fault.Problem{Code: "ARGS-REF", Field: "args", Rule: "empty, or the same as in args_ref",
			Msg: "args and the artifact that args_ref names have different content", Hint: "leave one of the two empty"})
	}
	return args, err
}

// artifactOf returns the id of the artifact that a handle names, "" for one of another gateway. What follows the id,
// as in artifact:art_…:/args.json, is a name for people.
func artifactOf(ref string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(ref, "artifact:"), "//"), ":")
	if !plan.IsArtifactID(id) {
		return ""
	}
	return id
}

func (g *Gate) referred(ctx context.Context, who Caller, ref string) (plan.Doc, error) {
	id := artifactOf(ref)
	if id == "" {
		return plan.Doc{}, fault.Invalid("", fault.Problem{Code: "ARGS-REF", Field: "args_ref", Rule: refPrefix + "art_…",
			Msg:  "args_ref does not name an artifact",
			Hint: "import the arguments as a JSON artifact and name that, or pass them in args"})
	}
	if g.artifacts == nil || g.owners == nil {
		return plan.Doc{}, fault.New(fault.Validation, "args_ref_unsupported", "this tool does not accept arguments by reference").
			WithNext("pass args")
	}
	if project, err := g.owners.Owner(ctx, id); fault.Is(err, fault.NotFound) || err == nil && !who.Can(CapRead, project) {
		return plan.Doc{}, notThere(id)
	} else if err != nil {
		return plan.Doc{}, err
	}
	raw, err := g.artifacts.Read(ctx, id, plan.MaxDocumentBytes)
	if err == nil {
		err = HoldJSON(ctx, len(raw))
	}
	if err != nil {
		return plan.Doc{}, err
	}
	args, err := plan.Read(raw)
	if _, object := args.Value.(map[string]any); err == nil && !object {
		err = fault.Invalid("", fault.Problem{Code: "ARGS-REF", Field: "args_ref", Rule: "an artifact with a JSON object",
			Msg: "the artifact's content is not a JSON object"})
	}
	return args, err
}

// noSecrets refuses arguments that contain a secret: they would become part of the plan, the job's script and the ledger. The value is not
// repeated.
func (g *Gate) noSecrets(args document) (document, error) {
	clean, found, err := g.redact(args, true)
	if err != nil || len(found) == 0 {
		return clean, err
	}
	var problems []fault.Problem
	for _, f := range found {
		problems = append(problems, fault.Problem{Code: "secret_in_args", Field: strings.TrimPrefix("args."+g.secrets.Redact(f.at), "."),
			Rule: "no secret in an argument", Msg: "this looks like a secret (" + f.what + ")"})
	}
	return args, fault.Invalid("the arguments contain what looks like a secret; nothing was done and nothing was recorded of it",
		problems...).
		WithNext("call without it: arguments are recorded, and a tool's job has no network to use a secret with")
}

// checkArgs checks arguments against the tool's schema and reports every violation.
func (e entry) checkArgs(args any) error {
	found := e.tool.unsaid(violations(e.schema, args, "ARGS-SCHEMA", "args", "the tool's input schema"))
	if len(found) == 0 {
		return nil
	}
	return fault.Invalid("the arguments of "+e.tool.ID+" violate its schema", found...).
		WithNext("correct them; see the schema").WithSteps(fault.Do("tool.show", "tool_id", e.tool.ID))
}

// binding identifies a payload without revealing it. The same tool with the same arguments has the same binding on
// this ledger, and guesses cannot be tested without the ledger. Keys and approvals are bound to it. names is the
// result of [Tool.Names].
func (g *Gate) binding(t Tool, args json.RawMessage, body []byte, names map[string]string) string {
	m := hmac.New(sha256.New, g.key)
	fmt.Fprintf(m, "tool=%s|version=%s|contract=%s|args=", t.ID, t.Version, t.ContractVersion)
	m.Write(args)
	for _, name := range slices.Sorted(maps.Keys(names)) { // a payload without any is bound as it always was
		fmt.Fprintf(m, "|name=%s=%s", name, names[name])
	}
	if t.Body > 0 {
		m.Write(append([]byte("|body="), body...))
	}
	return hex.EncodeToString(m.Sum(nil))
}

// keyHash returns the form in which a caller's idempotency key is stored.
func (g *Gate) keyHash(key string) string {
	m := hmac.New(sha256.New, g.key)
	m.Write([]byte("idempotency-key=" + key))
	return hex.EncodeToString(m.Sum(nil))
}
