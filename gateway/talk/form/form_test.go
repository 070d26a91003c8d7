package form_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/gateway/talk/form"
)

const everything = `{"type":"object","properties":{
	"name":{"type":"string","title":"Name","minLength":2,"maxLength":5},
	"mail":{"type":"string","format":"email"},"home":{"type":"string","format":"uri"},"day":{"type":"string","format":"date"},"at":{"type":"string","format":"date-time"},
	"age":{"type":"integer","minimum":0,"maximum":9007199254740993},"score":{"type":"number","minimum":0.5,"default":95.5},"ok":{"type":"boolean","default":true},
	"one":{"type":"string","enum":["a","b"],"enumNames":["A","B"]},"titled":{"type":"string","oneOf":[{"const":"x","title":"X"}]},
	"many":{"type":"array","minItems":1,"maxItems":2,"items":{"type":"string","enum":["a","b","c"]}},
	"titles":{"type":"array","items":{"anyOf":[{"const":"v1","title":"V"}]}}},"required":["name"]}`

func TestFill(t *testing.T) {
	f, err := form.Read(json.RawMessage(everything))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Names(), " "); got != "name mail home day at age score ok one titled many titles" {
		t.Errorf("fields %s", got)
	}
	for in, want := range map[string]string{
		`{"name":"Ann"}`:                                                         `{"name":"Ann"}`,
		`{"x":1,"ok":false,"name":"Änn€"}`:                                       `{"name":"Änn€","ok":false}`, // no more than was asked, in the form's order
		`{"name":"Ann","age":9007199254740993}`:                                  `{"name":"Ann","age":9007199254740993}`,
		`{"name":"Ann","age":1.0,"score":0.50}`:                                  `{"name":"Ann","age":1.0,"score":0.50}`,
		`{"name":"Ann","one":"a","titled":"x","many":["a","c"],"titles":["v1"]}`: `{"name":"Ann","one":"a","titled":"x","many":["a","c"],"titles":["v1"]}`,
		`{"name":"Ann","mail":"a@b.example","home":"https://x.example/","day":"2026-02-28","at":"2026-02-28T12:00:00Z"}`: `{"name":"Ann","mail":"a@b.example","home":"https://x.example/","day":"2026-02-28","at":"2026-02-28T12:00:00Z"}`,
		`{}`: "", ``: "", `[]`: "", `7`: "", `{"name":null}`: "", `{"name":7}`: "", `{"name":"A"}`: "", `{"name":"Annette"}`: "", `{"name":{"a":1}}`: "",
		`{"name":"Ann","age":1.5}`: "", `{"name":"Ann","age":-1}`: "", `{"name":"Ann","age":9007199254740994}`: "", `{"name":"Ann","age":"1"}`: "", `{"name":"Ann","age":1e999999}`: "",
		`{"name":"Ann","score":0.4}`: "", `{"name":"Ann","ok":"true"}`: "", `{"name":"Ann","ok":1}`: "", `{"name":"Ann","one":"c"}`: "", `{"name":"Ann","titled":"y"}`: "",
		`{"name":"Ann","many":[]}`: "", `{"name":"Ann","many":["a","b","c"]}`: "", `{"name":"Ann","many":["d"]}`: "", `{"name":"Ann","many":"a"}`: "", `{"name":"Ann","many":[1]}`: "",
		`{"name":"Ann","mail":"nobody"}`: "", `{"name":"Ann","mail":"A <a@b.example>"}`: "", `{"name":"Ann","home":"x"}`: "", `{"name":"Ann","day":"2026-02-30"}`: "", `{"name":"Ann","at":"now"}`: "",
	} {
		got, err := f.Fill(json.RawMessage(in))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	if _, err := f.Fill(json.RawMessage(`{"name":"CANARY-VALUE"}`)); err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("an error quotes the answer: %v", err)
	}
}

func TestReadRefusesWhatIsNoForm(t *testing.T) {
	for _, in := range []string{
		``, `null`, `[]`, `{}`, `{"type":"array"}`, `{"type":"object","properties":[]}`, `{"type":"object","properties":{"a":true}}`, `{"type":"object","properties":{"a":{}}}`,
		`{"type":"object","properties":{"a":{"type":"object"}}}`, `{"type":"object","properties":{"a":{"type":"array"}}}`, `{"type":"object","properties":{"a":{"type":"array","items":{"type":"string"}}}}`,
		`{"type":"object","properties":{"a":{"type":"array","items":{"type":"object","enum":["a"]}}}}`, `{"type":"object","properties":{"a":{"type":["string","null"]}}}`, `{"type":"object","properties":{"a":{"type":"string","enum":[1]}}}`,
	} {
		if f, err := form.Read(json.RawMessage(in)); err == nil {
			t.Errorf("%s: %+v", in, f)
		}
	}
	many := `{"type":"object","properties":{"a":{"type":"string"}`
	for i := range 100 {
		many += `,"a` + strings.Repeat("x", i) + `y":{"type":"string"}`
	}
	if _, err := form.Read(json.RawMessage(many + "}}")); err == nil {
		t.Error("a form of 101 fields")
	}
	if _, err := form.Read(json.RawMessage(`{"type":"object"}`)); err != nil {
		t.Errorf("the control: %v", err)
	}
}

