// Package apptainer stores the pinned images and builds Apptainer's command line.
//
// An image is pinned by the SHA-256 of its SIF file. A [Store] has images by that digest, a [Lock] gives
// them the names toolpacks use, and a [Runtime] writes the exec line of a plan. [Images] is Store and
// Runtime together, as the lifecycle wants them.
//
// The package starts no process: the exec line is run by the job script, on a compute node.
package apptainer

import (
	"slurmgate/run"
)

// Images is the store and the runtime of one site.
type Images struct {
	*Store
	*Runtime
}

var _ run.Images = Images{}
