// Package backup copies what a gateway keeps into a folder, while it runs or not, and puts it back.
//
//	<dir>/objects/<aa>/<sha256>     the bytes of artifacts, once for all backups of the folder
//	<dir>/<time>/manifest.json      what the backup is; a folder without it is no backup
//	<dir>/<time>/ledger.db          a consistent copy of the ledger
//	<dir>/<time>/objects.sha256     the artifacts that this ledger names, as sha256sum -c reads them in <dir>
//	<dir>/<time>/config/            site file, files of its clusters, domain: for reference; a restore does not write them
//	<dir>/.new-*                    being made, or being removed
//
// A backup gets its name in one step, when all its bytes are on the disk.
package backup

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"slurmgate/fault"
	"slurmgate/plan"
)

// The files of a backup.
const (
	manifestFile = "manifest.json"
	ledgerName   = "ledger.db"
	listFile     = "objects.sha256"
	configDir    = "config"
	objectsDir   = "objects"
	unfinished   = ".new-"
)

const format = 1

// Manifest describes a backup. The file is written last.
type Manifest struct {
	Format      int              `json:"format"` // 1
	CreatedAt   time.Time        `json:"created_at"`
	Version     string           `json:"slurmgate"`
	Host        string           `json:"host"`
	GatewayID   string           `json:"gateway_id"`
	Sites       []string         `json:"sites"`
	SiteFile    string           `json:"site_file"`
	StateDir    string           `json:"state_dir"`
	ArtifactDir string           `json:"artifact_dir"`
	Schema      int              `json:"ledger_schema"`
	Runs        map[string]int64 `json:"runs"` // by state
	Ledger      File             `json:"ledger"`
	List        File             `json:"objects_list"`
	Objects     int64            `json:"objects"` // that the ledger names and the backup has
	Bytes       int64            `json:"object_bytes"`
	Damaged     []string         `json:"damaged"` // checksums that the ledger names and whose bytes were missing or damaged in the store
	Config      []File           `json:"config"`
	Without     []string         `json:"not_included"`
}

// File is a file of a backup.
type File struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// without lists what a backup lacks, for the administrator who restores it.
var without = []string{
	"runs_dir: the workspaces of runs; finished runs have their outputs as artifacts",
	"image_store: images; copy it, or add each image of images.lock.yaml again",
	"secrets: TLS keys, and what files outside the site file's folder and domain_dir contain; bearer tokens are hashes in the ledger and " +
		"stay valid",
	"units of systemd, and Slurm's and munge's configuration",
}

// Find returns the folder of a backup: dir itself, or the newest of those in it.
func Find(dir string) (string, error) {
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); err == nil {
		return dir, nil
	}
	all, err := list(dir)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", fault.New(fault.NotFound, "no_backup", "there is no complete backup in "+dir).
			WithNext("name a folder that slurmgate backup wrote, or one of the backups in it")
	}
	return filepath.Join(dir, all[len(all)-1]), nil
}

// list names the backups in a folder, oldest first.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.NotFound, "no_backup", "there is no folder "+dir).WithNext("check the path")
	}
	if err != nil {
		return nil, disk("the folder of backups cannot be read", err)
	}
	for _, e := range entries {
		if _, err := os.Stat(filepath.Join(dir, e.Name(), manifestFile)); err == nil && !strings.HasPrefix(e.Name(), unfinished) {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// Read reads the manifest of a backup.
func Read(folder string) (m Manifest, err error) {
	data, err := os.ReadFile(filepath.Join(folder, manifestFile))
	if err != nil {
		return m, disk("the manifest of the backup cannot be read", err)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&m); err != nil {
		return m, fault.Wrap(fault.Validation, "backup_damaged", "the manifest of the backup is damaged", err)
	}
	if m.Format != format {
		return m, fault.New(fault.Validation, "backup_format", fmt.Sprintf("the backup has format %d; this slurmgate reads %d", m.Format,
			format)).
			WithNext("use the version of slurmgate that wrote it: " + m.Version)
	}
	return m, nil
}

// object is an entry of the list of objects.
type object struct {
	sum  string
	size int64
}

func (o object) rel() string { return filepath.Join(objectsDir, o.sum[:2], o.sum) }

// line returns the entry as sha256sum(1) reads it; the size is a comment line before it.
func (o object) line() string { return fmt.Sprintf("# %d\n%s  %s\n", o.size, o.sum, o.rel()) }

// eachObject reads a list of objects.
func eachObject(data []byte, f func(object) error) error {
	size := int64(-1)
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		bad := fault.New(fault.Validation, "backup_damaged", fmt.Sprintf("line %d of %s cannot be read", n, listFile))
		if text, ok := strings.CutPrefix(line, "# "); ok {
			var err error
			if size, err = strconv.ParseInt(text, 10, 64); err != nil || size < 0 {
				return bad
			}
			continue
		}
		sum, rel, _ := strings.Cut(line, "  ")
		o := object{sum, size}
		if size < 0 || !plan.IsSHA256(sum) || rel != o.rel() {
			return bad
		}
		if err := f(o); err != nil {
			return err
		}
		size = -1
	}
	return lines.Err()
}

// disk returns an error of a filesystem.
func disk(msg string, err error) error {
	return fault.Wrap(fault.Transport, "backup_disk", msg, err).WithNext("check the disk and its permissions, then repeat the command")
}
