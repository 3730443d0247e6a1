package app

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"slurmgate/fault"
)

// saveAs advises how to save a sheet in a form that ReadSheet accepts.
const saveAs = "in the spreadsheet program choose Save As, type \"CSV UTF-8 (Comma delimited)\", and give that file"

// sheetText returns the text of a sheet as UTF-8 with line feeds, and the separator in its first line or 0. It
// decodes encodings that the bytes prove, and refuses others with advice how to save the sheet.
func sheetText(data []byte) (text []byte, separator rune, err error) {
	refuse := func(code, msg string) ([]byte, rune, error) {
		return nil, 0, BadSheet([]fault.Problem{{Code: code, Field: "sheet", Rule: "CSV or TSV in UTF-8", Msg: msg, Hint: saveAs}})
	}
	begins := func(s string) bool { return bytes.HasPrefix(data, []byte(s)) }
	switch {
	case begins("PK\x03\x04"), begins("\xd0\xcf\x11\xe0"):
		return refuse("SHEET-WORKBOOK", "the file is a workbook (.xlsx, .ods or .xls), not a text")
	case begins("\xff\xfe"):
		text = fromUTF16(data[2:], binary.LittleEndian)
	case begins("\xfe\xff"):
		text = fromUTF16(data[2:], binary.BigEndian)
	default:
		text = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	}
	switch {
	case !utf8.Valid(text):
		at := 0
		for r, n := utf8.DecodeRune(text); r != utf8.RuneError || n > 1; r, n = utf8.DecodeRune(text[at:]) {
			at += n
		}
		return refuse("SHEET-TEXT", fmt.Sprintf("line %d has the byte 0x%02X, which is not UTF-8; another character set, for example "+
			"Windows-1252, is not guessed", 1+bytes.Count(text[:at], []byte("\n")), text[at]))
	case bytes.IndexByte(text, 0) >= 0:
		return refuse("SHEET-TEXT", "the file has NUL bytes: it is UTF-16 without its mark, or no text")
	case bytes.IndexByte(text, '\n') < 0: // old Macintosh programs end lines with a carriage return
		text = bytes.ReplaceAll(text, []byte("\r"), []byte("\n"))
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	if named, ok := strings.CutPrefix(strings.Trim(string(first), "\"\r "), "sep="); ok {
		separator, _ = utf8.DecodeRuneInString(named)
		if len(named) != 1 || !strings.ContainsRune(",;\t|", separator) {
			return nil, 0, BadSheet([]fault.Problem{sheetProblem("SHEET-SEPARATOR", 1, "", "sep= with a comma, semicolon, tab or |",
				fmt.Sprintf("the line names the separator %q", fault.Clip(named)))})
		}
		text = text[len(first):] // keep the line end: lines are counted
	}
	return text, separator, nil
}

// fromUTF16 decodes UTF-16. It replaces invalid UTF-16 by a byte that is not valid UTF-8.
func fromUTF16(data []byte, order binary.ByteOrder) []byte {
	units := make([]uint16, 0, len(data)/2)
	for ; len(data) >= 2; data = data[2:] {
		units = append(units, order.Uint16(data))
	}
	text := []byte(string(utf16.Decode(units)))
	if len(data) > 0 || bytes.ContainsRune(text, utf8.RuneError) {
		return append(text, 0xff)
	}
	return text
}
