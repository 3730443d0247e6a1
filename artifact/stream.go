package artifact

import (
	"context"
	"io"

	"slurmgate/fault"
)

// ImportStream stores an upload, with the same size limit as a file. name is only a hint for the type; no file of that name is opened.
func (im *Importer) ImportStream(ctx context.Context, r io.Reader, name string) (Imported, error) {
	look := im.inspect(name, "upload", 0)
	defer look.Close()
	sum, size, err := im.put(ctx, io.TeeReader(r, look), im.maxBytes, func(size int64) error {
		if size == 0 {
			return fault.Invalid("artifact.ImportStream", "", fault.Problem{Code: ImportSize, Field: "upload", Rule: "at least one byte",
				Msg: "the upload is empty"})
		}
		return look.Finish()
	})
	if err != nil {
		return Imported{}, err
	}
	return Imported{SHA256: sum, SizeBytes: size, Type: look.typ, Label: "upload"}, nil
}
