package policy

import (
	"regexp"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// A policies.yaml may be written as AX Tool Framework writes it (v0.1 specification, section 4):
//
//	concurrency: {max_inflight: 8, per_tool_max_inflight: {firecrawl.crawl: 2}}
//	timeouts: {default_tool_timeout_sec: 60}
//	network: {default_egress_policy: deny}
//	logging: {level: INFO, include_request_body: false}
//
// It means concurrency.global and concurrency.per_tool (by tool name), default_timeout_sec, network: none and logging.level. The hash
// covers what is written, as ever.

// toolID is a tool id that has a tool name: the id with _ for each dot.
var toolID = regexp.MustCompile(`^[a-z0-9_]+(\.[a-z0-9_]+)*$`)

// isAX reports whether a policy has AX's form: such a file has no version.
func isAX(o yamldoc.Object) bool {
	con := o.Opt("concurrency")
	return o.Opt("timeouts").Exists() || con.Has("max_inflight") || con.Has("per_tool_max_inflight") ||
		o.Opt("network").Has("default_egress_policy")
}

// either reads the one of two spellings that is there.
func either(ours, ax yamldoc.Value, name string) yamldoc.Value {
	if !ax.Exists() {
		return ours
	}
	if ours.Exists() {
		ax.Fail("TWICE", "one of the two", "the file says this as "+name+", too", "remove one of the two")
	}
	return ax
}

func (p *Policy) readConcurrency(v yamldoc.Value) {
	o := v.Object("global", "per_tool", "max_inflight", "per_tool_max_inflight")
	all := either(o.Opt("global"), o.Opt("max_inflight"), "concurrency.global")
	p.Concurrency = Concurrency{Global: int(number(all, 0, maxConcurrency, 0)), PerTool: map[string]int{}}
	p.perTool = map[string]yamldoc.Value{}
	limit := func(name string, e yamldoc.Entry) {
		if before, twice := p.perTool[name]; twice {
			e.Fail("TWICE", "each tool once", before.Path()+" already has the limit of this tool", "remove one of the two")
		}
		p.Concurrency.PerTool[name], p.perTool[name] = int(e.Int(1, maxConcurrency)), e.Value
	}
	for _, e := range o.Opt("per_tool").Entries() {
		if !toolName.MatchString(e.Key) {
			e.Fail("TOOL-NAME", toolNames, `"`+clip(e.Key)+`" is not a tool name`, "")
		}
		limit(e.Key, e)
	}
	for _, e := range o.Opt("per_tool_max_inflight").Entries() {
		if !toolID.MatchString(e.Key) {
			e.Fail("TOOL-ID", "tool ids such as firecrawl.crawl", `"`+clip(e.Key)+`" is not a tool id`, "")
		}
		limit(strings.ReplaceAll(e.Key, ".", "_"), e)
	}
}

// readAX reads what AX writes in another place or another form.
func (p *Policy) readAX(o yamldoc.Object) {
	timeout := either(o.Opt("default_timeout_sec"), o.Opt("timeouts").Object("default_tool_timeout_sec").Opt("default_tool_timeout_sec"),
		"default_timeout_sec")
	p.DefaultTimeoutSec = number(timeout, 1, plan.MaxTimeLimitSeconds, defaultTimeout)
	p.Network = "none"
	if net := o.Opt("network"); net.IsMap() {
		egress := net.Object("default_egress_policy").Need("default_egress_policy")
		if s := egress.Text(); s != "deny" && egress.Exists() && s != "" {
			egress.Fail("NETWORK", "deny: a job has no network, and a worker's hosts are listed", `"`+clip(s)+`" is not possible here`,
				"write deny, and list the hosts of each tool in its egress_allowlist in the manifest")
		}
	} else {
		p.Network = word(net, "NETWORK", "none")
	}
	log := o.Opt("logging").Object("level", "include_request_body")
	p.Logging.Level = "info"
	if v := log.Opt("level"); v.Exists() {
		p.Logging.Level = v.OneOf("LOG-LEVEL", "info", "debug", "warn", "error", "INFO", "DEBUG", "WARN", "WARNING", "ERROR")
		p.Logging.Level = strings.Replace(strings.ToLower(p.Logging.Level), "warning", "warn", 1)
	}
	if v := log.Opt("include_request_body"); v.Bool() {
		v.Fail("LOG-BODY", "false: the log never has the arguments of calls", "the log of this gateway cannot contain request bodies",
			"write false; the record of each call has its arguments, without secrets")
	}
}
