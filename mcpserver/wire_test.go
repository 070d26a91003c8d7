package mcpserver_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"sallyport.dev/sallyport/mcpserver"
)

var update = flag.Bool("update", false, "write what the door answers into testdata; read the difference before you commit it")

// TestWire plays testdata/*.txtar: each "> name" file is a request (a request
// line, headers, an empty line, the body), the "< name" file after it the
// answer: status, the headers that matter, an empty line, the body.
//
// Requests get the headers of a good client; "-Name" takes one away. ${BASE},
// ${SESSION} (of the last initialize), ${CURSOR} (of the last list) and ${ID} (of an internal error) stand
// for what differs from run to run.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test data: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, a)
			if *update {
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func play(t *testing.T, a *txtar.Archive) {
	d := newDoor(t, func(o *mcpserver.Options) {
		o.PageSize = 4
		o.AuthorizationServers = []string{"https://as.example"}
	})
	session, cursor := "none", "none"
	for i := 0; i+1 < len(a.Files); i += 2 {
		name, ok := strings.CutPrefix(a.Files[i].Name, "> ")
		if !ok || a.Files[i+1].Name != "< "+name {
			t.Fatalf("file %q must be \"> name\" and followed by \"< name\"", a.Files[i].Name)
		}
		in := strings.NewReplacer("${BASE}", d.base, "${SESSION}", session, "${CURSOR}", cursor).Replace(string(a.Files[i].Data))
		res, body := d.do(parseRequest(t, d, in))
		if s := res.Header.Get("Mcp-Session-Id"); s != "" {
			session = s
		}
		if m := nextCursor.FindStringSubmatch(body); m != nil {
			cursor = m[1]
		}
		got := normal(showResponse(res, body), d.base, session)
		if *update {
			a.Files[i+1].Data = []byte(got)
			continue
		}
		if want := string(a.Files[i+1].Data); got != want {
			t.Errorf("%s:\n%s\ngot:\n%s\nwant:\n%s", name, in, got, want)
		}
	}
}

func parseRequest(t *testing.T, d *door, in string) *http.Request {
	head, body, _ := strings.Cut(in, "\n\n")
	lines := strings.Split(strings.TrimRight(head, "\n"), "\n")
	method, path, ok := strings.Cut(lines[0], " ")
	if !ok {
		t.Fatalf("bad request line %q", lines[0])
	}
	return d.newRequest(context.Background(), method, path, strings.TrimSuffix(body, "\n"), lines[1:]...)
}

// shownHeaders are the ones that the answers' files hold.
var shownHeaders = []string{"Allow", "Content-Type", "Mcp-Session-Id", "Retry-After", "Www-Authenticate", "X-Accel-Buffering"}

func showResponse(res *http.Response, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", res.StatusCode)
	for _, h := range shownHeaders {
		if v := res.Header.Get(h); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", h, v)
		}
	}
	if body != "" {
		b.WriteString("\n" + strings.TrimRight(body, "\n") + "\n")
	}
	return b.String()
}

var nextCursor = regexp.MustCompile(`"nextCursor":"([^"]+)"`)

var errID = regexp.MustCompile(`err_[A-Z0-9]{26}`)

func normal(s, base, session string) string {
	s = strings.ReplaceAll(s, base, "${BASE}")
	if session != "none" {
		s = strings.ReplaceAll(s, session, "${SESSION}")
	}
	s = nextCursor.ReplaceAllLiteralString(s, `"nextCursor":"${CURSOR}"`)
	return errID.ReplaceAllLiteralString(s, "${ID}")
}
