package artifact

import (
	"context"
	"io"

	"slurmgate/fault"
)

// ImportStream stores an upload, with the same size limit as a file. name is only a hint for the type; no file of that name is opened.
func (im *Importer) ImportStream(ctx context.Context, r io.Reader, name string) (Imported, error) {
	head := &headReader{r: r}
	sum, size, err := im.put(ctx, head, im.maxBytes, nil)
	if err != nil {
		return Imported{}, err
	}
	if size == 0 {
		return Imported{}, fault.Invalid("artifact.ImportStream", "", fault.Problem{Code: ImportSize, Field: "upload", Rule: "at least one byte", Msg: "the upload is empty"})
	}
	return Imported{SHA256: sum, SizeBytes: size, Type: im.detect(head.buf, name), Label: "upload"}, nil
}
