package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"slurmgate/blocks"
	"slurmgate/fault"
	"slurmgate/gate"
	"slurmgate/plan"
)

// This file renders the answers about tokens, keys, approvals and records of calls.

// Says implements [blocks.Answer].
func (l TokenList) Says() blocks.Document {
	t := Listed{l.Total, true}.table("tokens", "", "token", "name", "state", "capabilities", "projects", "unix user", "expires", "made by")
	for _, k := range l.Tokens {
		t.Rows = append(t.Rows, []any{k.TokenID, k.Name, k.State, strings.Join(k.Capabilities, ","), strings.Join(k.Projects, ","), k.UnixUser,
			k.ExpiresAt, k.CreatedBy})
	}
	if len(l.Tokens) == 0 {
		return blocks.Document{t, blocks.Next{fault.Do("token.create")}}
	}
	return blocks.Document{t}
}

// Says implements [blocks.Answer].
func (l KeyList) Says() blocks.Document {
	d := blocks.Document{blocks.List("gateway", l.GatewayID)}
	for _, k := range l.Keys {
		d = append(d, k.says()...)
	}
	return d
}

// Says implements [blocks.Answer].
func (a KeyAnswer) Says() blocks.Document { return a.KeyDoc.says() }

func (k KeyDoc) says() blocks.Document {
	state := blocks.Say("signs")
	if k.RetiredAt != nil {
		state = blocks.Say("retired %v", *k.RetiredAt)
	}
	return blocks.Document{blocks.List("key", k.KeyID, "created", k.CreatedAt, "state", state), blocks.Quote{Text: k.PublicKey}}
}

// Says implements [blocks.Answer].
func (l ApprovalList) Says() (d blocks.Document) {
	if len(l.Approvals) == 0 {
		return blocks.Document{blocks.Say("No calls are waiting for approval.")}
	}
	var next blocks.Next
	for _, p := range l.Approvals {
		d = append(d, approvalBlocks(p)...)
		if p.Status == gate.Pending {
			next = blocks.Next{fault.Do("approval.answer"), fault.Do("deny")}
		}
	}
	return append(d, blocks.Say("%v.", blocks.Table{Noun: "approvals", Total: l.Total, Rows: make([][]any, len(l.Approvals))}.Count()), next)
}

// Says implements [blocks.Answer].
func (a ApprovalShown) Says() blocks.Document {
	d := approvalBlocks(a.Approval)
	if a.Status != gate.Pending || a.Shows == nil || a.Shows.Code == nil {
		return d
	}
	return append(d, blocks.Next{fault.Do("approval.answer", "approval_id", a.ID, "seen", *a.Shows.Code),
		fault.Do("deny", "approval_id", a.ID)})
}

// Says implements [blocks.Answer].
func (a ApprovalAnswered) Says() blocks.Document {
	d := blocks.Document{blocks.Say("%v  %v", a.ID, a.Status)}
	often := "once"
	switch {
	case a.Status != gate.Approved:
		return d
	case a.UsesLeft != 1:
		often = fmt.Sprint(a.UsesLeft, " times")
	}
	return append(d, blocks.Lines{blocks.Say("%v may make this call of %v %v until %v.", a.Principal, a.ToolID, often, a.ExpiresAt)})
}