func TestSecret(t *testing.T) {
	for _, field := range []string{
		`"password":{"type":"string"}`, `"x":{"type":"string","title":"API key"}`, `"userApiKey":{"type":"string"}`, `"x":{"type":"string","description":"Paste your access-key here"}`, `"card_number":{"type":"string"}`,
		`"GITHUB_TOKEN":{"type":"string"}`, `"x":{"type":"string","description":"Your PIN, not shown to others"}`, `"pin":{"type":"integer","minimum":0,"maximum":9999}`, `"password":{"type":"string","description":"Do not worry"}`, `"PIN":{"type":"integer"}`, `"x":{"type":"string","title":"Secret"}`, `"cvv":{"type":"string"}`, `"APIKey":{"type":"string"}`,
		`"x":{"type":"string","title":"p a s s w o r d"}`, `"x":{"type":"string","title":"PassWord2"}`, `"x":{"type":"string","title":"pаsswоrd"}`, `"x":{"type":"string","title":"Passwörter und Passwort"}`, `"x":{"type":"string","title":"Пароль"}`, `"x":{"type":"string","title":"Seed phrase (12 words)"}`,
		`"x":{"type":"string","description":"Do not be afraid. Type the password of your account"}`,
	} {
		f, err := form.Read(json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"},` + field + `}}`))
		if err != nil || f.Secret("Please fill this in. Do not give your password") == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, field := range []string{
		`"name":{"type":"string"}`, `"max_tokens":{"type":"integer"}`, `"keyboard":{"type":"string"}`, `"integer":{"type":"integer","minimum":1,"maximum":100,"description":"Your favorite integer (do not give us your phone number, pin, or other sensitive info)"}`, `"kind":{"type":"string","enum":["token","password"]}`, `"note":{"type":"string","description":"Never write a password here"}`, `"secretary":{"type":"string"}`, `"pinned":{"type":"boolean"}`, `"save_password":{"type":"boolean"}`, `"username":{"type":"string","description":"Your preferred username"}`,
	} {
		f, err := form.Read(json.RawMessage(`{"type":"object","properties":{` + field + `}}`))
		if err != nil || f.Secret("Please fill this in. Do not give your password") != "" {
			t.Errorf("%s is taken for a secret: %v", field, err)
		}
	}
}

// TO-26: a form that reads as another one where case does not count is none: what is
// judged must be what is shown.
func TestTO26_FormsThatReadAsOthers(t *testing.T) {
	for _, schema := range []string{
		`{"type":"object","properties":{"password":{"type":"string"}},"Properties":{"name":{"type":"string"}}}`,
		`{"type":"object","Properties":{"password":{"type":"string"}}}`,
		`{"type":"object","properties":{"x":{"type":"string","title":"Password","Title":"Name"}}}`,
		`{"type":"object","properties":{"x":{"type":"string","Title":"Password"}}}`,
		`{"type":"object","properties":{"x":{"type":"string","title":"Password","TYPE":"boolean"}}}`,
		`{"type":"object","properties":{"x":{"type":"string","title":"Password","enum":["a"],"Enum":null}}}`,
		`{"type":"object","properties":{"x":{"type":"string","de\u017fcription":"Your password"}}}`,
		`{"type":"object","properties":{"x":{"type":"array","items":{"anyOf":[{"const":"a","Const":"b"}]}}}}`,
	} {
		if f, err := form.Read(json.RawMessage(schema)); err == nil || !strings.Contains(err.Error(), "case-sensitive") {
			t.Errorf("%s is a form, whose secret is %q: %v", schema, f.Secret(""), err)
		}
	}
	// Names of fields are the server's own.
	if _, err := form.Read(json.RawMessage(`{"type":"object","properties":{"Type":{"type":"string"},"type":{"type":"string"}}}`)); err != nil {
		t.Error(err)
	}
}

// A form may be innocent, and its message not.
func TestFO34_SecretsInMessages(t *testing.T) {
	one := `{"type":"object","properties":{"x":{"type":"string"}}}`
	for _, c := range []struct {
		message, form, want string
	}{
		{"Please type your password", one, "x"}, {"Enter your p.a.s.s.w.o.r.d, or pass word", one, "x"}, {"What is your API key?", one, "x"},
		{"Your password has expired. Enter the name of your team", one, ""}, {"Please enter your name, never your password", one, ""}, {"Which token is to be rotated?", one, ""},
		{"Please type your password", `{"type":"object","properties":{"x":{"type":"boolean"}}}`, ""},
	} {
		f, err := form.Read(json.RawMessage(c.form))
		if err != nil || f.Secret(c.message) != c.want {
			t.Errorf("%s: %q, %v", c.message, f.Secret(c.message), err)
		}
	}
}

func FuzzForm(f *testing.F) {
	f.Add(everything, `{"name":"Ann","age":1e3}`)
	f.Add(`{"type":"object","properties":{"a":{"type":"number","minimum":"1"}}}`, `{"a":1e400}`)
	f.Fuzz(func(t *testing.T, schema, content string) {
		x, err := form.Read(json.RawMessage(schema))
		if err != nil {
			return
		}
		x.Secret(content)
		out, err := x.Fill(json.RawMessage(content))
		if err != nil {
			return
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		for name := range got {
			if !slices.Contains(x.Names(), name) {
				t.Errorf("%q was not asked for", name)
			}
		}
	})
}
