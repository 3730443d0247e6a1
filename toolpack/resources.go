package toolpack

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"

	"slurmgate/plan"
	"slurmgate/policy/yamldoc"
)

// Memory and time limit of a pack may depend on the size of the call's inputs and on how the attempt before ended:
//
// 	resources: {cpus: 2, memMb: {base: 2048, perInputMb: 1.5, retryFactor: 2, max: 65536}, timeLimitSeconds: 900}
//
// The size counts when the call becomes a plan, so the result is part of the run's identity, as a number in the pack
// would be. The factor counts when a run is retried, and changes its attempt alone.

// growth describes how a resource grows from its base. Zero: it does not.
type growth struct {
	PerInputMB  float64 `json:"perInputMb,omitzero"`  // for each MiB of all inputs together
	RetryFactor float64 `json:"retryFactor,omitzero"` // of what the attempt before had, where that was too little
	Max         int     `json:"max,omitzero"`         // what neither of the two exceeds
}

// Bounds of the numbers in a growth.
const (
	mostPerInputMB  = 1 << 20
	mostRetryFactor = 16
)

// readAmount reads a resource: a number, or a mapping with its growth.
func readAmount(v yamldoc.Value, high int) (base int, g growth) {
	const most = 1 << 31
	if !v.IsMap() {
		return int(v.Int(-most, most)), growth{}
	}
	o := v.Object("base", "perInputMb", "retryFactor", "max")
	base = max(1, int(o.Need("base").Int(1, int64(high)))) // a wrong one is reported already
	if f := o.Opt("perInputMb"); f.Exists() {
		g.PerInputMB = f.Number(0, mostPerInputMB)
	}
	if f := o.Opt("retryFactor"); f.Exists() {
		g.RetryFactor = f.Number(1, mostRetryFactor)
	}
	if f := o.Opt("max"); f.Exists() {
		if g.Max = int(f.Int(1, int64(high))); g.Max > 0 && g.Max < base {
			f.Fail("RESOURCES", fmt.Sprintf("at least base, %d", base), fmt.Sprintf("%d is less than base", g.Max), "raise max, or lower base")
		}
	}
	return base, g
}

// on returns the amount for inputs of a size: base + perInputMb × their MiB, rounded up, at most max. The arithmetic
// is exact, so that the same call gives the same plan on any machine.
func (g growth) on(base int, inputBytes int64) int {
	if g.PerInputMB == 0 || inputBytes <= 0 {
		return base
	}
	more := new(big.Rat).Mul(exactly(g.PerInputMB), big.NewRat(inputBytes, 1<<20))
	return g.capped(new(big.Rat).Add(new(big.Rat).SetInt64(int64(base)), more))
}

// after returns the amount for the attempt after one whose amount was too little.
func (g growth) after(amount int) int {
	if g.RetryFactor <= 1 {
		return amount
	}
	return max(amount, g.capped(new(big.Rat).Mul(exactly(g.RetryFactor), new(big.Rat).SetInt64(int64(amount)))))
}

// exactly returns a number as it is written.
func exactly(f float64) *big.Rat {
	r, ok := new(big.Rat).SetString(strconv.FormatFloat(f, 'g', -1, 64))
	if !ok {
		return new(big.Rat)
	}
	return r
}

// capped rounds up, and cuts at max.
func (g growth) capped(r *big.Rat) int {
	n, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		n.Add(n, big.NewInt(1))
	}
	most := int64(g.Max)
	if most == 0 {
		most = math.MaxInt32 // more than any plan allows
	}
	if n.IsInt64() {
		most = min(most, n.Int64())
	}
	return int(most)
}

// ResourceInfo describes the resources of a run of a pack.
type ResourceInfo struct {
	CPUs             int        `json:"cpus"`
	MemMB            AmountInfo `json:"mem_mb"`
	TimeLimitSeconds AmountInfo `json:"time_limit_seconds"`
	GPUs             int        `json:"gpus"`
	GPUType          *string    `json:"gpu_type"`
	Summary          string     `json:"summary"` // the same in words
}

