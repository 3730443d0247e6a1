package run

// CallRunID begins an answer: the run that the call itself is (ARC-11).
type CallRunID struct {
	ProvenanceRunID string `json:"provenance_run_id"`
	Params          any    `json:"-"` // what the run's id is made of; nil: the call's arguments and its answer
}

// CallRun returns the part of an answer that names its call.
func (r *CallRunID) CallRun() *CallRunID { return r }