// approvalBlocks describes the call and the effects that an approval covers. A list has fewer of these facts than one
// approval's answer.
func approvalBlocks(p gate.Approval) blocks.Document {
	by, starts, job, resources := p.Principal+" ("+p.PrincipalID+")", "", "", ""
	if p.MadeBy != nil {
		by += ", a token made by " + *p.MadeBy
	}
	c := p.Covers
	if c.Tool != "" {
		starts = "jobs of " + c.Tool
	}
	if r := c.Resources; r != nil {
		job = plan.Placement{Site: &c.Site, Partition: c.Partition, Account: c.Account, QOS: &c.QOS, Constraint: &c.Constraint}.Text()
		gpus := ""
		if r.GPUs != nil {
			gpus = fmt.Sprintf(", %d GPUs", *r.GPUs)
		}
		resources = fmt.Sprintf("%d CPUs, %d MiB%s, %s", r.CPUs, r.MemMB, gpus, time.Duration(r.TimeLimitSeconds)*time.Second)
	}
	f := blocks.List("requested", p.RequestedAt, "expires", p.ExpiresAt, "uses left", p.UsesLeft, "asked by", by, "runs as", c.ExecutedAs,
		"project", cmp.Or(c.ProjectID, "none: the call concerns the whole site"), "starts", starts, "job", job,
		"image", strings.TrimSpace(c.Image+" "+c.ImageDigest), "resources", resources)
	for _, name := range slices.Sorted(maps.Keys(c.References)) {
		f.Add("reference", name+" is "+c.References[name])
	}
	f.Add("contract", c.ContractVersion)
	if p.Replaces != nil {
		f.Add("replaces", *p.Replaces+", which covered something else and is void")
	}
	d := blocks.Document{blocks.Say("%v  %v  %v requests %v %v", p.ID, p.Status, p.Principal, p.ToolID, p.ToolVersion)}
	shows := p.Shows
	if shows != nil && shows.Code == nil {
		f.Add("arguments", fmt.Sprintf("%d bytes in all, more than a list shows", shows.Bytes))
		return append(d, f, blocks.Next{fault.Do("approval.show", "approval_id", p.ID)})
	}
	f.Add("arguments", string(p.Payload))
	if shows == nil {
		return append(d, f)
	}
	for _, r := range shows.Retries {
		row := ""
		if r.Row > 0 {
			row = fmt.Sprintf("row %d, sample %s: ", r.Row, r.Sample)
		}
		f.Add("run", fmt.Sprintf("%s, attempt %d: %s%s", r.RunID, r.Attempt+1, row, r.Params))
	}
	if d = append(d, f); shows.Sheet != nil {
		d = append(d, blocks.Lines{blocks.Say("the sheet:")}, blocks.Quote{Text: strings.TrimSuffix(*shows.Sheet, "\n") + "\n"})
	}
	return d
}

// Says implements [blocks.Answer].
func (l EventList) Says() blocks.Document {
	t := l.table("calls", "newest first", "record", "at", "calls", "principal", "by", "from", "tool", "outcome", "call")
	for _, e := range l.Events {
		var d struct {
			ToolCallID string                `json:"tool_call_id"`
			ToolID     string                `json:"tool_id"`
			Error      struct{ Code string } `json:"error"`
		}
		_ = json.Unmarshal(e.Event, &d) // what cannot be read has no cells
		t.Rows = append(t.Rows, []any{e.Name(), e.At, e.Count, e.Principal, e.Face, e.Address, d.ToolID, cmp.Or(d.Error.Code, "ok"),
			d.ToolCallID})
	}
	return append(blocks.Document{t}, continues("event.list", l.Cursor)...)
}

// Says implements [blocks.Answer].
func (e EventStory) Says() blocks.Document {
	f := blocks.List("record", e.Name(), "at", e.At.Format(time.RFC3339Nano), "principal", e.Principal, "by", e.Face, "from", e.Address,
		"hash", e.Hash)
	if e.Count > 1 {
		f.Add("calls", fmt.Sprintf("%d refused ones; the event is that of the last", e.Count))
	}
	if len(e.Others) > 0 {
		f.Add("others", strings.Join(e.Others, " ")+": calls made later with the same id")
	}
	f.Add("event", string(e.Event))
	for _, p := range e.Payloads {
		f.Add(p.Kind, string(p.Payload))
		f.Add("sha256", p.SHA256)
	}
	return blocks.Document{f}
}

// Says implements [blocks.Answer].
func (v EventsVerified) Says() blocks.Document {
	var f blocks.Facts
	for _, c := range v.Calls {
		f.Add(c.Chain, blocks.Say("%v records intact, %v dropped by age; head %v", c.Kept, c.Dropped, c.Head))
	}
	f.Add("history", blocks.Say("%v events intact", v.History))
	for _, e := range v.Erased {
		f.Add("erased", blocks.Say("%v records as %v left them, by %v on %v (%v)", e.Records, e.ID, e.Principal, e.At, e.Reason))
	}
	return blocks.Document{f}
}
