package artifact

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strings"
	"testing"
	"unicode/utf8"

	"slurmgate/fault"
	"slurmgate/visible"
)

func TestPreviewText(t *testing.T) {
	for _, c := range []struct {
		in              string
		maxBytes, lines int
		want            Preview
	}{
		{"hello\n", 100, 10, Preview{Text: "hello\n", Lines: 1, Bytes: 6}},
		{"", 100, 10, Preview{}},
		{"a\nb\nc", 100, 10, Preview{Text: "a\nb\nc", Lines: 3, Bytes: 5}},
		{"a\nb\nc", 100, 2, Preview{Text: "a\nb\n", Lines: 2, Bytes: 4, Truncated: true}},
		{"a\nb\n", 100, 2, Preview{Text: "a\nb\n", Lines: 2, Bytes: 4}},
		{"\n\n\n", 100, 2, Preview{Text: "\n\n", Lines: 2, Bytes: 2, Truncated: true}},
		{"hello", 3, 10, Preview{Text: "hel", Lines: 1, Bytes: 3, Truncated: true}},
		{"hello", 0, 10, Preview{Truncated: true}},
		{"hello", 10, 0, Preview{Truncated: true}},
		{"aéb", 2, 10, Preview{Text: "a", Lines: 1, Bytes: 1, Truncated: true}},
		{"aéb", 3, 10, Preview{Text: "aé", Lines: 1, Bytes: 3, Truncated: true}},
		{"x\x1b[31mred\x07 \x7f of many words of text", 100, 10, Preview{Text: `x\x1b[31mred\x07 \x7f of many words of text`, Lines: 1,
			Bytes: 34}},
		{"dos\r\nline\rx", 100, 10, Preview{Text: "dos\nline" + `\x0d` + "x", Lines: 2, Bytes: 11}},
		{"a\u202eb\u200bc\u2028d\u0085e", 100, 10, Preview{Text: `a\u202eb\u200bc\u2028d\u0085e`, Lines: 1, Bytes: 16}},
		{"latin caf\xe9 in a sentence", 100, 10, Preview{Text: `latin caf\xe9 in a sentence`, Lines: 1, Bytes: 24}},
		{"ab\x1bcd", 3, 10, Preview{Text: "ab", Lines: 1, Bytes: 2, Truncated: true}},
		{"a\x00b", 100, 10, Preview{Text: "binary file, UNKNOWN, 3 bytes", Truncated: true, Binary: true}},
		{string(bgzf("BAM\x01")), 100, 10, Preview{Text: fmt.Sprintf("binary file, BAM, %d bytes", len(bgzf("BAM\x01"))), Truncated: true,
			Binary: true}},
		{"\xff\xfe\xfd", 100, 10, Preview{Text: "binary file, UNKNOWN, 3 bytes", Truncated: true, Binary: true}},
	} {
		got, err := PreviewText(strings.NewReader(c.in), int64(len(c.in)), c.maxBytes, c.lines)
		if err != nil || got != c.want {
			t.Errorf("PreviewText(%q, %d bytes, %d lines):\n got %+v %v\nwant %+v", c.in, c.maxBytes, c.lines, got, err, c.want)
		}
	}
	if _, err := PreviewText(strings.NewReader("short"), 10, 10, 10); err == nil {
		t.Error("a file shorter than recorded is accepted")
	}
}

func FuzzPreviewText(f *testing.F) {
	for _, s := range []string{"hello\n", "\x1b[2J", "a\r\n\r\nb", "é\xc3", "\u202e\u2066", "\U000e0001tag", "\x00", strings.Repeat("line\n",
		50)} {
		f.Add([]byte(s), 10, 3)
		f.Add([]byte(s), 1000, 1000)
	}
	f.Fuzz(func(t *testing.T, data []byte, maxBytes, maxLines int) {
		maxBytes, maxLines = maxBytes%10_000, maxLines%10_000
		p := value(PreviewText(bytes.NewReader(data), int64(len(data)), maxBytes, maxLines))(t)
		lines := strings.Count(p.Text, "\n")
		if p.Text != "" && !strings.HasSuffix(p.Text, "\n") {
			lines++
		}
		switch {
		case !utf8.ValidString(p.Text):
			t.Error("not UTF-8")
		case len(p.Text) > max(maxBytes, 0):
			t.Error("too long")
		case strings.ContainsFunc(p.Text, func(r rune) bool { return r != '\n' && r != '\t' && visible.Hidden(r) }):
			t.Error("a hidden character")
		case !p.Binary && (lines != p.Lines || lines > max(maxLines, 0)):
			t.Errorf("%d lines, %d said, %d allowed", lines, p.Lines, maxLines)
		case p.Bytes > int64(len(data)), !p.Binary && p.Truncated != (p.Bytes < int64(len(data))):
			t.Errorf("the preview has %d of %d bytes, truncated %t", p.Bytes, len(data), p.Truncated)
		}
	})
}

