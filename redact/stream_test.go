package redact_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/redact"
)

// However a text is cut into pieces, no secret in it comes through, and
// everything else does.
func TestTO19_SecretsAcrossChunks(t *testing.T) {
	const canary = "CANARY-stored-7f3a9c2e51"
	lines := "-----BEGIN CANARY-----\nCANARYline1abcdefghijkl\nCANARYline2mnopqrstuvw\n"
	s := redact.New(redact.Options{Known: func() []redact.Known {
		return []redact.Known{{Name: "one", Value: canary}, {Name: "lines", Value: strings.TrimPrefix(lines, "-----BEGIN CANARY-----\n")}}
	}})
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("CANARYMIIEpAIBAAKCAQEA1c7Zx0Yq8v3kz5t9w2p4r6u8y0A3C5E7G9I1K3M5\n", 20) + "-----END RSA PRIVATE KEY-----\n"
	for name, secret := range map[string]string{
		"stored":       "value " + canary + " end\n",
		"two lines":    "CANARYline1abcdefghijkl\nCANARYline2mnopqrstuvw\n",
		"dsn":          "see postgres://app:CANARYs3cr3tPw@db.internal:5432/x now\n",
		"password":     "password = \"CANARY-hunter2hunter2\"\n",
		"next line":    "password:\n  CANARY-hunter2hunter2\n",
		"aws":          "aws_secret_access_key=CANARYwJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPL\n",
		"a key":        pem,
		"line returns": "10%\rpassword=CANARY-hunter2hunter2\r20%\r",
	} {
		text := "before\n" + secret + "after\nand more\n"
		if i := strings.Index(text, canary) + 5; i > 5 && !strings.Contains(s.Text(text[:i])+s.Text(text[i:]), canary) {
			t.Fatal("control: pieces that are cleaned one by one give nothing away")
		}
		pieces := [][]string{{text}, strings.Split(text, "")}
		for i := range text {
			pieces = append(pieces, []string{text[:i], text[i:]})
		}
		for _, p := range pieces {
			next, out := s.Stream(""), ""
			for _, piece := range p {
				out += next([]byte(piece))
			}
			if strings.Contains(out, "CANARY") {
				t.Fatalf("%s in %d pieces, the first %q: %q", name, len(p), p[0], out)
			}
			if !strings.HasPrefix(out, "before\n") || !strings.HasSuffix(out, "after\nand more\n") || !strings.Contains(out, "[masked") {
				t.Fatalf("%s in %d pieces: %q", name, len(p), out)
			}
		}
	}
	next := s.Stream("")
	if got := next([]byte("step 1\nstep")) + next([]byte(" 2\n\x1b[31mred\xff\n")); got != "step 1\nstep 2\n" && !strings.HasPrefix(got, "step 1\nstep 2\n") || strings.Contains(got, "\x1b") {
		t.Errorf("harmless text: %q", got)
	}
}

// What is told never holds what the whole text, cleaned, would not.
func FuzzStream(f *testing.F) {
	f.Add("a\npassword=\nhunter2hunter2\nb\n", 3)
	f.Add("postgres://u:pw12345678@h/d\n", 7)
	s := redact.New(redact.Options{Known: func() []redact.Known { return []redact.Known{{Name: "k", Value: "CANARY-known-secret"}} }})
	f.Fuzz(func(t *testing.T, text string, cut int) {
		text += "\nCANARY-known-secret\n"
		cut = max(0, min(cut, len(text)))
		next := s.Stream("")
		if got := next([]byte(text[:cut])) + next([]byte(text[cut:])); strings.Contains(got, "CANARY-known-secret") {
			t.Fatalf("%q", got)
		}
	})
}
