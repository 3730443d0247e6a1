package site

// Retention says how long `slurmgate gc` keeps files that are no longer needed. The inputs, outputs, logs, script and history
// of a run are never removed.
type Retention struct {
	WorkspaceDays int `yaml:"workspace_days"` // 0..36500 days after the end of a run: its folder; 0: forever; default 30
	ImportDays    int `yaml:"import_days"`    // 0..36500 days after its last import: an artifact that no run used; 0, the default: forever
}

const defaultWorkspaceDays = 30
