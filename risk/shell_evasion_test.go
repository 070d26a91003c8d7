package risk_test

import (
	"context"
	"encoding/json"
	"testing"

	"sallyport.dev/sallyport"
)

// Texts whose harm is not where a reader of commands would look for it.
func TestShellEvasions(t *testing.T) {
	e := engine(t)
	for _, text := range []string{
		`test -v 'a[$(rm -rf /)]'`,
		`[[ 0 -eq 'a[$(rm x)]' ]]`,
		`x='a[$(rm x)]'; echo $((x))`,
		"x='a[`rm x`]'; (( x ))",
		`x='a['; y='$(rm x)]'; [ -v "$x$y" ]`,
		`unset "a[\$(rm x)]"`,
		`mapfile -C 'rm x #' -c 1 a < f`,
		`hash -p /tmp/evil ls; ls`,
		`curl -IX DELETE http://example.com/x`,
		`curl -GXDELETE http://example.com/x`,
		`curl -w '%output{f}x' http://example.com`,
		`ss -K dst 10.0.0.1`,
		`go list -toolexec=./evil ./...`,
		`npm ls --script-shell=./evil`,
		`kubectl get pods --kubeconfig=/tmp/evil`,
		`docker -H tcp://evil ps`,
		`git cat-file --filters x`,
	} {
		if r := e.Shell(text); r.Level != sallyport.Critical {
			t.Errorf("%s: %v; want critical", text, r)
		}
	}
	for _, text := range []string{
		`if [ "$(date)" = x ]; then echo "${a[0]}"; fi`, `curl -sSI http://example.com`, `ss -tlnp`, `go list ./...`,
		`kubectl get pods -n x`, `docker ps -a`, `history 5`, `set -e; ls`, `[ -f x ] && ls`, `curl -w '%{http_code}' http://example.com`,
	} {
		if r := e.Shell(text); r.Level != sallyport.Low {
			t.Errorf("%s: %v; want low", text, r)
		}
	}
}

// A declared argument that is JSON is judged as what it holds, and as what it is.
func TestJSONThatIsAlsoACommand(t *testing.T) {
	e := engine(t)
	shell := fieldTool(sallyport.RiskField{Path: "/command", Kind: "shell"})
	for text, irreversible := range map[string]bool{
		`{"$(rm -rf /tmp/x)":"ls"}`: true,
		"{\"a`rm x`\":\"ls\"}":      true,
		`["\\$(rm -rf /tmp/x)"]`:    true,
		`{"command":"ls -la"}`:      false,
	} {
		args, err := json.Marshal(map[string]string{"command": text})
		if err != nil {
			t.Fatal(err)
		}
		if r := e.Assess(context.Background(), shell, args); r.Irreversible != irreversible {
			t.Errorf("%s: %v; want irreversible %v", text, r, irreversible)
		}
	}
	args, err := json.Marshal(map[string]string{"sql": `{"DROP TABLE orders":"SELECT 1"}`})
	if err != nil {
		t.Fatal(err)
	}
	if r := e.Assess(context.Background(), sqlTool("sqlite"), args); !r.Irreversible {
		t.Errorf("a statement as a member's name: %v; want irreversible", r)
	}
}

// A second argument whose name differs in case is not overlooked.
func TestArgumentsThatDifferInCase(t *testing.T) {
	e := engine(t)
	nested := fieldTool(sallyport.RiskField{Path: "/q/sql", Kind: "sql", Dialect: "sqlite"})
	for _, c := range []struct {
		tool sallyport.Tool
		args string
		want sallyport.Level
	}{
		{sqlTool("sqlite"), `{"sql":"SELECT 1","SQL":"DELETE FROM orders"}`, sallyport.Critical},
		{sqlTool("sqlite"), `{"Sql":"SELECT 1"}`, sallyport.Critical},
		{sqlTool("sqlite"), `{"sql":"SELECT 1","ſql":"DELETE FROM orders"}`, sallyport.Critical},
		{nested, `{"q":{"sql":"SELECT 1"},"Q":{"sql":"DELETE FROM orders"}}`, sallyport.Critical},
		{nested, `{"q":{"sql":"SELECT 1","SQL":"DELETE FROM orders"}}`, sallyport.Critical},
		{nested, `{"q":{"sql":"SELECT 1","limit":5}}`, sallyport.Low},
	} {
		if r := e.Assess(context.Background(), c.tool, json.RawMessage(c.args)); r.Level != c.want {
			t.Errorf("%s: %v; want %v", c.args, r, c.want)
		}
	}
}
