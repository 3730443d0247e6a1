// Package filetype has the artifact types. All facts about a type are in one row, and other code derives from it what
// a file is, whether it is whole, how it is shown, and its media type.
package filetype

import (
	"slices"
	"strings"
)

// Type describes an artifact type. Of a type that only a domain has, most is known only where the table has a row for
// it.
type Type struct {
	Name    string
	Endings []string // of file names, in lower case
	Media   string   // media type of the bytes; "" without one

	Binary    bool   // a preview describes the bytes instead of quoting them
	Image     bool   // it can be previewed as a picture
	Delimiter string // comma or tab: it can be previewed as a table
	NoLines   bool   // its content, uncompressed, has no lines to count
	MayGzip   bool   // a gzip file of it has the same type

	own    bool     // only of domains whose manifest lists it
	magics []string // the content begins with one of these
	blocks string   // the file is BGZF, and its content begins with this
	named  bool     // where a name has none of the endings, these bytes are something else
	looks  looks    // of a text, or of the content of a gzip file
	empty  bool     // content of no bytes is one
	check  rule     // of the content
	anew   string   // writes a file whose content is whole anew; "": zcat and gzip do
}

// looks reports whether content is of a type, judged by its beginning. named: the file's name has one of the type's endings;
// nameless: it has no ending at all, as that of a stream.
type looks func(content []byte, named, nameless bool) bool

// table has the types. The first that a file's bytes match is its type. A type that ends in _GZ is also gzip, and its
// rules apply to the inflated content. Types without a rule are not checked.
var table = []Type{
	{Name: "FASTQ_GZ", Endings: []string{".fastq.gz", ".fq.gz"}, Media: "application/gzip", Binary: true,
		looks: looksFASTQ, empty: true, check: checkFASTQ},
	{Name: "BAM", Endings: []string{".bam"}, Binary: true, NoLines: true,
		blocks: magicBAM, check: checkBAM, anew: "samtools view -b FILE > NEW.bam"},
	{Name: "BAI", Endings: []string{".bai"}, Binary: true, NoLines: true, magics: []string{"BAI\x01"}},
	{Name: "VCF", Endings: []string{".vcf", ".vcf.gz"}, Media: "text/plain", Delimiter: "tab", MayGzip: true,
		magics: []string{"##fileformat=VCF"}, anew: "zcat FILE | bgzip > NEW.vcf.gz"},
	{Name: "H5AD", Endings: []string{".h5ad"}, Binary: true, NoLines: true,
		magics: []string{magicHDF5}, named: true, check: checkHDF5}, // HDF5 holds much else
	{Name: "FASTA", own: true, looks: looksFASTA},
	{Name: "FASTA_GZ", own: true, looks: looksFASTA},
	{Name: "FASTQ", own: true, looks: looksFASTQ, empty: true, check: checkFASTQ},
	{Name: "SAM", own: true, looks: looksSAM},
	{Name: "SAM_GZ", own: true, looks: looksSAM},
	{Name: "HTML", Endings: []string{".html", ".htm"}, Media: "text/html", looks: looksHTML},
	{Name: "JSON", Endings: []string{".json"}, Media: "application/json", NoLines: true, looks: looksJSON, check: checkJSON},
	{Name: "TSV", Endings: []string{".tsv", ".tab"}, Media: "text/tab-separated-values", Delimiter: "tab", looks: looksTSV},
	{Name: "CSV", Endings: []string{".csv"}, Media: "text/csv", Delimiter: "comma", looks: looksCSV},
	{Name: "ZIP", Endings: []string{".zip"}, Media: "application/zip", Binary: true, NoLines: true,
		magics: []string{"PK\x03\x04", "PK\x05\x06"}, check: checkZIP}, // the second is an empty archive
	{Name: "MD", Endings: []string{".md", ".markdown"}, Media: "text/markdown", looks: looksMD},
	{Name: "PDF", Endings: []string{".pdf"}, Media: "application/pdf", Binary: true, NoLines: true,
		magics: []string{"%PDF-"}, check: checkPDF},
	{Name: "PNG", Endings: []string{".png"}, Media: "image/png", Binary: true, Image: true, NoLines: true,
		magics: []string{"\x89PNG\r\n\x1a\n"}, check: checkPNG},
	{Name: "LOG", Endings: []string{".log"}, Media: "text/plain", looks: looksLOG},
	{Name: "TEXT", Endings: []string{".txt"}, Media: "text/plain", looks: looksTEXT},
	{Name: Unknown},
	{Name: Directory},
}

const (
	Unknown   = "UNKNOWN"   // bytes of which nothing is claimed
	Directory = "DIRECTORY" // a folder
)

const (
	magicGzip = "\x1f\x8b\x08"
	magicBAM  = "BAM\x01"
	magicHDF5 = "\x89HDF\r\n\x1a\n"
	suffixGz  = "_GZ"
	typeGzip  = "gzip" // no artifact type: what a name that ends in .gz claims
)

// Names returns the types that every gateway knows; a domain's manifest may add more.
func Names() (names []string) {
	for _, t := range table {
		if !t.own {
			names = append(names, t.Name)
		}
	}
	return names
}

// Of returns what is known about the type of a name: nothing but the name where the table does not have it.
func Of(name string) Type {
	for _, t := range table {
		if t.Name == name {
			return t
		}
	}
	return Type{Name: name}
}

// ByEnding finds the type that a file's name means by its ending; its Name is "" without one.
func ByEnding(name string) Type {
	for _, t := range table {
		if t.hasEnding(name) {
			return t
		}
	}
	return Type{}
}

// PlainLines reports whether files of the type are text that can be read line by line as it is.
func (t Type) PlainLines() bool { return !t.NoLines && !t.MayGzip && !t.isGzip() }

func (t Type) isGzip() bool { return strings.HasSuffix(t.Name, suffixGz) }

func (t Type) hasEnding(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(t.Endings, func(end string) bool { return strings.HasSuffix(name, end) })
}

// claimOf returns the type that a file's name claims; "" where it claims none whose bytes can prove it.
func claimOf(name string) string {
	if t := ByEnding(name); t.Binary || t.magics != nil {
		return t.Name
	}
	if name = strings.ToLower(name); strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".bgz") {
		return typeGzip
	}
	return ""
}
