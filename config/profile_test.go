package config_test

import (
	"strings"
	"testing"

	"sallyport.dev/sallyport/config"
)

const shaped = `servers:
  mail: {url: "http://127.0.0.1:1"}
profiles:
  desk:
    servers: [mail]
    rename:
      write: mail__send
    describe:
      mail__send: Writes to a customer.
    fix:
      mail__send: {from: desk@example.com, copies: 2.50, deep: {list: [1, true, "x"]}}
    search: true
`

func TestProfilesShape(t *testing.T) {
	c, err := config.Parse(file, []byte(shaped))
	if err != nil {
		t.Fatal(err)
	}
	p := c.Shapes()["desk"]
	if p.Rename["write"] != "mail__send" || p.Describe["mail__send"] != "Writes to a customer." || !p.Search || p.Above != 40 ||
		string(p.Fix["mail__send"]) != `{"copies":2.50,"deep":{"list":[1,true,"x"]},"from":"desk@example.com"}` {
		t.Errorf("%+v, %s", p, p.Fix["mail__send"])
	}
	if at := p.Place("rename.write"); at != file+":7:7" {
		t.Errorf("rename.write stands at %s", at)
	}
}

// What cannot be meant is refused at load, with file, line and what to do.
func TestProfilesThatAreRefused(t *testing.T) {
	for change, want := range map[[2]string]string{
		{"write: mail__send", "write: files__read"}:                         ":7:7: profiles.desk.rename.write: files__read is not in this profile",
		{"write: mail__send", "wr__ite: mail__send"}:                        `:7:7: "wr__ite" cannot be the name`,
		{"write: mail__send", "'wr ite': mail__send"}:                       `"wr ite" cannot be the name`,
		{"write: mail__send", "wrіte: mail__send"}:                          `"wrіte" cannot be the name`,
		{"write: mail__send", "call_tool: mail__send"}:                      ":7:7: profiles.desk.rename.call_tool: call_tool is one of the gateway's own tools",
		{"write: mail__send", "write: mail__send\n      Wr1te: mail__get"}:  `can be taken for`,
		{"write: mail__send", "write: mail__send\n      pen: mail__send"}:   ": profiles.desk.rename.write: mail__send is shown as pen already",
		{"write: mail__send", "write: mail__send\n      write: mail__get"}:  "is set twice",
		{"      mail__send: Writes to a customer.", "      mail__send: ''"}: ":9:7: profiles.desk.describe.mail__send: a description has 1 to 16384 bytes",
		{"servers: [mail]", "servers: [mail]\n    bare: true"}:              "names either stay as they are (bare) or are given",
		{"mail__send: {from", "approval_result: {from"}:                     "approval_result is one of the gateway's own tools and stays as it is",
		{"mail__send: {from", "other__send: {from"}:                         ":11:7: profiles.desk.fix.other__send: other__send is not in this profile",
		{"from: desk@example.com", "from: null"}:                            "profiles.desk.fix.mail__send.from is empty",
		{"from: desk@example.com", "from: a, From: b"}:                      "differ in case alone",
		{"2.50", "0x10"}: "is no number in JSON",
		{"search: true", "search: true\n    search_above: -1"}: ":13:5: profiles.desk.search_above must be from 0",
		{"search: true", "serch: true"}:                        `unknown key "profiles.desk.serch"`,
	} {
		text := strings.Replace(shaped, change[0], change[1], 1)
		if _, err := config.Parse(file, []byte(text)); err == nil || text == shaped || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", change[1], err, want)
		}
	}
}

// TO-03: ids and roles that a reader takes for others are refused.
func TestTO03AgentsAndRolesThatLookAlike(t *testing.T) {
	for text, ok := range map[string]bool{
		"agents: {billing: {roles: [ops]}, deploy: {roles: [ops, admin]}}": true, "agents: {billing: {}, bi11ing: {}}": false, "agents: {a: {roles: [admin]}, b: {roles: [adm1n]}}": false,
		"agents: {billing: {}, Billing: {}}": false, "agents: {bіlling: {}}": false, "agents: {bot-2: {}, bot-3: {}}": true,
	} {
		if _, err := config.Parse(file, []byte(text)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
