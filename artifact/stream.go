package artifact

import (
	"context"
	"io"

	"slurmgate/fault"
)

// ImportStream stores what a caller sends beside its call, at most as much as a file may have. name is only a hint for its type; no
// file of that name is looked at.
func (im *Importer) ImportStream(ctx context.Context, r io.Reader, name string) (Imported, error) {
	head := &headReader{r: r}
	sum, size, err := im.put(ctx, head, im.maxBytes, nil)
	if err != nil {
		return Imported{}, err
	}
	if size == 0 {
		return Imported{}, fault.Invalid("artifact.ImportStream", "", fault.Problem{Code: ImportSize, Field: "upload", Rule: "at least one byte", Msg: "nothing was sent"})
	}
	return Imported{SHA256: sum, SizeBytes: size, Type: im.detect(head.buf, name), Label: "upload"}, nil
}
