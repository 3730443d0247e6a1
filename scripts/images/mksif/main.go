// Command mksif wraps a squashfs root filesystem into a SIF container image whose bytes depend on nothing but the root filesystem and the
// architecture, as apptainer.Wrap does it:
//
//	mksif -arch amd64 -o OUT.sif ROOT.squashfs
//
// slurmgate pins an image by the SHA-256 of its file, so the same root filesystem must give the same file on every machine and every day.
// OUT.sif is either as it was or complete. Exit status is 0, 1 when the image could not be made, or 2 on wrong usage.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"slurmgate/apptainer"
)

func main() {
	arch := flag.String("arch", runtime.GOARCH, "CPU `architecture` of the programs inside, in Go's spelling")
	out := flag.String("o", "", "image `file` to write")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: mksif [-arch ARCH] -o OUT.sif ROOT.squashfs")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *out == "" || flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := apptainer.Wrap(*out, flag.Arg(0), *arch); err != nil {
		fmt.Fprintln(os.Stderr, "mksif:", err)
		os.Exit(1)
	}
}
