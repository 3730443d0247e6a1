package plan

import (
	"fmt"
	"strings"
	"testing"

	"slurmgate/fault"
)

const helixDigest = "sha256:bf80e07e650becfd084db1abde0fe932b50f990a07fa56421ea647b552b5a406"

// helixPlan returns HelixMCP's example plan (contracts/slurm_job_spec.v1.schema.json and its tests), with the given
// image and checksum and more of a placement.
func helixPlan(image, checksum, placement string) []byte {
	return []byte(`{"version":1,"resources":{"time_limit_seconds":60,"cpus":1,"mem_mb":512,"gpus":null,"gpu_type":null},
 "placement":{"partition":"short","account":"bio"` + placement + `},
 "execution":{"kind":"container","container":{"engine":"apptainer","image":"` + image + `","network_mode":"none","readonly_rootfs":true},
  "command":{"argv":["samtools","flagstat","/work/in/input.bam"],"workdir":"/work","env":{}}},
 "io":{"inputs":[{"role":"bam","artifact_id":"art_01HZZZZZZZZZZZZZZZZZZZZZZZ","checksum_sha256":"` + checksum + `","dest_relpath":"in/input.bam"}],
  "outputs":[{"role":"report","src_relpath":"out/report.txt","type":"TEXT","label":"report.txt"}]}}`)
}

func helixID(spec Spec) string {
	params, err := Params{ProjectID: "proj_01HZZZZZZZZZZZZZZZZZZZZZZZ", Script: "slurm_script_v1", Spec: spec}.Canonical()
	if err != nil {
		return err.Error()
	}
	return Identity{ToolName: "slurm_submit", ContractVersion: "v1", PolicyHash: "sha256:" + strings.Repeat("a", 64),
		ParamsHash: Hash(params)}.RunID()
}

// A plan in HelixMCP's spelling, with a registry's image and a checksum that names its algorithm, is the same run as
// the plan in ours: the vector with the id that HelixMCP's own code computes.
//
// proves SRC-01 ABI-07
func TestHelixMCPSpelling(t *testing.T) {
	sif := helixDigest // of the file that the lock has for the image
	pulled := func(ref string) (string, string) {
		if ref == "quay.io/biocontainers/samtools@"+helixDigest {
			return sif, ""
		}
		return "", "no image has this source"
	}
	a64 := strings.Repeat("a", 64)
	for _, image := range []string{helixDigest, "docker://quay.io/biocontainers/samtools@" + helixDigest,
		"quay.io/biocontainers/samtools@" + helixDigest} {
		for _, sum := range []string{a64, "sha256:" + a64} {
			spec, err := DecodeSpec(helixPlan(image, sum, ""), Rules{Pulled: pulled})
			if err != nil {
				t.Fatal(image, err)
			}
			if got := helixID(spec); got != "run_4892C8PXMRCH3ZCVXQYKTVJ9DG" || spec.ImageDigest() != sif[7:] {
				t.Errorf("%s, checksum %.12s: %s, image %s", image, sum, got, spec.ImageDigest())
			}
		}
	}
	spec, err := DecodeSpec(helixPlan(helixDigest, a64, `,"qos":"high","constraint":"[rack1|rack2]&(big&fast)"`), Rules{})
	if got := helixID(spec); err != nil || got != "run_6KYBKSM4CM4G63WYE1DT1SSJKM" {
		t.Error(got, err)
	}
}

