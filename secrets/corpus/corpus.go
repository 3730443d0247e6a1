// Package corpus makes texts to measure the search for secrets with: planted secrets of many kinds, and what laboratories write that is
// none. All are generated, so that nothing in this repository looks like a secret. It is for tests.
package corpus

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Secret is a planted secret in a text; Core must be found nowhere afterwards.
type Secret struct{ Kind, Text, Core string }

// Text is one that holds no secret.
type Text struct{ Kind, Text string }

const (
	digits = "0123456789"
	lowers = "abcdefghijklmnopqrstuvwxyz"
	uppers = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum  = uppers + lowers + digits
	low36  = lowers + digits
	up36   = uppers + digits
	url64  = alnum + "-_"
	std64  = alnum + "+/"
	hexes  = "0123456789abcdef"
)

type source struct{ *rand.Rand }

func (r source) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func (r source) one(words ...string) string { return words[r.IntN(len(words))] }

func (r source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// password is one that a person has chosen.
func (r source) password() string {
	return r.one("Sommer", "hunter", "Trustno", "qwertz", "Banane", "dragon") + r.of(digits, 4) + r.one("!", "#", "x", "$k",
		"") + r.of(low36, 3)
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func (r source) key() string {
	var b strings.Builder
	for range 20 {
		b.WriteString(r.of(std64, 64) + "\n")
	}
	return b.String()
}

// Planted are secrets of many kinds, made from a seed.
func Planted(seed uint64) (out []Secret) {
	r := source{rand.New(rand.NewPCG(seed, 1))}
	whole := func(kind, secret string) { out = append(out, Secret{kind, secret, secret}) }
	in := func(kind, format, secret string) {
		out = append(out, Secret{kind, fmt.Sprintf(format, secret), secret})
	}
	// Tokens that tell by their form.
	whole("AWS key id", "AKIA"+r.of(uppers+"234567", 15)+"7")
	whole("AWS session key id", "ASIA"+r.of(uppers+"234567", 15)+"3")
	whole("AWS secret key alone", r.of(std64, 19)+"aB3dE9xQ"+r.of(alnum, 13))
	in("AWS secret key", "aws_secret_access_key = %s", r.of(std64, 40))
	whole("GitHub token", "ghp_"+r.of(alnum, 36))
	whole("GitHub fine-grained", "github_pat_"+r.of(alnum, 22)+"_"+r.of(alnum, 59))
	whole("GitHub app", "ghs_"+r.of(alnum, 36))
	whole("GitLab token", "glpat-"+r.of(alnum, 20))
	whole("GitLab runner", "glrt-"+r.of(alnum, 20))
	whole("Slack bot", "xoxb-"+r.of(digits, 12)+"-"+r.of(digits, 12)+"-"+r.of(alnum, 24))
	whole("Slack app", "xapp-1-A"+r.of(up36, 10)+"-"+r.of(digits, 13)+"-"+r.of(low36, 64))
	in("Slack webhook", "https://hooks.slack.com/services/T"+r.of(up36, 9)+"/B"+r.of(up36, 9)+"/%s", r.of(alnum, 24))
	in("Discord webhook", "https://discord.com/api/webhooks/"+r.of(digits, 18)+"/%s", r.of(url64, 68))
	in("Telegram bot", r.of("123456789", 9)+":AA%s", r.of(url64, 33))
	whole("OpenAI", "sk-proj-"+r.of(alnum, 20)+"T3BlbkFJ"+r.of(alnum, 20))
	whole("Anthropic", "sk-ant-api03-"+r.of(url64, 93)+"AA")
	whole("Hugging Face", "hf_"+r.of(lowers+uppers+"7", 33)+"9")
	whole("Groq", "gsk_"+r.of(alnum, 52))
	whole("Google API", "AIza"+r.of(url64, 34)+"k")
	whole("Google OAuth", "ya29."+r.of(url64, 80))
	whole("Google client", "GOCSPX-"+r.of(url64, 28))
	whole("Stripe", "sk_live_"+r.of(alnum, 24))
	whole("SendGrid", "SG."+r.of(url64, 21)+"a."+r.of(url64, 42)+"b")
	whole("Twilio", "SK"+r.of(hexes, 32))
	whole("npm", "npm_"+r.of(alnum, 36))
	whole("PyPI", "pypi-AgEIcHlwaS5vcmc"+r.of(url64, 70))
	whole("Docker Hub", "dckr_pat_"+r.of(url64, 26)+"k")
	whole("Databricks", "dapi"+r.of(hexes, 32))
	whole("DigitalOcean", "dop_v1_"+r.of(hexes, 64))
	whole("Vault", "hvs."+r.of(alnum, 95))
	whole("Shopify", "shpat_"+r.of(hexes, 32))
	whole("Grafana", "glsa_"+r.of(alnum, 32)+"_"+r.of(hexes, 8))
	whole("Linear", "lin_api_"+r.of(alnum, 40))
	whole("Notion", "ntn_"+r.of(digits, 11)+r.of(alnum, 35))
	whole("Postman", "PMAK-"+r.of(hexes, 24)+"-"+r.of(hexes, 34))
	whole("New Relic", "NRAK-"+r.of(up36, 27))
	whole("Azure client", r.of(alnum, 3)+"8Q~"+r.of(alnum, 34))
	whole("Atlassian", "ATATT3"+r.of(url64, 186))
	whole("age", "AGE-SECRET-KEY-1"+r.of("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58))
	whole("this gateway's", "sgt_"+r.of(alnum, 43))
	whole("munge", "MUNGE:"+r.of(std64, 120)+":")
	whole("web token", "eyJ"+r.of(alnum, 33)+".eyJ"+r.of(alnum, 80)+"."+r.of(url64, 43))
	in("Slurm's web token", "SLURM_JWT=eyJ%s", r.of(alnum, 33)+".eyJ"+r.of(alnum, 80)+"."+r.of(url64, 43))
	// Keys.
	for _, kind := range []string{"RSA ", "OPENSSH ", "EC ", "", "ENCRYPTED "} {
		in(kind+"private key", "-----BEGIN "+kind+"PRIVATE KEY-----\n%s-----END "+kind+"PRIVATE KEY-----", r.key())
	}
	in("PGP key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n%s-----END PGP PRIVATE KEY BLOCK-----", r.key())
	in("private key in JSON", `{"private_key_id":"x","private_key":"-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n"}`,
		strings.ReplaceAll(strings.TrimSpace(r.key()), "\n", `\n`))
	in("private key without an end", "-----BEGIN RSA PRIVATE KEY-----\n%s", strings.TrimSpace(r.key()))
	in("private key without a beginning", "%s-----END RSA PRIVATE KEY-----", r.key())
	in("PuTTY key", "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 20\n%s", strings.TrimSpace(r.key()))
	in("private key in base64", "client-key-data: %s", b64("-----BEGIN RSA PRIVATE KEY-----\n"+r.key()+"-----END RSA PRIVATE KEY-----\n"))
	in("WireGuard", "[Interface]\nPrivateKey = %s", r.of(std64, 43)+"=")
	// URLs.
	p := r.password()
	for _, scheme := range []string{"https", "ssh", "git+https", "postgres", "postgresql+psycopg2", "mysql", "mongodb+srv", "amqp", "redis",
		"s3", "ftp", "smb", "ldaps"} {
		in(scheme+" URL", scheme+"://lab:%s@host.example.org:8443/path", r.password())
	}
	in("URL with @ in the password", "https://lab:p@%s@host.example.org/path", p)
	in("URL with : in the password", "https://lab:a:%s@host.example.org/path", r.password())
	in("URL with / in the password", "postgres://lab:a/%s@host.example.org/path", r.password())
	in("URL in percents", "https://lab:p%%40ss%s@host.example.org/path", r.of(low36, 9))
	in("URL without a user", "redis://:%s@cache:6379/0", r.of(alnum, 20))
	in("URL with a token", "https://%s@git.example.org/lab/x.git", r.of(low36, 30)+"7")
	in("encoded URL", "next=https%%3A%%2F%%2Flab%%3A%s%%40host.example.org%%2F", r.of(low36, 12))
	in("signed URL", "https://x.blob.core.windows.net/c/f?sv=2026&sp=r&sig=%s%%3D&se=1", r.of(alnum, 42))
	in("presigned URL", "https://b.s3.amazonaws.com/k?X-Amz-Date=20261122T000000Z&X-Amz-Signature=%s", r.of(hexes, 64))
	in("URL with an access token", "https://api.example.org/x?access_token=%s&y=1", r.of(alnum, 30))
	in("one-time password", "otpauth://totp/lab:me?secret=%s&issuer=lab", r.of(uppers+"234567", 32))
	in("JDBC", "jdbc:postgresql://db/x?user=lab&password=%s", r.password())
	in("Oracle", "jdbc:oracle:thin:lab/%s@db.example.org:1521/x", r.password())
	in("without a scheme", "scp lab:%s@host.example.org:/data/x .", r.password())
	// Headers and command lines.
	in("bearer", "Authorization: Bearer %s", r.of(url64, 40)+"7")
	in("basic", "Authorization: Basic %s", b64("lab:"+r.password()))
	in("basic alone", "basic %s", b64("lab:"+r.password()))
	in("digest", `Authorization: Digest username="lab", response="%s"`, r.of(hexes, 32))
	in("API key header", "X-Api-Key: %s", r.of(alnum, 24))
	in("private token header", `curl -H "PRIVATE-TOKEN: %s" https://x`, r.of(url64, 20))
	in("cookie", "Cookie: theme=dark; session=%s", r.of(hexes, 32))
	in("set-cookie", "Set-Cookie: JSESSIONID=%s; Path=/", r.of(up36, 32))
	in("curl user", "curl -u lab:%s https://x", r.password())
	in("option", "tool --password %s --threads 4", r.password())
	in("option with =", "tool --db-password=%s", r.password())
	in("mysql", "mysql -ulab -p%s -h db", r.password())
	in("sshpass", "sshpass -p '%s' ssh x", r.password())
	in("openssl", "openssl enc -aes-256-cbc -pass pass:%s -in x", r.password())
	in("docker login", "docker login -u lab -p %s registry.example.org", r.password())
	in("sudo", "echo '%s' | sudo -S true", r.password())
	in("netrc", "machine host.example.org login lab password %s", r.password())
	in("pgpass", "db.example.org:5432:x:lab:%s", r.password())
	// Assignments.
	in("environment", "export DB_PASSWORD=%s", r.password())
	in("PGPASSWORD", "PGPASSWORD=%s psql", r.password())
	in("quoted with blanks", `password: "%s"`, "correct horse "+r.of(lowers, 8)+" staple")
	in("JSON", `{"user":"lab","password":"%s"}`, r.password())
	in("JSON in JSON", `{"body":"{\"password\":\"%s\"}"}`, r.password())
	in("YAML", "db:\n  password: %s\n  port: 1", r.password())
	in("XML", "<password>%s</password>", r.password())
	in("INI", "secret_key = %s", r.of(alnum, 50))
	in("properties", "spring.datasource.password=%s", r.password())
	in("Go", `apiKey := "%s"`, r.of(alnum, 24))
	in("Python", `password: str = "%s"`, r.password())
	in("dictionary", `config["password"] = "%s"`, r.password())
	in("name and value", `{"name":"DB_PASSWORD","value":"%s"}`, r.password())
	in("connection string", "Server=db;Database=x;User Id=lab;Password=%s;Encrypt=yes", r.password())
	in("Azure storage", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=%s;", r.of(std64, 86)+"==")
	in("token variable", "TOKEN=%s", r.of(low36, 40))
	in("W&B", "WANDB_API_KEY=%s", r.of(hexes, 40))
	in("Kaggle", `{"username":"lab","key":"%s"}`, r.of(hexes, 32))
	in("docker config", `{"auths":{"x":{"auth":"%s"}}}`, b64("lab:"+r.password()))
	in("coloured", "\x1b[1mpassword\x1b[0m: %s", r.password())
	in("sentence", "the password for the server is %s.", r.password())
	in("LDAP", "bindpw %s", r.password())
	in("SQL", "CREATE USER lab IDENTIFIED BY '%s'", r.password())
	in("SQL role", "ALTER ROLE lab WITH PASSWORD '%s'", r.password())
	in("mnemonic", "mnemonic: \"%s\"", strings.Join([]string{"abandon", "ability", r.of(lowers, 6), "above", "absent", "absorb"}, " "))
	in("environment in base64", "payload %s", b64("DB_PASSWORD="+r.password()+"\nDB_HOST=db\n"))
	// Hashes of passwords.
	whole("crypt", "$6$"+r.of(alnum, 12)+"$"+r.of(alnum+"./", 86))
	whole("bcrypt", "$2b$12$"+r.of(alnum+"./", 53))
	whole("apr1", "$apr1$"+r.of(alnum, 8)+"$"+r.of(alnum+"./", 22))
	in("LDAP hash", "userPassword: {SSHA}%s", r.of(std64, 32))
	// In other languages.
	for _, name := range []string{"Passwort", "Kennwort", "mot de passe", "motdepasse", "Contraseña", "contrasena", "senha", "palavra-passe",
		"wachtwoord", "lösenord",
		"LÖSENORD", "losenord", "adgangskode", "passord", "salasana", "hasło", "haslo", "heslo", "parola", "şifre", "sifre", "пароль", "ПАРОЛЬ",
		"Пароль", "密码", "密碼",
		"口令", "パスワード", "비밀번호", "कूटशब्द", "jelszó", "κωδικός πρόσβασης", "كلمة المرور", "סיסמה", "mật khẩu", "kata sandi", "รหัสผ่าน",
		"lozinka"} {
		in(name, name+": %s", r.password())
	}
	in("密码：", "密码：%s", r.password())
	in("Passwort lautet", "Das Passwort lautet %s", r.password())
	in("le mot de passe est", "le mot de passe est %s", r.password())
	in("la contraseña es", "la contraseña es %s", r.password())
	in("пароль от сервера", "пароль от сервера: %s", r.password())
	in("密码是", "密码是%s", r.password())
	in("パスワードは", "パスワードは「%s」です", r.password())
	return out
}

func sum(r source, n int) string { return hex.EncodeToString(r.bytes(n)) }
