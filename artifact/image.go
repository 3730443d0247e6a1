package artifact

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/png"
	"io"
	"runtime/debug"

	"slurmgate/fault"
)

// Limits of what is decoded. Ten million pixels of the widest kind take 80 MB for a moment, and only one picture is open at a time.
const (
	maxImageBytes  = 32 << 20 // of the file
	maxImagePoints = 10 << 20 // width × height
	maxImageEdge   = 20_000
	manyPoints     = 1 << 20 // of a picture whose memory is released at once
	leastEdge      = 16      // a smaller picture shows nothing
)

// Pictures makes thumbnails, one at a time. The zero value is not usable; see [NewPictures].
type Pictures struct{ one chan struct{} }

// NewPictures returns a Pictures.
func NewPictures() *Pictures { return &Pictures{one: make(chan struct{}, 1)} }

// Picture is a PNG thumbnail of an artifact.
type Picture struct {
	PNG            []byte
	Width, Height  int // of PNG
	FullWidth      int // of the artifact
	FullHeight     int
	BytesPerSample int // of the artifact, 1 or 2
}

// PreviewImage redraws the PNG of size bytes, at most edge pixels wide and high, and smaller until it has at most maxBytes. Nothing in the
// file other than the picture is copied. A file that is not a PNG, is broken, or would take too much memory is refused before it is
// decoded.
func (p *Pictures) PreviewImage(ctx context.Context, f io.ReaderAt, size int64, edge, maxBytes int) (Picture, error) {
	refuse := func(code, msg string) (Picture, error) {
		return Picture{}, fault.Invalid("", fault.Problem{Code: code, Field: "artifact_id", Msg: msg,
			Rule: fmt.Sprintf("a PNG of at most %d bytes and %d pixels", maxImageBytes, maxImagePoints),
			Hint: "download the artifact and open it with another program"})
	}
	if size > maxImageBytes {
		return refuse("PREVIEW-IMAGE-SIZE", fmt.Sprintf("it has %d bytes", size))
	}
	f = during(ctx, f)
	c, err := png.DecodeConfig(io.NewSectionReader(f, 0, size))
	if ctx.Err() != nil {
		return Picture{}, fsFault("the picture was not drawn", ctx.Err())
	}
	if err != nil {
		return refuse("PREVIEW-IMAGE", "it is not a readable PNG: "+err.Error())
	}
	if c.Width > maxImageEdge || c.Height > maxImageEdge || int64(c.Width)*int64(c.Height) > maxImagePoints {
		return refuse("PREVIEW-IMAGE-SIZE", fmt.Sprintf("it has %d × %d points", c.Width, c.Height))
	}
	select {
	case p.one <- struct{}{}:
		defer func() { <-p.one }()
	case <-ctx.Done():
		return Picture{}, fsFault("the picture was not drawn", ctx.Err())
	}
	if int64(c.Width)*int64(c.Height) > manyPoints {
		defer debug.FreeOSMemory() // the runtime would hold on to it for minutes
	}
	full, err := png.Decode(io.NewSectionReader(f, 0, size))
	if ctx.Err() != nil {
		return Picture{}, fsFault("the picture was not drawn", ctx.Err())
	}
	if err != nil {
		return refuse("PREVIEW-IMAGE", "it is broken: "+err.Error())
	}
	b := full.Bounds()
	out := Picture{FullWidth: b.Dx(), FullHeight: b.Dy(), BytesPerSample: 1}
	switch full.(type) {
	case *image.NRGBA64, *image.RGBA64, *image.Gray16:
		out.BytesPerSample = 2
	}
	for edge = min(max(edge, leastEdge), max(b.Dx(), b.Dy(), 1)); ; edge = edge * 3 / 4 {
		small := shrink(ctx, full, edge)
		if err := ctx.Err(); err != nil {
			return Picture{}, fsFault("the picture was not drawn", err)
		}
		var buf bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&buf, small); err != nil {
			return Picture{}, fault.Wrap(fault.Internal, "png", "the picture cannot be written", err)
		}
		if buf.Len() <= maxBytes {
			out.PNG, out.Width, out.Height = buf.Bytes(), small.Bounds().Dx(), small.Bounds().Dy()
			return out, nil
		}
		if edge <= leastEdge {
			return Picture{}, fault.New(fault.Policy, "PREVIEW-IMAGE-LIMIT",
				fmt.Sprintf("even %d points wide it has more than the %d bytes allowed", edge, maxBytes)).
				WithNext("have the administrator raise limits.preview_bytes of the policy")
		}
	}
}

// shrink draws m so that neither side has more than edge points; each new point is the mean of the old ones in its
// place. When ctx ends, the rest stays empty.
func shrink(ctx context.Context, m image.Image, edge int) *image.NRGBA {
	b := m.Bounds()
	w, h := b.Dx(), b.Dy()
	if long := max(w, h); long > edge {
		w, h = max(1, w*edge/long), max(1, h*edge/long)
	}
	out := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		if ctx.Err() != nil {
			break
		}
		y0, y1 := b.Min.Y+y*b.Dy()/h, b.Min.Y+max((y+1)*b.Dy()/h, y*b.Dy()/h+1)
		for x := range w {
			x0, x1 := b.Min.X+x*b.Dx()/w, b.Min.X+max((x+1)*b.Dx()/w, x*b.Dx()/w+1)
			mean(m, image.Rect(x0, y0, x1, y1), out.Pix[out.PixOffset(x, y):])
		}
	}
	return out
}

// mean writes the mean colour of a part of m. Colours count by their opacity, so that what is transparent does not shine through.
func mean(m image.Image, part image.Rectangle, to []uint8) {
	var r, g, b, a uint64
	for y := part.Min.Y; y < part.Max.Y; y++ {
		for x := part.Min.X; x < part.Max.X; x++ {
			pr, pg, pb, pa := m.At(x, y).RGBA() // premultiplied, 16 bits
			r, g, b, a = r+uint64(pr), g+uint64(pg), b+uint64(pb), a+uint64(pa)
		}
	}
	if a == 0 {
		copy(to[:4], []uint8{0, 0, 0, 0})
		return
	}
	n := uint64(part.Dx() * part.Dy())
	to[0], to[1], to[2], to[3] = uint8(r*255/a), uint8(g*255/a), uint8(b*255/a), uint8(a*255/(n*0xffff))
}
