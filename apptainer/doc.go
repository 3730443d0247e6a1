// Package apptainer stores the pinned images and builds Apptainer's command line.
//
// An image is pinned by the SHA-256 of its SIF file. A [Store] holds images by that digest, a lock ([Named]) gives them
// the names that toolpacks use, and a [Runtime] writes the exec line of a plan. [Images] combines Store and Runtime for
// the lifecycle.
//
// The package starts no process: the exec line is run by the job script, on a compute node.
package apptainer

import (
	"slurmgate/run"
)

// Images combines the store and the runtime of one site.
type Images struct {
	*Store
	*Runtime
}

var _ run.Images = Images{}