// proves SRC-01 ABI-08
func TestImagesOfRegistries(t *testing.T) {
	pulled := func(ref string) (string, string) {
		if strings.HasPrefix(ref, "quay.io/a/b@") {
			return "sha256:" + strings.Repeat("1", 64), ""
		}
		return "", "no image of images.lock.yaml has the source docker://" + ref
	}
	a64 := strings.Repeat("a", 64)
	for image, want := range map[string]string{
		"docker://quay.io/a/b@sha256:" + a64:     "",
		"docker://quay.io/a/other@sha256:" + a64: "has the source",
		"docker://samtools@sha256:" + a64:        "has the source",
		"docker://quay.io/a/b:1.2":               "sha256:<64 hex digits>",
		"docker://quay.io/a/b@sha256:" + a64[1:]: "sha256:<64 hex digits>",
		"docker://-x/a@sha256:" + a64:            "sha256:<64 hex digits>",
		"docker://a//b@sha256:" + a64:            "sha256:<64 hex digits>",
		"docker://a b@sha256:" + a64:             "sha256:<64 hex digits>",
		"docker-daemon://a/b@sha256:" + a64:      "sha256:<64 hex digits>",
		"oras://quay.io/a/b@sha256:" + a64:       "sha256:<64 hex digits>",
	} {
		_, err := DecodeSpec(helixPlan(image, a64, ""), Rules{Pulled: pulled})
		if (err == nil) != (want == "") || len(fault.ProblemsOf(err)) > 1 || !strings.Contains(fmt.Sprint(fault.ProblemsOf(err)), want) {
			t.Errorf("%s: %v", image, fault.ProblemsOf(err))
		}
	}
	// Without a lock there is no file for such an image.
	if _, err := DecodeSpec(helixPlan("docker://quay.io/a/b@sha256:"+a64, a64, ""), Rules{}); fault.CodeOf(err) != "PLAN-IMAGE" {
		t.Error(err)
	}
	for _, sum := range []string{"sha512:" + a64, "SHA256:" + a64, "sha256:sha256:" + a64, "sha256:" + a64[1:],
		"sha256:" + strings.ToUpper(a64)} {
		if _, err := DecodeSpec(helixPlan(helixDigest, sum, ""), Rules{}); fault.CodeOf(err) != "PLAN-CHECKSUM" {
			t.Errorf("%s: %v", sum, err)
		}
	}
}

// The result of HelixMCP's own code (src/core/canonicalJson.ts, src/runs/runIdentity.ts, run with Node 20) for
// canonical params: the same bytes, hashes and run ids. It differs where an object key is a whole number, which
// JavaScript moves to the front; no plan has such a key.
//
// proves SRC-01 ABI-07 ABI-08
func TestHelixMCPIdentity(t *testing.T) {
	const policy = "sha256:84d17d37d96edefec8a5c19d27204ea038e5dc91388ac84a4b8611984df4eb4f"
	if b, err := Canonical([]byte(`{"slurm":{"max_cpus":4},"version":1,"tool_allowlist":["slurm_submit"]}`)); err != nil || Hash(b) != policy {
		t.Error(Hash(b), err)
	}
	for _, c := range []struct{ tool, params, hash, run string }{
		{"seqkit_stats", `{"z":"é","\u00e9":"\u20ac","😀":"\u007f\u0000\n","ﬀ":"\"\\/","a":"ß"}`,
			"sha256:bad6e24adc24ed0ce9ab2b104ad669338123f1a665fc900116f8b1973217d027", "run_55Y9MKS0PKS6F7WEE9B241TCMC"},
		{"multiqc", `{"b":{"d":[{"y":2,"x":[[],{}]}],"c":null},"a":{"B":1,"c":2,"A":3,"_":4}}`,
			"sha256:24f939abca82de93ef15d2759c06c1c395ceca239bafda7194a7a2df7338b139", "run_59QGPBM1YWGFJE7KBHEZ936W2F"},
		{"fastqc", `{"a":[0,-0,1,1.0,1e-7,9007199254740991,0.1,5e-324,123456789.125],"b":true,"c":null}`,
			"sha256:78e56365dc6d6f91b1ee4ac74968ee9f4292831581904db7501bd687b4163ada", "run_33EPBZDFJRDZW6HYP9GSRCVWYP"},
	} {
		b, err := Canonical([]byte(c.params))
		id := Identity{ToolName: c.tool, ContractVersion: "v2", PolicyHash: policy, ParamsHash: Hash(b)}
		if err != nil || Hash(b) != c.hash || id.RunID() != c.run {
			t.Errorf("%s: %v %s %s %s", c.tool, err, b, Hash(b), id.RunID())
		}
	}
	const theirs = "sha256:ac43de46bc6196a4be2565243663627b7f366df169441ec5be1ab0c243f154bb" // of {"9":2,"10":1,"a":3}
	if b, err := Canonical([]byte(`{"9":2,"10":1,"a":3}`)); err != nil || string(b) != `{"10":1,"9":2,"a":3}` || Hash(b) == theirs {
		t.Error(string(b), err)
	}
}