func pngOf(t *testing.T, m image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, png.Encode(&b, m))
	return b.Bytes()
}

func preview(ctx context.Context, data []byte, edge, limit int) (Picture, error) {
	return NewPictures().PreviewImage(ctx, bytes.NewReader(data), int64(len(data)), edge, limit)
}

func TestPreviewImage(t *testing.T) {
	m := image.NewNRGBA(image.Rect(0, 0, 900, 300))
	for y := range 300 {
		for x := range 900 {
			m.Set(x, y, color.NRGBA{uint8(x), uint8(y), uint8(x * y), 255})
		}
	}
	data := pngOf(t, m)
	for _, c := range []struct{ edge, limit int }{{512, 1 << 20}, {512, 20_000}, {64, 20_000}, {5000, 10 << 20}, {0, 20_000}} {
		got := value(preview(t.Context(), data, c.edge, c.limit))(t)
		back := value(png.Decode(bytes.NewReader(got.PNG)))(t)
		if b := back.Bounds(); len(got.PNG) > c.limit || b.Dx() != got.Width || b.Dy() != got.Height || got.Width > min(900,
			max(c.edge, leastEdge)) || got.FullWidth != 900 || got.FullHeight != 300 {
			t.Errorf("%+v: %d × %d of %d × %d in %d bytes", c, got.Width, got.Height, got.FullWidth, got.FullHeight, len(got.PNG))
		}
	}
	_, err := preview(t.Context(), data, 512, 40)
	wantFault(t, err, fault.Policy, "PREVIEW-IMAGE-LIMIT")
	// One colour stays that colour, whatever its opacity and the kind of image.
	for _, want := range []color.NRGBA{{200, 100, 50, 255}, {0, 0, 0, 0}, {255, 255, 255, 128}} {
		m := image.NewNRGBA(image.Rect(0, 0, 37, 101))
		for i := 0; i < len(m.Pix); i += 4 {
			copy(m.Pix[i:], []uint8{want.R, want.G, want.B, want.A})
		}
		got := value(preview(t.Context(), pngOf(t, m), 20, 20_000))(t)
		back, _ := png.Decode(bytes.NewReader(got.PNG))
		r, g, b, a := back.At(3, 3).RGBA()
		wr, wg, wb, wa := want.RGBA()
		for _, d := range [][2]uint32{{r, wr}, {g, wg}, {b, wb}, {a, wa}} {
			if diff := int(d[0]>>8) - int(d[1]>>8); diff < -1 || diff > 1 {
				t.Errorf("%v became %d %d %d %d", want, r>>8, g>>8, b>>8, a>>8)
			}
		}
	}
}

func FuzzPreviewImage(f *testing.F) {
	var b bytes.Buffer
	must(f, png.Encode(&b, image.NewGray(image.Rect(0, 0, 9, 7))))
	f.Add(b.Bytes())
	f.Add(hostilePNG(3, 3))
	f.Add([]byte("\x89PNG\r\n\x1a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 33 && (binary.BigEndian.Uint32(data[16:]) > 2000 || binary.BigEndian.Uint32(data[20:]) > 2000) {
			return // large ones are only slow
		}
		got, err := preview(t.Context(), data, 8, 20_000)
		if err != nil && !fault.Is(err, fault.Validation) {
			t.Fatal(err)
		}
		if err == nil && (got.Width > leastEdge || got.Height > leastEdge || got.Width < 1) {
			t.Errorf("%d × %d", got.Width, got.Height)
		}
	})
}
