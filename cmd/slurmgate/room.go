package main

import (
	"fmt"

	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// roomFor refuses another run while a disk of the gateway's has less free than the site's reserve. What has begun is still recorded
// and collected with the rest. A disk that cannot be asked refuses nothing: staging will say what is wrong with it.
func roomFor(s *site.Site) error {
	for _, d := range []struct{ field, path string }{{"gateway.state_dir", s.Gateway.StateDir}, {"storage.runs_dir", s.Storage.RunsDir}, {"gateway.artifact_dir", s.Gateway.ArtifactDir}} {
		free, err := staging.Free(d.path)
		if need := int64(s.Storage.ReserveMB) << 20; err == nil && free < need {
			return fault.New(fault.Transport, "room", "disk_full", fmt.Sprintf("the disk of %s has %d MiB free, and storage.reserve_mb keeps %d MiB for runs that have begun", d.field, free>>20, s.Storage.ReserveMB)).
				WithNext("free space below " + d.path + ", or lower storage.reserve_mb; finished runs and replays are still served")
		}
	}
	return nil
}
