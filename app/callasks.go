package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"slurmgate/plan"
	"slurmgate/run"
	"slurmgate/site"
	"slurmgate/toolpack"
)

// A call of a toolpack's tool may have arguments for the gateway besides the tool's own. A pack does not know them; a
// pack that has an argument of the same name keeps its own.

// callAsks holds what a call asks of the gateway.
type callAsks struct {
	Site      string             `json:"site"`      // the site to run on; empty: policy picks one
	Resources plan.MoreResources `json:"resources"` // replace the tool's own for the job
}

// moreSchema returns the schema of requested resources; cpus adds CPUs. Policy has lower bounds, which its refusals
// name.
func moreSchema(about string, cpus bool) json.RawMessage {
	properties := fmt.Sprintf(`"mem_mb":{"type":"integer","minimum":1,"maximum":%d,"examples":[8192],"description":"MiB"},`+
		`"time_limit_seconds":{"type":"integer","minimum":1,"maximum":%d,"examples":[3600]}`, plan.MaxMemMB, plan.MaxTimeLimitSeconds)
	if cpus {
		properties = fmt.Sprintf(`"cpus":{"type":"integer","minimum":1,"maximum":%d,"examples":[4]},`, plan.MaxCPUs) + properties
	}
	return json.RawMessage(fmt.Sprintf(`{"type":"object","additionalProperties":false,"description":%q,"properties":{%s}}`, about, properties))
}

// asksOf returns the schemas of the arguments that calls of a pack may add: a site where there are several clusters,
// and resources.
func (g *Gateway) asksOf() map[string]any {
	asks := map[string]any{"resources": moreSchema("what the job gets instead of what the tool gives it, within policy's bounds; "+
		"part of the run's identity. Leave it out unless the tool's own are too little", true)}
	if g.several() {
		asks["site"] = map[string]any{"type": "string", "maxLength": 64,
			"description": "the site to run on: " + strings.Join(g.Sites.Names(), ", ") + "; if absent, policy picks one"}
	}
	return asks
}

// inputOf returns the input schema of a pack's tool with the arguments that calls may add, and the names of these.
func (g *Gateway) inputOf(p *toolpack.Pack) (schema json.RawMessage, offered []string) {
	schema = p.InputSchema()
	var doc map[string]any
	if json.Unmarshal(schema, &doc) != nil {
		return schema, nil
	}
	properties, _ := doc["properties"].(map[string]any)
	if properties == nil {
		if doc["properties"] != nil {
			return schema, nil
		}
		properties = map[string]any{}
		doc["properties"] = properties
	}
	if len(p.Inputs()) > 0 {
		allowReferences(doc)
		allowOutputs(doc)
	}
	for name, ask := range g.asksOf() {
		if _, own := properties[name]; !own {
			properties[name], offered = ask, append(offered, name)
		}
	}
	with, err := json.Marshal(doc)
	if err != nil {
		return schema, nil
	}
	return with, offered
}

// takeAsks separates the arguments for the gateway from the others.
func (g *Gateway) takeAsks(p *toolpack.Pack, args json.RawMessage) (rest json.RawMessage, asks callAsks, err error) {
	_, offered := g.inputOf(p)
	var doc map[string]json.RawMessage
	if json.Unmarshal(args, &doc) != nil {
		return args, asks, nil // the pack reports what is wrong with them
	}
	taken := map[string]json.RawMessage{}
	for _, name := range offered {
		if raw, given := doc[name]; given {
			taken[name] = raw
			delete(doc, name)
		}
	}
	if len(taken) == 0 {
		return args, asks, nil
	}
	raw, err := json.Marshal(taken)
	if err == nil {
		err = json.Unmarshal(raw, &asks)
	}
	if err == nil {
		rest, err = plan.Marshal(doc)
	}
	return rest, asks, err
}

// Most returns the most memory and time that a job of the plan can have: by policy, and by its partition as Slurm
// last reported it.
func (g *Gateway) Most(ctx context.Context, s *site.Site, p plan.Params) (mem, time run.Ceiling) {
	if p.Docker {
		return run.Ceiling{Most: g.Policy.Local.MaxMemMB, Why: "policy local.max_mem_mb"},
			run.Ceiling{Most: g.Policy.Local.MaxTimeLimitSeconds, Why: "policy local.max_time_limit_seconds"}
	}
	mem = run.Ceiling{Most: g.Policy.Slurm.MaxMemMB, Why: "policy slurm.max_mem_mb"}
	time = run.Ceiling{Most: g.Policy.Slurm.MaxTimeLimitSeconds, Why: "policy slurm.max_time_limit_seconds"}
	name := p.Spec.Placement.Partition
	for _, x := range g.Sites.Partitions(ctx, s.Name) {
		if x.Name != name && !(name == "" && x.Default) {
			continue
		}
		if x.MemMB > 0 && x.MemMB < mem.Most {
			mem = run.Ceiling{Most: x.MemMB, Why: "the largest node of partition " + x.Name}
		}
		if most := int(x.MaxSeconds/60*60) - s.Slurm.VerifyAllowanceSeconds; x.MaxSeconds > 0 && most > 0 && most < time.Most {
			time = run.Ceiling{Most: most, Why: "the time limit of partition " + x.Name}
		}
	}
	return mem, time
}
