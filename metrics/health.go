package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Health has the values for alerts besides runs and Slurm. A zero time is not known.
type Health struct {
	Oldest  []Oldest
	Drained map[string]bool // by site, including the gateway's own host
	Sites   []Site
	Budget  map[string]int // by site: RPCs per minute
	Disks   []Disk
	Ledger  int64 // bytes
	Stopped bool  // the ledger accepts no changes
	Backup  time.Time
	Damaged int // artifacts that the last backup could not copy
}

// Site is the state of a site, or of the gateway's own host.
type Site struct {
	Name   string
	Up     bool             // it is open, and its files can be reached; a separate figure is for its Slurm
	Opened bool             // since the gateway started
	Runs   map[string]int64 // unfinished ones, by phase
	Budget *Budget          // nil without a budget, and before the site is open
	Links  []Link
}

// Budget is the use of a site's budget of requests to Slurm.
type Budget struct {
	Left  int   // RPCs that may be made now
	Total int64 // RPCs made since the site was opened

	SharedLeft *int // of the budget shared with other gateways; nil without one, or if it cannot be used
}

// Link is a permanent connection to a remote site.
type Link struct {
	To     string // slurm or files; users: all connections as users together
	Up     bool   // for users: the signer's latest answer was a success
	Losses int64  // since the gateway started

	Users   int // connected now
	Refused int // users that were refused at their last login
}

// Oldest is the run that has been longest in a phase that should be short: in staging and deferred since its attempt was opened, in others
// since its last change.
type Oldest struct {
	Site, Phase string
	Since       time.Time
}

// Disk is a filesystem that the gateway writes to.
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
	siteUpDesc  = desc("site_up", "1 if the site is open and its files can be reached, else 0. Its Slurm is slurmgate_slurm_up.", "site")
	openedDesc  = desc("site_opened", "1 if the site has been opened since the gateway started, else 0: its hosts have not answered, or what "+
		"answered is not what the site file says.", "site")
	siteRunDesc = desc("site_runs", "Unfinished runs, by site and phase.", "site", "phase")
	leftDesc    = desc("rpc_budget_left", "RPCs to Slurm that may be made now without waiting.", "site")
	sharedDesc  = desc("rpc_budget_shared_left", "RPCs to Slurm that the gateways of this host may make now without waiting.", "site")
	rpcsDesc    = desc("rpcs_total", "RPCs to Slurm since the site was opened.", "site")
	linkDesc    = desc("connection_up", "1 if the connection to a site that is elsewhere is up, else 0; to: slurm or files.", "site", "to")
	lossesDesc  = desc("connection_losses_total", "How often the connection to a site that is elsewhere was lost; to: slurm or files.", "site",
		"to")
	signerDesc  = desc("signer_up", "1 if the signer answered when it was last asked, else 0, of a site with run_as: caller.", "site")
	usersDesc   = desc("users", "Users that jobs run as: connected now, or refused at their last login.", "site", "state")
	budgetDesc  = desc("rpc_budget_per_minute", "RPCs to Slurm that the site file allows per minute.", "site")
	freeDesc    = desc("disk_free_bytes", "Free bytes on the disk of a folder of the gateway.", "site", "folder")
	reserveDesc = desc("disk_reserve_bytes", "Bytes that must be free to accept a run (storage.reserve_mb).", "site", "folder")
	ledgerDesc  = desc("ledger_bytes", "Size of the ledger's file.")
	stoppedDesc = desc("ledger_stopped", "1 if the ledger accepts no changes since its disk failed, else 0.")
	backupDesc  = desc("last_backup_timestamp_seconds", "When the last backup was made, Unix time; 0 if none is known.")
	damagedDesc = desc("last_backup_damaged_artifacts", "Artifacts that the last backup could not copy because they are missing or damaged.")
)

var healthDescs = []*prometheus.Desc{siteUpDesc, openedDesc, siteRunDesc, leftDesc, sharedDesc, rpcsDesc, linkDesc, lossesDesc, signerDesc,
	usersDesc, oldestDesc,
	drainedDesc, budgetDesc, freeDesc, reserveDesc, ledgerDesc, stoppedDesc, backupDesc,
	damagedDesc}

func (h Health) collect(now time.Time, gauge, counter func(d *prometheus.Desc, v float64, labels ...string)) {
	for _, s := range h.Sites {
		gauge(siteUpDesc, one(s.Up), s.Name)
		gauge(openedDesc, one(s.Opened), s.Name)
		for phase, n := range s.Runs {
			gauge(siteRunDesc, float64(n), s.Name, phase)
		}
		if s.Budget != nil {
			gauge(leftDesc, float64(s.Budget.Left), s.Name)
			counter(rpcsDesc, float64(s.Budget.Total), s.Name)
			if s.Budget.SharedLeft != nil {
				gauge(sharedDesc, float64(*s.Budget.SharedLeft), s.Name)
			}
		}
		for _, l := range s.Links {
			if l.To == "users" {
				gauge(signerDesc, one(l.Up), s.Name)
				gauge(usersDesc, float64(l.Users), s.Name, "connected")
				gauge(usersDesc, float64(l.Refused), s.Name, "refused")
				continue
			}
			gauge(linkDesc, one(l.Up), s.Name, l.To)
			counter(lossesDesc, float64(l.Losses), s.Name, l.To)
		}
	}
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
