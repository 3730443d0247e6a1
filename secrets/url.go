package secrets

import "strings"

// maxUserInfo bounds how much of a URL is searched, in bytes.
const maxUserInfo = 1024

// userInfo finds what is secret of the user information of a URL whose "://" ends at a place: the password, up to the last @ of the
// authority, and a user's name that is a token itself. A password may have / ? # and @ in it, which the rules of URLs do not allow.
func userInfo(text string, at int) (s Span, ok bool) {
	s.Rule = "password in a URL"
	end := at
	for end < len(text) && end < at+maxUserInfo && text[end] > ' ' && strings.IndexByte("\"'`<>|", text[end]) < 0 {
		end++
	}
	word := text[at:end]
	authority := word
	if i := strings.IndexAny(word, "/?#"); i >= 0 {
		authority = word[:i]
	}
	last := strings.LastIndexByte(authority, '@')
	first := strings.IndexByte(authority, ':')
	if last < 0 {
		// Either no user information, or a password with a sign in it that ends the authority: then what follows the colon is no port.
		if first < 0 || first+1 < len(authority) && strings.Trim(authority[first+1:], "0123456789") == "" {
			return s, false
		}
		last = strings.LastIndexByte(word, '@')
		if last < first+1 {
			return s, false
		}
	}
	host := strings.ToLower(word[last+1:])
	if strings.HasPrefix(host, "sha256:") || strings.HasPrefix(host, "sha512:") { // image:tag@digest
		return s, false
	}
	if first >= 0 && first < last {
		last = strings.LastIndexByte(word, '@') // rather a part of the path than half a password
		s.Start, s.End = at+first+1, at+last
		v := text[s.Start:s.End]
		return s, v != "" && !placeholder(v)
	}
	s.Start, s.End = at, at+last
	return s, last >= 16 && plausible(text[at:at+last])
}