// AmountInfo is a resource that may depend on the size of the inputs and on how the attempt before ended.
type AmountInfo struct {
	Base        int     `json:"base"`
	PerInputMB  float64 `json:"per_input_mb"` // more for each MiB of all inputs together; 0: the size does not count
	RetryFactor float64 `json:"retry_factor"` // of those of an attempt that ended because they were too little; 0: a retry gets no more by itself
	Max         int     `json:"max"`          // what neither of the two exceeds; 0: no bound of the pack
}

// Resources describes what a run of the pack gets; nil where a call of it starts no job.
func (p *Pack) Resources() *ResourceInfo {
	r := p.def.Resources
	if r.CPUs == 0 {
		return nil
	}
	out := &ResourceInfo{CPUs: r.CPUs, MemMB: amountInfo(r.MemMB, r.MemGrows), TimeLimitSeconds: amountInfo(r.TimeLimitSeconds, r.TimeGrows),
		GPUType: clone(r.GPUType)}
	if r.GPUs != nil {
		out.GPUs = *r.GPUs
	}
	out.Summary = fmt.Sprintf("%s, memory %s, time %s", counted(out.CPUs, "CPU"), out.MemMB.text("MiB"), out.TimeLimitSeconds.text("s"))
	if out.GPUs > 0 {
		out.Summary += ", " + counted(out.GPUs, "GPU")
	}
	if out.GPUType != nil {
		out.Summary += " of type " + *out.GPUType
	}
	return out
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func amountInfo(base int, g growth) AmountInfo {
	return AmountInfo{Base: base, PerInputMB: g.PerInputMB, RetryFactor: g.RetryFactor, Max: g.Max}
}

// text writes an amount with its unit.
func (a AmountInfo) text(unit string) string {
	s := fmt.Sprintf("%d %s", a.Base, unit)
	if a.PerInputMB > 0 {
		s += fmt.Sprintf(" and %v %s for each MiB of inputs", a.PerInputMB, unit)
	}
	var more []string
	if a.RetryFactor > 1 {
		more = append(more, fmt.Sprintf("%v times as much in a retry after too little", a.RetryFactor))
	}
	if a.Max > 0 {
		more = append(more, fmt.Sprintf("at most %d %s", a.Max, unit))
	}
	if len(more) > 0 {
		s += " (" + strings.Join(more, ", ") + ")"
	}
	return s
}

// largestTime returns the longest time limit that the pack itself sets for a job; without a max it is not known, and
// base counts.
func (r resources) largestTime() int { return max(r.TimeLimitSeconds, r.TimeGrows.Max) }

// sized returns the pack with the resources of a call: by the size of its inputs, and those that the call itself
// sets.
func (p *Pack) sized(seen map[string]ArtifactInfo, asked plan.MoreResources) *Pack {
	r := p.def.Resources
	bytes := total(seen, nil)
	r.MemMB, r.TimeLimitSeconds = r.MemGrows.on(r.MemMB, bytes), r.TimeGrows.on(r.TimeLimitSeconds, bytes)
	all := asked.On(r.plan())
	r.CPUs, r.MemMB, r.TimeLimitSeconds = all.CPUs, all.MemMB, all.TimeLimitSeconds
	out := *p
	out.def.Resources = r
	return &out
}

// AfterOutOfMemory returns the memory in MiB of the attempt after one which had too little; the same where the pack
// has no retryFactor.
func (c *Contract) AfterOutOfMemory(memMB int) int { return c.mem.after(memMB) }

// AfterTimeLimit returns the time limit in seconds of the attempt after one whose time was too short; the same
// without a retryFactor.
func (c *Contract) AfterTimeLimit(seconds int) int { return c.time.after(seconds) }
