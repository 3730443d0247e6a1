package secrets_test

import (
	"strings"
	"testing"

	"slurmgate/secrets"
)

// Words of secrets in sentences, tables and logs that hold none.
func TestWordsOfSecrets(t *testing.T) {
	for _, text := range []string{"token: 12 of 30", "Error: unexpected token < in JSON at position 0",
		"password must have at least 8 characters", "secret sauce: yes", "key: value", "No password set", "keys: 12, tokens: 14 ",
		"tokenizer: BertTokenizerFast", "token_type_ids: 0", "primary_key: sample_id", "sort_key=chrom1start2", "author: Smith2020",
		"@HD\tVN:1.6\tSO:coordinate", "passed: 12345 reads", "PASS=1234 FAIL=2", "pass 2 of 3: model1",
		"bypass=true1234", "compass: north12", "Passenger: 123abc", "keyword: sample12345", "monkey: rhesus01234", "password: ", "cookie: none",
		"the password is required", "key=ENSG00000139618.2", "secret santa is Bob12", "Authorization: required",
		"rank|token|p 0.5", "s3://b/k?versionId=3sL4kqtJlcpXroDTDmJ.rmSpXd3dIbrHY", "https://x/y?sig=&se=1", "barcode: ACGT-1 code=ACGTACGTAC",
		"code: ABC12345", "geocode=8a2a1072b59ffff", "zip code: 12345", "answer: 42abc", "session: tmux-1234", "accession_code: GSM123456",
		"@m84011_220902_175841_s1/180945937/ccs", "contig_1_pilon:1-1000", "HLA-A*02:01:01:01", "chr6_GL000256v2_alt",
		"ATP-dependent_RNA_helicase_A0A0K9", "gene_token:BRCA1", "k8s_pod-7d9f8b6c5d-x2x4z",
		"Singularity> key fingerprint 12045C8C0B1004D058DE4BEDA20C27EE7FF7BA84", "conda_token=main", "code=SRR1234567"} {
		if got := secrets.Default().Redact(text); got != text {
			t.Errorf("%q → %q", text, got)
		}
	}
}

// Ways to say a password that people have.
func TestWaysToSayAPassword(t *testing.T) {
	for _, text := range []string{"login: bob / pass: hunter2!", "user=bob;pwd=hunter2;", "my password is \"hunter2 horse\"",
		"curl --user bob:hunter2 x",
		"unzip -P hunter2 x.zip", "gpg --passphrase hunter2 x", "sshpass -phunter2 ssh", "Das Kennwort für den Server heißt hunter2!",
		"Пароль от базы - hunter2",
		"Le mot de passe du serveur est hunter2", "hasło to hunter2", "RABBITMQ_DEFAULT_PASS=hunter2", "FTP_PASS: hunter2",
		"smbclient //srv/share -U bob%hunter2",
		"machine h login l password hunter2", "kubectl create secret generic x --from-literal=password=hunter2",
		"psql \"host=x user=y password=hunter2\"",
		"wget --password=hunter2 ftp://x", "spring.mail.password = hunter2", "mongodb://u:hunter2%40ss@h1:27017,h2:27017/db"} {
		if got := secrets.Default().Redact(text); strings.Contains(got, "hunter2") {
			t.Errorf("%q", got)
		}
	}
}