// Plans at the bounds of HelixMCP's schema of a SlurmJobSpec: whether it accepts them, and the code of our decoder's
// problem; empty where ours accepts them too. docs/tools/coming-from.md lists the differences.
//
// proves SRC-01
func TestHelixMCPPlans(t *testing.T) {
	good := string(helixPlan(helixDigest, strings.Repeat("a", 64), ""))
	inputs := good[strings.Index(good, `"inputs":`):strings.Index(good, ",\n  \"outputs\"")]
	outputs := good[strings.Index(good, `"outputs":`):strings.LastIndex(good, "}}")]
	for _, c := range []struct {
		name, old, new string
		theirs         bool
		ours           string
	}{
		// Accepted by both.
		{"the plan", "", "", true, ""},
		{"qos null", `"account":"bio"`, `"account":"bio","qos":null`, true, ""},
		{"no gpus", `,"gpus":null,"gpu_type":null`, "", true, ""},
		{"no workdir", `,"workdir":"/work"`, "", true, ""},
		{"no env", `,"env":{}`, "", true, ""},
		{"an env in lower case", `"env":{}`, `"env":{"lower":"x"}`, true, ""},
		{"a week", `"time_limit_seconds":60`, `"time_limit_seconds":604800`, true, ""},
		{"no inputs", inputs, `"inputs":[]`, true, ""},
		// Accepted by neither.
		{"more than a week", `"time_limit_seconds":60`, `"time_limit_seconds":604801`, false, "PLAN-TIME-LIMIT"},
		{"a network", `"network_mode":"none"`, `"network_mode":"host"`, false, "PLAN-NETWORK"},
		{"an unknown key", `"version":1`, `"version":1,"x":1`, false, "JSON-UNKNOWN-FIELD"},
		{"no argv", `["samtools","flagstat","/work/in/input.bam"]`, `[]`, false, "PLAN-ARGV"},
		{"a writable root", `"readonly_rootfs":true`, `"readonly_rootfs":false`, false, "PLAN-ROOTFS"},
		{"17 GPUs", `"gpus":null`, `"gpus":17`, false, "PLAN-GPUS"},
		{"no partition", `"partition":"short",`, "", false, "PLAN-PARTITION"},
		{"partition null", `"partition":"short"`, `"partition":null`, false, "JSON-TYPE"},
		// Stricter here: the schema of HelixMCP accepts them, its code refuses some of them later.
		{"no readonly_rootfs", `,"readonly_rootfs":true`, "", true, "PLAN-ROOTFS"},
		{"another workdir", `"workdir":"/work"`, `"workdir":"/data"`, true, "PLAN-WORKDIR"},
		{"an image by tag", helixDigest, `docker://quay.io/a/b:1`, true, "PLAN-IMAGE"},
		{"a destination outside of in/", `"in/input.bam"`, `"input.bam"`, true, "PLAN-DEST-PATH"},
		{"no outputs", outputs, `"outputs":[]`, true, "PLAN-OUTPUTS"},
		{"a GPU type without GPUs", `"gpu_type":null`, `"gpu_type":"a100"`, true, "PLAN-GPU-TYPE"},
		{"a partition with a comma", `"partition":"short"`, `"partition":"a,b"`, true, "PLAN-PARTITION"},
		{"a role with a blank around it", `"role":"bam"`, `"role":" bam"`, true, "PLAN-ROLE"},
		{"a variable of Slurm", `"env":{}`, `"env":{"SLURM_X":"x"}`, true, "PLAN-ENV"},
		{"a type that no domain has", `"type":"TEXT"`, `"type":"TEXTS"`, true, "PLAN-TYPE"},
		// Looser here.
		{"an empty word", `"flagstat"`, `""`, false, ""},
		{"a pipe", `"env":{}`, `"env":{},"pipe":[["cat"]]`, false, ""},
		{"a destination of 257 bytes", `"in/input.bam"`, `"in/` + strings.Repeat("d/", 126) + `in"`, false, ""},
	} {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: the plan has no %s", c.name, c.old)
		}
		_, err := DecodeSpec([]byte(strings.Replace(good, c.old, c.new, 1)), Rules{})
		code := ""
		if err != nil {
			code = fault.CodeOf(err)
		}
		if code != c.ours {
			t.Errorf("%s, which HelixMCP's schema takes: %v: our decoder says %q, want %q", c.name, c.theirs, code, c.ours)
		}
	}
}
