package doctor

import (
	"fmt"
	"slices"

	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// fewInodes is the number of inodes that must be free on each disk to accept a run: one makes about twenty files and
// folders, and as many for inputs and outputs as it has.
const fewInodes = 1000

// Room refuses a new run while one of the gateway's disks has less free space than the site's reserve, or hardly an inode. The reserve is
// for recording and collecting runs that have begun. A disk that cannot be examined refuses nothing: staging reports what is wrong with it.
// runsDir is empty where the folders of runs are on another host, or are users', each of which may have a quota.
func Room(s *site.Site, runsDir string) error {
	for _, d := range disksOf(s, runsDir) {
		for _, left := range []func(*site.Site, disk) (error, error){spaceLeft, inodesLeft} {
			if full, err := left(s, d); err == nil && full != nil {
				return full
			}
		}
	}
	return nil
}

// disk is a folder of the gateway.
type disk struct{ field, path string }

// disksOf lists the disks that this host sees; runsDir may be empty.
func disksOf(s *site.Site, runsDir string) []disk {
	return slices.DeleteFunc([]disk{{"gateway.state_dir", s.Gateway.StateDir}, {"storage.runs_dir", runsDir},
		{"gateway.artifact_dir", s.Gateway.ArtifactDir}}, func(d disk) bool { return d.path == "" })
}

// spaceLeft returns full if the disk has less free space than the reserve.
func spaceLeft(s *site.Site, d disk) (full, err error) {
	free, err := staging.Free(d.path)
	if err != nil {
		return nil, err
	}
	return littleSpace(s, d, free), nil
}

// littleSpace returns nil if so many free bytes are enough.
func littleSpace(s *site.Site, d disk, free int64) error {
	if free >= int64(s.Storage.ReserveMB)<<20 {
		return nil
	}
	return fault.New(fault.Transport, "disk_full",
		fmt.Sprintf("the disk of %s has %d MiB free; storage.reserve_mb reserves %d MiB for "+
			"runs that have begun", d.field, free>>20, s.Storage.ReserveMB)).
		WithNext("free space below " + d.path + ", or lower storage.reserve_mb; finished runs and replays are still served")
}

// inodesLeft returns full if the disk has hardly an inode. A filesystem that makes inodes as it needs them reports no
// number of them.
func inodesLeft(_ *site.Site, d disk) (full, err error) {
	free, limited, err := staging.FreeInodes(d.path)
	if err != nil || !limited {
		return nil, err
	}
	return fewLeft(d, free), nil
}

// fewLeft returns nil if so many free inodes are enough.
func fewLeft(d disk, free int64) error {
	if free >= fewInodes {
		return nil
	}
	return fault.New(fault.Transport, "disk_full", fmt.Sprintf("the disk of %s has %d inodes free; new runs need at least %d", d.field,
		free, fewInodes)).
		WithNext("remove files below " + d.path + " that are not needed: see df -i; finished runs and replays are still served")
}

// Space is the free space of a disk of another host. Inodes is -1 where it has no number of them.
type Space struct{ Bytes, Inodes int64 }

// FarRoom does what Room does for the runs_dir of a site that this host does not see.
func FarRoom(s *site.Site, free Space) error {
	d := disk{"storage.runs_dir", s.Storage.RunsDir}
	if err := littleSpace(s, d, free.Bytes); err != nil || free.Inodes < 0 {
		return err
	}
	return fewLeft(d, free.Inodes)
}

// disks judges every disk of the gateway; a folder that does not exist yet is judged by the one above it.
func (x *Exam) disks(left func(*site.Site, disk) (full, err error)) (results []Result) {
	for _, d := range disksOf(x.Cluster, x.RunsDir) {
		d.path = existing(d.path)
		full, err := left(x.Cluster, d)
		switch {
		case err != nil:
			results = append(results, failed("", err)...)
		case full != nil:
			results = append(results, failed("", full)...)
		}
	}
	if len(results) == 0 {
		return ok("")
	}
	return results
}
