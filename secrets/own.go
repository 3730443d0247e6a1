package secrets

import (
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ownRules returns the forms that gitleaks' rules lack, or find only where a file has a certain name.
func ownRules() []*rule {
	word := func(_ string, _, _ int) bool { return true }
	value := func(text string, from, to int) bool { return !placeholder(text[from:to]) && len(text[from:to]) >= 4 }
	lively := func(text string, from, to int) bool { return plausible(text[from:to]) }
	pair := func(text string, from, to int) bool { return strings.Contains(decoded(text[from:to]), ":") }
	return []*rule{
		{ID: "token of this gateway", Keywords: []string{"sgt_"}, Regex: `\bsgt_[A-Za-z0-9_]{24,}`, ok: word},
		{ID: "munge credential", Keywords: []string{"munge:"}, Regex: `MUNGE:[A-Za-z0-9+/=]{20,}:?`},
		{ID: "JSON web token", Keywords: []string{"eyj"}, Regex: `\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){1,3}`,
			Reach: 8 << 10},
		{ID: "AWS key id", Keywords: []string{"akia", "asia", "abia", "acca", "aroa", "aida"}, Regex: `\b(?:A[KS]IA|ABIA|ACCA)[A-Z0-9]{16}\b`,
			ok: func(text string, from, to int) bool { return !peptide(text[from:to]) }},
		{ID: "GitHub token", Keywords: []string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"},
			Regex: `\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})`},
		{ID: "GitLab token", Keywords: []string{"glpat-", "gldt-", "glrt-", "glptt-", "glft-", "glsoat-", "glcbt-", "glimt-", "glagent-",
			"gloas-"},
			Regex: `\bgl(?:pat|dt|rt|ptt|ft|soat|cbt|imt|agent|oas)-[A-Za-z0-9_.-]{16,}`},
		{ID: "Slack token", Keywords: []string{"xox", "xapp-"}, Regex: `\b(?:xox[a-z](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,})`},
		{ID: "API key", Keywords: []string{"sk-", "sk_", "rk_", "pk_"},
			Regex: `\b(?:sk-[A-Za-z0-9_-]{20,}|[rsp]k_(?:live|test|prod)_[A-Za-z0-9]{10,})`,
			ok:    func(text string, from, to int) bool { return kindsOf(text[from:to]).digit > 0 }},
		{ID: "Google key", Keywords: []string{"aiza", "ya29.", "gocspx-", "1//0"},
			Regex: `\b(?:AIza[0-9A-Za-z_-]{35}|ya29\.[0-9A-Za-z_-]{20,}|GOCSPX-[0-9A-Za-z_-]{20,}|1//0[0-9A-Za-z_-]{40,})`},
		{ID: "token of a service", Keywords: servicePrefixes, Regex: `\b(?:gsk_|xai-|r8_|pplx-|nvapi-|figd_|sbp_|` +
			`tskey-[a-z]+-|whsec_|EAAA|sq0[a-z]{3}-|glsa_|glc_|phx_|phc_|rnd_|vercel_|PMAK-|ATATT3|ATCTT3|lin_api_|ntn_|secret_|` +
			`shp(?:at|ca|pa|ss)_|sntry[us]_|dop_v1_|doo_v1_|dor_v1_|hv[sbr]\.|pat-(?:na|eu)1-|cfut_|CFPAT-|fo1_|rpa_|sgp_|wandb_v1_|` +
			`NRAK-|tfp_|rubygems_|pul-|pscale_[a-z]+_|apify_api_|sb_secret_|lsv2_[a-z]+_|ctx7sk-|dp\.(?:pt|st|ct|sa|scim|audit)\.)` +
			`([A-Za-z0-9_.=-]{20,})`,
			ok: func(text string, from, to int) bool { return !wordy(text[from:to]) && solid(text[from:to]) }},
		{ID: "package registry token", Keywords: []string{"npm_", "pypi-", "hf_", "dckr_pat_"},
			Regex: `\b(?:npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{50,}|hf_[A-Za-z0-9]{30,}|dckr_pat_[A-Za-z0-9_-]{20,})`},
		{ID: "token of a service", Keywords: []string{"oy2", "dapi", "ops_eyj"},
			Regex: `\b(?:oy2[a-z0-9]{43}|dapi[0-9a-f]{32}(?:-\d)?|ops_eyJ[A-Za-z0-9+/=]{40,})\b`},
		{ID: "Dropbox token", Keywords: []string{"sl."}, Regex: `\bsl\.(?:[a-z]{1,2}\.)?([A-Za-z0-9_-]{60,}=*)`,
			ok: func(text string, from, to int) bool {
				return kindsOf(text[from:to]).distinct >= 20 && plausible(text[from:to])
			}},
		{ID: "mail service key", Keywords: []string{"sg."}, Regex: `\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}`},
		{ID: "age key", Keywords: []string{"age-secret-key-"}, Regex: `AGE-SECRET-KEY-[A-Z0-9-]{20,}`},
		{ID: "bot token", Keywords: []string{":aa"}, Regex: `\b[0-9]{8,10}:AA[A-Za-z0-9_-]{32,33}\b`},
		{ID: "chat bot token", Keywords: []string{"discord", "bot "},
			Regex: `\b([MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,38})`},
		{ID: "webhook", Keywords: []string{"webhook", "hooks.slack.com"},
			Regex: `https?://[a-zA-Z0-9.-]+/(?:api/webhooks/\d+|services|workflows|triggers|webhookb?2?|v1/webhooks)/([A-Za-z0-9_/@-]{20,})`},
		{ID: "authorization", Keywords: []string{"authorization"}, Regex: `(?i)\bauthorization["']?\s*(?:\]\s*)?[=:]\s*["']?` +
			`((?:(?:digest|hawk|oauth|aws4-hmac-sha256)\s+)[^\r\n]{6,}|(?:(?:bearer|basic|token|apikey|negotiate|ntlm|sharedkey)\s+)[^\r\n"']{6,}|[^\s"',]{8,})`,
			ok: func(text string, from, to int) bool {
				_, after, _ := strings.Cut(text[from:to], " ")
				return after != "" || plausible(text[from:to])
			}},
		{ID: "bearer token", Keywords: []string{"bearer"}, Regex: `(?i)\bbearer["']?[\s:=]+["']?([A-Za-z0-9._~+/-]{10,}=*)`,
			ok: func(text string, from, to int) bool { return kindsOf(text[from:to]).digit > 0 && !path(text[from:to]) }},
		{ID: "basic credentials", Keywords: []string{"basic"}, Regex: `(?i)\bbasic\s+([A-Za-z0-9+/]{6,}=*)`, ok: pair},
		{ID: "registry credentials", Keywords: []string{"auth"}, Regex: `\\?["']?_?auth\\?["']?\s*[:=]\s*\\?["']?([A-Za-z0-9+/]{8,}=*)`,
			ok: pair},
		{ID: "cookie", Keywords: []string{"cookie"}, Regex: `(?i)\b(?:set-)?cookie["']?\s*:\s*["']?([^\r\n"']{8,})`,
			ok: func(text string, from, to int) bool { return strings.Contains(text[from:to], "=") }},
		{ID: "signed URL", Keywords: []string{"sig=", "signature=", "credential=", "token=", "key=", "code=", "auth=", "session=", "ticket=",
			"policy=", "hmac=",
			"pass="}, Regex: `(?i)[?&#](?:sig|hmac|ticket|policy|pass|code|auth|session|sid|key|[a-z0-9_-]*(?:signature|credential|token|key))=([^&\s"'<>#]{8,})`,
			ok: func(text string, from, to int) bool {
				v := text[from:to]
				return (len(v) >= 16 && !path(v) || plausible(v)) && !wordy(v)
			}},
		{ID: "hashed password", Keywords: []string{"$1$", "$2a$", "$2b$", "$2x$", "$2y$", "$5$", "$6$", "$7$", "$y$", "$gy$", "$apr1$",
			"$argon2", "$pbkdf2", "$scrypt"},
			Regex: `\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2(?:id|i|d)|pbkdf2[\w-]*|scrypt)\$(?:[A-Za-z0-9./=,+-]{1,40}\$){0,4}[A-Za-z0-9./+=]{20,}`,
			ok:    func(text string, from, to int) bool { k := kindsOf(text[from:to]); return k.lower > 1 && k.upper > 1 }},
		{ID: "hashed password", Keywords: []string{"sha}", "sha1}", "sha256}", "sha512}", "pbkdf2}", "crypt}"},
			Regex: `(?i)\{(?:S?SHA(?:1|256|512)?|PBKDF2|CRYPT)\}([^\s"',]{13,})`},
		{ID: "user and password", Keywords: []string{"-u ", "--user ", "-u=", "--user=", "--proxy-user ", "--proxy-user="},
			Regex: `(?:^|[\s"'])(?:-[uU]|--user|--proxy-user)[ =]["']?[^\s:%"'=]{1,64}[:%]([^\s"']{3,})`, ok: value},
		{ID: "password option", Keywords: []string{"mysql", "mariadb", "sshpass", "mongo", "docker login", "podman login", "zip ", "redis-cli",
			"htpasswd", "ipmitool", "rclone"},
			Regex: `\b(?:mysql\w*|mariadb\w*|sshpass|mongo\w*|docker login|podman login|zip|unzip|7z\w*|redis-cli|htpasswd|ipmitool)\b[^\n|]{0,160}?\s-[pPa]\s?["']?([^\s"'-][^\s"']{2,})`, ok: value},
		{ID: "password option", Keywords: []string{"pass:"}, Regex: `\bpass:([^\s"']{4,})`, ok: func(text string, from,
			to int) bool {
			return secretive(text[from:to])
		}},
		{ID: "password on standard input", Keywords: []string{"echo", "printf", "<<<"},
			Regex: `\b(?:echo|printf)\s+(?:-n\s+)?["']?([^\s"'|]{4,})["']?\s*\|\s*(?:sudo\s+-S|docker login|podman login|kinit|passwd|chpasswd|su\b|cryptsetup|gpg)`, ok: value},
		{ID: "login in a file", Keywords: []string{"login", "machine"}, Regex: `(?i)\b(?:login|user)\s+\S+\s+(?:password|passwd)\s+(\S+)`,
			ok: value},
		{ID: "password directive", Keywords: []string{"bindpw", "rootpw", "requirepass", "masterauth", "bind_pw", "identified by",
			"userpassword", "pass "},
			Regex: `(?im)(?:^\s*(?:bindpw|bind_pw|rootpw|requirepass|masterauth)\s+|\bidentified\s+by\s+)["']?([^\s"';]{3,})`, ok: value},
		{ID: "password file", Keywords: []string{":5432:", ":5433:", ":6432:", ":*:*:"},
			Regex: `(?m)^\s*[\w.*-]+:(?:5432|5433|6432|\*):[\w*.-]+:[\w*.-]+:(\S{4,})\s*$`},
		{ID: "password before a host", Keywords: []string{"@"}, Reach: 256,
			Regex: `(?:^|[\s"'=(,])(?:[a-zA-Z][\w.+-]{0,63}):([^\s@/:"',<>]{4,}[^\s/:"',<>]*)@[a-zA-Z0-9-]+(?:\.[a-zA-Z0-9-]+)*\.[a-z]{2,}(?:[\s/:"',)]|$)`,
			ok:    func(text string, from, to int) bool { return value(text, from, to) && !mailAddress(text, from, to) }},
		{ID: "password in a URL", Keywords: []string{"thin:"}, Regex: `(?i)\bthin:[^/\s]+/([^@\s]+)@`, ok: value},
		{ID: "key of a service account", Keywords: []string{"username"},
			Regex: `\\?"username\\?"\s*:\s*\\?"[^"]+",\s*\\?"key\\?"\s*:\s*\\?"([0-9A-Za-z]{16,})`, ok: lively},
		{ID: "PuTTY key", Keywords: []string{"private-lines"}, Regex: `Private-Lines: \d+\s+((?:[A-Za-z0-9+/=]+(?:\r?\n|\\n)?)+)`,
			Reach: 8 << 10},
		{ID: "one-time password", Keywords: []string{"otpauth://", "otpauth-migration://"},
			Regex: `otpauth(?:-migration)?://\S*?(?:secret|data)=([A-Za-z0-9%+/=]{8,})`},
		{ID: "Azure secret", Keywords: []string{"q~"}, Regex: `(?:^|[^A-Za-z0-9_.~-])([A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{30,36})`},
		{ID: "Slack path", Keywords: []string{"/t0", "/services/t"}, Regex: `/(?:services/)?T[A-Z0-9]{8,12}/B[A-Z0-9]{8,12}/([A-Za-z0-9]{20,})`},
	}
}

var servicePrefixes = []string{"gsk_", "xai-", "r8_", "pplx-", "nvapi-", "figd_", "sbp_", "tskey-",
	"whsec_", "eaaa",
	"sq0", "glsa_", "glc_", "phx_", "phc_", "rnd_", "vercel_", "pmak-", "atatt3", "atctt3", "lin_api_", "ntn_", "secret_", "shpat_",
	"shpca_", "shppa_",
	"shpss_", "sntryu_", "sntrys_", "dop_v1_", "doo_v1_", "dor_v1_", "hvs.", "hvb.", "hvr.", "pat-na1-", "pat-eu1-", "cfut_",
	"cfpat-", "fo1_", "rpa_",
	"sgp_", "wandb_v1_", "nrak-", "tfp_", "rubygems_", "pul-", "pscale_", "apify_api_", "sb_secret_", "lsv2_", "ctx7sk-", "dp.pt.",
	"dp.st.", "dp.ct.", "dp.sa.",
	"dp.scim.", "dp.audit."}

// mailAddress reports whether what follows a label, up to an @, is the name of a mailbox rather than a password: jane.doe, or any name that
// an address may have after the label of one.
func mailAddress(text string, from, to int) bool {
	name := text[from:to]
	label := text[max(0, from-maxName) : from-1]
	label = label[strings.LastIndexFunc(label, func(r rune) bool { return !unicode.IsLetter(r) && r != '-' && r != '_' })+1:]
	return mailbox.MatchString(name) || mailLabel.MatchString(label) && strings.Trim(name, mailboxBytes) == ""
}

const mailboxBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-"

var (
	mailbox   = regexp.MustCompile(`^(?:[A-Za-z]+|[A-Za-z]+(?:[._+-][A-Za-z]+)+[0-9]{0,4})$`)
	mailLabel = regexp.MustCompile(`(?i)^(?:.*[_-])?(?:e?-?mails?|mailto|mailbox|contacts?|kontakt|courriel|correo|` +
		`from|to|cc|bcc|reply-?to|authors?|owners?|senders?|recipients?|receivers?|maintainers?|submitters?|support)$`)
)

// solid reports whether a token has random characters: sixteen letters and digits without a sign between them.
func solid(s string) bool {
	for part := range strings.FieldsFuncSeq(s, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if k := kindsOf(part); len(part) >= 16 && k.digit > 0 && k.digit < len(part) {
			return true
		}
	}
	return false
}

// decoded returns the text of a base64 word, "" for any other word.
func decoded(s string) string {
	s = strings.TrimRight(s, "=")
	if len(s)%4 == 1 {
		s = s[:len(s)-1]
	}
	encoding := base64.RawStdEncoding
	if strings.ContainsAny(s, "-_") {
		encoding = base64.RawURLEncoding
	}
	b, err := encoding.DecodeString(s)
	if err != nil || !utf8.Valid(b) {
		return ""
	}
	for _, r := range string(b) {
		if !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return ""
		}
	}
	return string(b)
}
