package doctor

import (
	"fmt"

	"slurmgate/fault"
	"slurmgate/site"
	"slurmgate/staging"
)

// Room refuses a new run while one of the gateway's disks has less free space than the site's reserve. The reserve is for recording and
// collecting runs that have begun. A disk that cannot be examined refuses nothing: staging reports what is wrong with it.
func Room(s *site.Site) error {
	for _, d := range []struct{ field, path string }{{"gateway.state_dir", s.Gateway.StateDir}, {"storage.runs_dir", s.Storage.RunsDir},
		{"gateway.artifact_dir", s.Gateway.ArtifactDir}} {
		free, err := staging.Free(d.path)
		if need := int64(s.Storage.ReserveMB) << 20; err == nil && free < need {
			return fault.New(fault.Transport, "room", "disk_full",
				fmt.Sprintf("the disk of %s has %d MiB free; storage.reserve_mb reserves %d MiB for runs that have begun", d.field, free>>20,
					s.Storage.ReserveMB)).
				WithNext("free space below " + d.path + ", or lower storage.reserve_mb; finished runs and replays are still served")
		}
	}
	return nil
}
