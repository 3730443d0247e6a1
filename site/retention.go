package site

// Retention configures how long `slurmgate gc` keeps files that are no longer needed. The inputs, outputs, logs,
// script and history of a run are never removed.
type Retention struct {
	// Keep the workspace of a finished run for this many days after its end. 0: for ever.
	WorkspaceDays int `yaml:"workspace_days" default:"30" min:"0" max:"36500"`
	// Keep an artifact that no run used for this many days after its last import. 0: for ever.
	ImportDays int `yaml:"import_days" min:"0" max:"36500"`
}
