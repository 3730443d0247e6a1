package app

import (
	"context"
	"crypto/rand"
	"path/filepath"

	"slurmgate/artifact"
	"slurmgate/site"
)

// OwnFiles searches for files below a site's import roots in the process of the user who asks, with that user's
// rights. The gateway accepts such a file only from the process that has it open, so it lists none for users of this
// host.
type OwnFiles struct {
	importer *artifact.Importer
	key      []byte
	handles  handles
}

// NewOwnFiles returns the files of the current user. It omits a root that cannot be used here.
func NewOwnFiles(s *site.Site) *OwnFiles {
	o := &OwnFiles{key: []byte(rand.Text())}
	var roots []artifact.Root
	for _, r := range s.Import.Roots {
		one := artifact.Root{Folder: r.Path, Projects: []string{artifact.Every}} // the gateway decides on the project
		if _, err := artifact.NewImporter(nil, artifact.ImportPolicy{Roots: []artifact.Root{one}, MaxBytes: 1}); err == nil {
			roots = append(roots, one)
		}
	}
	own := []string{s.Gateway.StateDir, s.Gateway.ArtifactDir}
	for _, c := range s.All() {
		own = append(own, c.Storage.RunsDir)
	}
	o.importer, _ = artifact.NewImporter(nil, artifact.ImportPolicy{Roots: roots, MaxBytes: 1, Own: own}) // each root was tried above
	return o
}

// Fill adds to an answer of artifact.find at most limit files that the gateway leaves to the user's own process.
func (o *OwnFiles) Fill(ctx context.Context, out *FoundList, name string, limit int) {
	if out.Note != ownRights {
		return
	}
	found, whole := o.importer.Find(ctx, artifact.Scope{Every: true}, artifact.Named(name))
	out.FilesTotal, out.Note = len(found), ""
	if out.Cursor != nil { // files follow the last artifact
		return
	}
	if room := max(0, limit-len(out.Artifacts)); !whole || len(found) > room {
		out.Note = "not every file is listed; give a longer part of the name"
		found = found[:min(len(found), room)]
	}
	for _, x := range found {
		f := FoundFile{FileHandle(o.key, "", x.Path), filepath.Base(x.Path), x.SizeBytes, x.ModifiedAt.UTC()}
		o.handles.put(f.FileID, x.Path)
		out.Files = append(out.Files, f)
	}
}

// Path returns the path of a file that was found before.
func (o *OwnFiles) Path(fileID string) (string, bool) { return o.handles.path(fileID) }
