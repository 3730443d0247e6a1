package site

// Retention says how long `slurmgate gc` leaves alone what is no longer needed. What a run refers to is never removed: its inputs, outputs,
// logs, script and history.
type Retention struct {
	WorkspaceDays int `yaml:"workspace_days"` // 0..36500: the folder of a finished run, since its end; 0 for ever; default 30
	ImportDays    int `yaml:"import_days"`    // 0..36500: an imported artifact that no run used, since its last import; 0, the default, for ever
}

const defaultWorkspaceDays = 30
