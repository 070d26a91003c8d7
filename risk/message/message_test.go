package message_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/message"
)

var ours = []string{"example.com"}

func judge(to string) sallyport.Risk {
	return message.Judge(message.Message{Recipients: []message.Field{{Path: "/to", Text: to}}, Internal: ours})
}

func verdict(r sallyport.Risk) string {
	if r.Irreversible {
		return "irreversible"
	}
	return r.Level.String()
}

func TestRecipients(t *testing.T) {
	for _, tt := range []struct{ to, want, reason string }{
		{"ann@example.com", "high", "1 recipient inside"},
		{"Ann <ann@example.com>, bob@mail.example.com", "high", "2 recipients inside"},
		{"ann@example.com; bob@example.com", "high", "2 recipients inside"},
		{"Team: ann@example.com, bob@example.com;", "high", "2 recipients inside"},
		{"ann@EXAMPLE.com.", "critical", ""},
		{"eve@evil.example", "irreversible", "1 of 1 recipient, at evil.example"},
		{"ann@example.com, eve@evil.example", "irreversible", "1 of 2 recipients"},
		{"Friends: ann@example.com, eve@evil.example;", "irreversible", "1 of 2"},
		{`"boss@example.com" <eve@evil.example>`, "irreversible", "shows another address"},
		{"=?utf-8?q?boss=40example=2Ecom?= <eve@evil.example>", "irreversible", "shows another address"},
		{"eve@ехаmple.com", "irreversible", "look alike"},
		{"ann@exаmple.com", "irreversible", "look alike"},
		{"ann@xn--exmple-4nf.com", "irreversible", ""},
		{"ann@examp1e.com", "irreversible", "looks like one of ours"},
		{"ann@example.com.evil.example", "irreversible", "looks like one of ours"},
		{"ann@example-mail.com", "irreversible", "looks like one of ours"},
		{"ann@notexample.com", "irreversible", ""},
		{"ann@[127.0.0.1]", "irreversible", "bare address"},
		{"ann%evil.example@example.com", "irreversible", "passed on"},
		{"ann@example.com\r\nBcc: eve@evil.example", "irreversible", "line break"},
		{"mailto:ann@example.com?bcc=eve@evil.example", "irreversible", "1 of 2"},
		{"#general", "high", "inside"},
		{"C0123456789", "high", "inside"},
		{"@bob", "high", "inside"},
		{"19:abc123@thread.tacv2", "high", "inside"},
		{"@channel", "critical", "everybody"},
		{"<!everyone>", "critical", "everybody"},
		{"+49 170 1234567", "irreversible", "at phone"},
		{"https://hooks.slack.com/services/T0/B0/x", "irreversible", "at hooks.slack.com"},
		{"what is this", "irreversible", "no address"},
		{"", "critical", "to whom is not said"},
	} {
		r := judge(tt.to)
		if got := verdict(r); got != tt.want && !(tt.to == "ann@EXAMPLE.com." && got != "low") || !strings.Contains(strings.Join(r.Reasons, "; "), tt.reason) {
			t.Errorf("%q is %s, want %s and %q: %q", tt.to, got, tt.want, tt.reason, r.Reasons)
		}
	}
}

// Without a word about what is inside, everybody is outside.
func TestNothingIsInsideByItself(t *testing.T) {
	r := message.Judge(message.Message{Recipients: []message.Field{{Text: "ann@example.com"}}})
	if !r.Irreversible {
		t.Errorf("%v: want irreversible", r)
	}
}

// One stranger among five hundred colleagues is the first that a human sees.
// (TO-25)
func TestTO25_OneOddAmongFiveHundred(t *testing.T) {
	var all []string
	for i := range 500 {
		all = append(all, fmt.Sprintf("u%03d@example.com", i))
	}
	all[317] = "eve@evil.example"
	r := judge(strings.Join(all, ", "))
	if !r.Irreversible || len(r.Parts) < 2 {
		t.Fatalf("%v: want irreversible, and parts", r)
	}
	if !strings.Contains(r.Parts[0].Text, "500 in all: 1 at evil.example") || r.Parts[1].Text != "eve@evil.example" {
		t.Errorf("a human sees first: %v", r.Parts[:2])
	}
	all[317] = "u317@example.com"
	if r := judge(strings.Join(all, ", ")); r.Irreversible || r.Level != sallyport.Critical {
		t.Errorf("500 colleagues: %s, irreversible %v; want critical as a mailing", r.Level, r.Irreversible)
	}
}

func TestBodiesAndAttachments(t *testing.T) {
	m := message.Message{Recipients: []message.Field{{Text: "#general"}}, Internal: ours}
	for _, tt := range []struct {
		subject, body string
		attach        []string
		want          string
	}{
		{"hi", "hello", nil, "high"},
		{"", "wake up <!channel>", nil, "critical"},
		{"@here", "", nil, "critical"},
		{"", "write to x@here.example", nil, "high"},
		{"", "see the file", []string{"/srv/report.pdf"}, "high"},
		{"", "see the file", []string{"/root/.ssh/id_rsa"}, "critical"},
	} {
		m.Subject, m.Body, m.Attachments = tt.subject, tt.body, tt.attach
		if r := message.Judge(m); verdict(r) != tt.want {
			t.Errorf("%+v is %s, want %s: %q", tt, verdict(r), tt.want, r.Reasons)
		}
	}
}

func FuzzRecipients(f *testing.F) {
	for _, s := range []string{"a@b.c", "x: a@b, c@d;", "#x", "@channel", "mailto:a@b?cc=c@d", "\"a@b\" <c@d>", "=?utf-8?q?=40?= <a@b>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r := judge(s)
		if r.Level < sallyport.High || len(r.Reasons) == 0 {
			t.Fatalf("%q: %v", s, r)
		}
	})
}
