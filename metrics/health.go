package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Health is what alerts are about besides runs and Slurm. A zero time is not known.
type Health struct {
	Oldest  []Oldest
	Drained map[string]bool // by site, the gateway's own host too
	Budget  map[string]int  // by site: RPCs per minute
	Disks   []Disk
	Ledger  int64 // bytes
	Stopped bool  // the ledger accepts no changes
	Backup  time.Time
	Damaged int // artifacts that the last backup could not copy
}

// Oldest is the run that has been longest in a phase that should be short: in staging and deferred since its attempt was opened, in others
// since its last change.
type Oldest struct {
	Site, Phase string
	Since       time.Time
}

// Disk is a filesystem that the gateway fills.
type Disk struct {
	Site, Folder  string // Folder: state_dir, artifact_dir or runs_dir
	Free, Reserve int64  // bytes
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("slurmgate_"+name, help, labels, nil)
}

var (
	oldestDesc = desc("oldest_run_seconds", "Age of the oldest run in a phase that should be short: staging and deferred since the attempt "+
		"was "+
		"opened, the others since the last change.", "site", "phase")
	drainedDesc = desc("drained", "1 if the site is drained, else 0.", "site")
	budgetDesc  = desc("rpc_budget_per_minute", "RPCs to Slurm that the site file allows per minute.", "site")
	freeDesc    = desc("disk_free_bytes", "Free bytes on the disk of a folder of the gateway.", "site", "folder")
	reserveDesc = desc("disk_reserve_bytes", "Bytes that must be free to accept a run (storage.reserve_mb).", "site", "folder")
	ledgerDesc  = desc("ledger_bytes", "Size of the ledger's file.")
	stoppedDesc = desc("ledger_stopped", "1 if the ledger accepts no changes since its disk failed, else 0.")
	backupDesc  = desc("last_backup_timestamp_seconds", "When the last backup was made, Unix time; 0 if none is known.")
	damagedDesc = desc("last_backup_damaged_artifacts", "Artifacts that the last backup could not copy because they are missing or damaged.")
)

var healthDescs = []*prometheus.Desc{oldestDesc, drainedDesc, budgetDesc, freeDesc, reserveDesc, ledgerDesc, stoppedDesc, backupDesc,
	damagedDesc}

func (h Health) collect(now time.Time, gauge func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, o := range h.Oldest {
		gauge(oldestDesc, now.Sub(o.Since).Seconds(), o.Site, o.Phase)
	}
	for site, drained := range h.Drained {
		gauge(drainedDesc, one(drained), site)
	}
	for site, n := range h.Budget {
		gauge(budgetDesc, float64(n), site)
	}
	for _, d := range h.Disks {
		gauge(freeDesc, float64(d.Free), d.Site, d.Folder)
		gauge(reserveDesc, float64(d.Reserve), d.Site, d.Folder)
	}
	gauge(ledgerDesc, float64(h.Ledger))
	gauge(stoppedDesc, one(h.Stopped))
	backup := 0.0
	if !h.Backup.IsZero() {
		backup = float64(h.Backup.Unix())
	}
	gauge(backupDesc, backup)
	gauge(damagedDesc, float64(h.Damaged))
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
