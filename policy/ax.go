package policy

import (
	"regexp"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// A policies.yaml may also have the form of AX Tool Framework (v0.1 specification, section 4):
//
//	concurrency: {max_inflight: 8, per_tool_max_inflight: {firecrawl.crawl: 2}}
//	timeouts: {default_tool_timeout_sec: 60}
//	network: {default_egress_policy: deny}
//	logging: {level: INFO, include_request_body: false}
//
// It means concurrency.global and concurrency.per_tool (by tool name), default_timeout_sec, network: none and
// logging.level. The hash covers the document as written.

const maxConcurrency = 10000 // equals the tags of Concurrency

// toolID matches a tool id that has a tool name: the id with _ for each dot.
var toolID = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)

// isAX reports whether a policy has AX's form: such a file has no version.
func isAX(doc yamldoc.Value) bool {
	con := doc.Field("concurrency")
	return doc.Has("timeouts") || con.Has("max_inflight") || con.Has("per_tool_max_inflight") ||
		doc.Field("network").Has("default_egress_policy")
}

// twice refuses a value that a policy also has in our spelling.
func twice(ax, ours yamldoc.Value) {
	if ax.Exists() && ours.Exists() {
		ax.Fail("TWICE", "one of the two", "the file says this as "+ours.Path()+", too", "remove one of the two")
	}
}

// readAX reads the settings that AX has in another place or another form.
func (p *Policy) readAX(doc yamldoc.Value) {
	con := doc.Field("concurrency")
	if all := con.Field("max_inflight"); all.Exists() {
		twice(all, con.Field("global"))
		p.Concurrency.Global = int(all.Int(0, maxConcurrency))
	}
	p.axTools = map[string]yamldoc.Value{}
	for _, e := range con.Field("per_tool_max_inflight").Entries() {
		if !toolID.MatchString(e.Key) {
			e.Fail("TOOL-ID", "tool ids such as firecrawl.crawl", `"`+clip(e.Key)+`" is not a tool id`, "")
		}
		name := strings.ReplaceAll(e.Key, ".", "_")
		for _, before := range []yamldoc.Value{con.Field("per_tool").Field(name), p.axTools[name]} {
			if before.Exists() {
				e.Fail("TWICE", "each tool once", before.Path()+" already has the limit of this tool", "remove one of the two")
			}
		}
		p.Concurrency.PerTool[name], p.axTools[name] = int(e.Int(1, maxConcurrency)), e.Value
	}
	timeout := doc.Field("timeouts").Object("default_tool_timeout_sec").Opt("default_tool_timeout_sec")
	if timeout.Exists() {
		twice(timeout, doc.Field("default_timeout_sec"))
		p.DefaultTimeoutSec = timeout.Int(1, plan.MaxTimeLimitSeconds)
	}
	if net := doc.Field("network"); net.IsMap() {
		egress := net.Object("default_egress_policy").Need("default_egress_policy")
		if s := egress.Text(); s != "deny" && egress.Exists() && s != "" {
			egress.Fail("NETWORK", "deny: a job has no network, and a worker's hosts are listed", `"`+clip(s)+`" is not possible here`,
				"write deny, and list the hosts of each tool in its egress_allowlist in the manifest")
		}
	}
	p.Logging.Level = strings.Replace(strings.ToLower(p.Logging.Level), "warning", "warn", 1)
	if v := doc.Field("logging").Field("include_request_body"); v.Bool() {
		v.Fail("LOG-BODY", "false: the log never has the arguments of calls", "the log of this gateway cannot contain request bodies",
			"write false; the record of each call has its arguments, without secrets")
	}
}
