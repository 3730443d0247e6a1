package run

// CallRunID is the first part of an answer: the run that records the call itself (ARC-11).
type CallRunID struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	Params          any    `json:"-"` // the run's id is derived from it; nil: from the call's arguments and its answer
}

// CallRun returns the part of an answer that names its call.
func (r *CallRunID) CallRun() *CallRunID { return r }
