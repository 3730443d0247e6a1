package secrets

import (
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Strength is how surely a name is that of a secret.
type Strength int

// The strengths.
const (
	NoName Strength = iota
	Faint           // pass, psk: words with other uses
	Weak            // token, secret, cookie: in a text its value is a secret if it seems random
	Strong          // password, api_key: any value is a secret
)

// passwords are the names of a password in the languages of users. A name with blanks is also found written together, with _ and with -.
var passwords = []string{
	"password", "passwd", "passphrase", "pass phrase", "passcode", "pwd", "passwort", "passwörter", "kennwort", "zugangscode", // en de
	"mot de passe", "mdp", "contraseña", "clave de acceso", "contrasenya", "contrasinal", "senha", "palavra passe", // fr es ca gl pt
	"parola d'ordine", "parolă", "parola", "şifre", "sifre", "wachtwoord", "wagwoord", // it ro tr nl af
	"lösenord", "adgangskode", "kodeord", "passord", "lykilorð", "salasana", "tunnussana", // sv da no is fi
	"hasło", "heslo", "geslo", "lozinka", "jelszó", "slaptažodis", "parool", "salasõna", // pl cs sk sl hr hu lt et
	"пароль", "пароля", "парола", "лозинка", "лозинку", "κωδικός πρόσβασης", "συνθηματικό", // ru uk bg sr el
	"密码", "密碼", "口令", "暗証番号", "パスワード", "パスフレーズ", "비밀번호", "암호", // zh ja ko
	"कूटशब्द", "पासवर्ड", "পাসওয়ার্ড", "கடவுச்சொல்", "รหัสผ่าน", "mật khẩu", "kata sandi", "katasandi", "nywila", // hi bn ta th vi id sw
	// ar fa ur he eu cy ga
	"كلمة المرور", "كلمة السر", "رمز عبور", "گذرواژه", "پاسورڈ", "סיסמה", "סיסמא", "pasahitz", "cyfrinair", "pasfhocal",
	"գաղտնաբառ", "პაროლი", "құпиясөз", "fjalëkalim", "fjalekalim", // hy ka kk sq
}

// short lists those of them that are parts of other words too: they count as whole words only.
var short = []string{"pwd", "mdp", "senha", "parola", "parolă", "sifre", "şifre", "heslo", "hasło", "haslo", "geslo", "jelszó", "jelszo",
	"parool", "nywila",
	"암호", "口令"}

// strongNames are other names for which any value is a secret, word by word: apiKey, API-Key and api_key are one.
var strongNames = [][]string{{"api", "key"}, {"apikey"}, {"access", "key"}, {"account", "key"}, {"private", "key"}, {"secret", "key"},
	{"secret", "access"},
	{"auth", "key"}, {"encryption", "key"}, {"decryption", "key"}, {"signing", "key"}, {"master", "key"}, {"session", "key"},
	{"shared", "key"},
	{"hmac", "key"}, {"deploy", "key"}, {"webhook", "secret"}, {"service", "key"}, {"app", "key"}, {"consumer", "key"}, {"consumer", "secret"},
	{"storage", "key"}, {"subscription", "key"}, {"instrumentation", "key"}, {"aes", "key"}, {"license", "key"}, {"client", "secret"},
	{"app", "secret"}, {"secret", "token"}, {"access", "token"}, {"auth", "token"}, {"refresh", "token"}, {"bearer", "token"},
	{"session", "token"}, {"api", "token"}, {"id", "token"}, {"private", "token"}, {"security", "token"}, {"security", "answer"},
	{"seed", "phrase"}, {"recovery", "phrase"}, {"recovery", "code"}, {"backup", "code"}, {"mnemonic"}, {"sshpass"}, {"dbpass"}, {"userpass"},
	{"rootpw"}, {"bindpw"}, {"requirepass"}, {"masterauth"}, {"storepass"}, {"keypass"}, {"jsessionid"}, {"phpsessid"}, {"sessionid"},
	{"shared", "secret"}, {"otp", "secret"}, {"totp", "secret"}, {"pin", "code"}, {"credential"}, {"credentials"}, {"passwrd"}, {"userpw"}}

// weakNames are names that have other uses too.
var weakNames = [][]string{{"secret"}, {"secrets"}, {"token"}, {"authorization"}, {"cookie"}, {"jwt"}, {"bearer"}, {"creds"}, {"authtoken"},
	{"accesstoken"}, {"clientsecret"}, {"secretkey"}, {"privatekey"}, {"accesskey"}, {"passwds"},
	{"κωδικόσ"}, {"κωδικοσ"}} // a password, or the code of a sample

var faintNames = [][]string{{"pass"}, {"pw"}, {"passw"}, {"clave"}, {"sas"}, {"psk"}}

// about are last words of keys that say something about a secret and hold none: token_id, secret_name.
var about = []string{"id", "ids", "name", "names", "type", "kind", "hash", "count", "limit", "length", "expires", "expiry", "file",
	"path", "url",
	"uri", "endpoint", "policy", "field", "prompt", "hint", "version", "size", "ttl", "algorithm", "manager", "store", "reset", "env"}

// Name reports whether a key names a secret: api_key, API-Key, apiKey, userPassword, Passwort; not max_tokens or token_id.
func Name(key string) Strength {
	key, _ = normalized(key)
	parts := split(key)
	if n := len(parts); n == 0 || slices.Contains(about, parts[n-1]) {
		return NoName
	}
	joined := strings.Join(parts, "")
	for _, p := range foldedPasswords {
		if p.short {
			if slices.Contains(parts, p.name) {
				return Strong
			}
		} else if strings.Contains(joined, p.name) {
			return Strong
		}
	}
	if contains(parts, strongNames) {
		return Strong
	}
	if contains(parts, weakNames) {
		return Weak
	}
	if contains(parts, faintNames) {
		return Faint
	}
	return NoName
}

func contains(parts []string, names [][]string) bool {
	return slices.ContainsFunc(names, func(name []string) bool {
		for i := range len(parts) - len(name) + 1 {
			if slices.Equal(parts[i:i+len(name)], name) {
				return true
			}
		}
		return false
	})
}

type folded struct {
	name  string
	short bool
}

var foldedPasswords = func() (out []folded) {
	for _, p := range passwords {
		for _, f := range []string{fold(strings.ReplaceAll(p, " ", "")), fold(plain(strings.ReplaceAll(p, " ", "")))} {
			if f = strings.ReplaceAll(f, "'", ""); !slices.ContainsFunc(out, func(x folded) bool { return x.name == f }) {
				out = append(out, folded{f, slices.Contains(short, p) || slices.Contains(short, f)})
			}
		}
	}
	return out
}()

// fold writes a text in lower case and one spelling of composed letters and of the Greek s.
func fold(s string) string {
	return strings.ReplaceAll(norm.NFKC.String(strings.ToLower(s)), "ς", "σ")
}

// plain leaves out the marks of Latin letters: lösenord as losenord, hasło as haslo.
func plain(s string) string {
	var b strings.Builder
	for _, r := range norm.NFD.String(strings.ToLower(s)) {
		switch {
		case r >= 0x300 && r < 0x370:
		case r == 'ł':
			b.WriteByte('l')
		case r == 'ı':
			b.WriteByte('i')
		case r == 'ð':
			b.WriteByte('d')
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// split returns the words of a key in lower case; a capital in apiKey begins one.
func split(key string) (parts []string) {
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			parts = append(parts, fold(word.String()))
			word.Reset()
		}
	}
	low := false
	for _, r := range key {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsMark(r):
			end()
		case unicode.IsUpper(r) && low: // the hump in apiKey
			end()
			word.WriteRune(r)
		default:
			word.WriteRune(r)
		}
		low = unicode.IsLower(r)
	}
	end()
	return parts
}

// stems returns what a text with a secret's name has somewhere, in all spellings the scan needs: it knows the case of
// ASCII letters only.
func stems() (out []string) {
	seen := map[string]bool{}
	add := func(s string) {
		if low := strings.Map(asciiLower, s); !seen[low] {
			seen[low] = true
			out = append(out, low)
		}
	}
	for _, p := range passwords {
		for _, joint := range []string{" ", "_", "-", ""} {
			for _, s := range []string{p, strings.ToUpper(p), title(p), plain(p), strings.ToUpper(plain(p))} {
				add(norm.NFKC.String(strings.ReplaceAll(s, " ", joint)))
			}
		}
	}
	for _, s := range []string{"pass", "pwd", "secret", "token", "key", "authorization", "credential", "creds", "cookie", "jwt", "bearer",
		"mnemonic",
		"phrase",
		"rootpw", "userpw", "bindpw", "masterauth", "sessionid", "sessid", "clave", "code", "answer", "_pw", "psk", "pw:", "pw=", "κωδικός", "Κωδικός", "κωδικος", "Κωδικος",
		"ΚΩΔΙΚΟΣ", "ΚΩΔΙΚΌΣ"} {
		add(s)
	}
	return out
}

func asciiLower(r rune) rune {
	if r >= 'A' && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}

func title(s string) string {
	for i, r := range s {
		return s[:i] + string(unicode.ToUpper(r)) + s[i+len(string(r)):]
	}
	return s
}
