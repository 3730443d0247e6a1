// Command sbom prints the software bill of materials of a Go program (CycloneDX, JSON), from the build information in the program itself:
//
//	sbom PROGRAM VERSION [NAME=VERSION=PURL...]
//
// Each NAME=VERSION=PURL is a component that is in no Go module, such as the C library. The same program gives the same bytes; the time
// is SOURCE_DATE_EPOCH.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION [NAME=VERSION=PURL...]")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, file, version string, others []string) error {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	epoch, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	digest := sha256.Sum256(data)
	program := cdx.Component{BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: version,
		Hashes:   &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest[:])}},
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}}
	components := []cdx.Component{library("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, library(m.Path, m.Version, ""))
	}
	for _, o := range others {
		part := strings.SplitN(o, "=", 3)
		if len(part) != 3 {
			return fmt.Errorf("%q is not NAME=VERSION=PURL", o)
		}
		components = append(components, library(part[0], part[1], part[2]))
	}
	needs := make([]string, len(components))
	for i, c := range components {
		needs[i] = c.BOMRef
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(digest)
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(epoch, 0).UTC().Format(time.RFC3339), Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &needs}}
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// serial makes a UUID (version 8, of own content) of the program's checksum.
func serial(digest [sha256.Size]byte) string {
	u := digest
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// library returns one component; purl is empty for a Go module.
func library(name, version, purl string) cdx.Component {
	if purl == "" {
		purl = "pkg:golang/" + strings.ReplaceAll(name, "+", "%2B") + "@" + strings.ReplaceAll(version, "+", "%2B")
	}
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: purl}
}
