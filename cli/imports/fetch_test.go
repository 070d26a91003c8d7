package imports

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/config/foreign"
)

const one = `{"server":{"name":"io.example/%s","remotes":[{"type":"streamable-http","url":"https://w.example/mcp"}]}}`

// registry answers as the MCP registry does.
func registry(t *testing.T, answer http.HandlerFunc) *app {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	return &app{registry: s.URL}
}

func TestRegistryPages(t *testing.T) {
	a := registry(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Query().Get("cursor") {
		case "":
			fmt.Fprintf(w, `{"servers":[`+one+`],"metadata":{"nextCursor":"a b&c"}}`, "first")
		case "a b&c":
			fmt.Fprintf(w, `{"servers":[`+one+`],"metadata":{}}`, "second")
		default:
			http.Error(w, "no such cursor", http.StatusBadRequest)
		}
	})
	list, err := a.fromRegistry(t.Context(), nil)
	if err != nil || len(list) != 2 || list[0].Name != "first" || list[1].Name != "second" {
		t.Errorf("%+v %v", list, err)
	}
}

func TestRegistryByName(t *testing.T) {
	a := registry(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.EscapedPath() != "/v0.1/servers/io.example%2Fweather/versions/latest" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, one, "weather")
	})
	list, err := a.fromRegistry(t.Context(), []string{"io.example/weather", "io.example/gone"})
	if err != nil || len(list) != 2 || list[0].Config == nil || list[1].Problem == "" {
		t.Errorf("%+v %v", list, err)
	}
}

func TestRegistryThatDoesNotEnd(t *testing.T) {
	for name, cursor := range map[string]func(int) string{
		"the same cursor": func(int) string { return "x" }, "ever new ones": func(n int) string { return fmt.Sprint(n) },
	} {
		n := 0
		a := registry(t, func(w http.ResponseWriter, _ *http.Request) {
			n++
			fmt.Fprintf(w, `{"servers":[`+one+`],"metadata":{"nextCursor":%q}}`, "a", cursor(n))
		})
		if _, err := a.fromRegistry(t.Context(), nil); sallyport.CodeOf(err) != sallyport.Invalid || n > maxPages+2 {
			t.Errorf("%s: %d pages, %v", name, n, err)
		}
	}
}

// TO-12, TO-15: what is fetched comes from where it was said.
func TestTO12_FetchedFromNowhereElse(t *testing.T) {
	hits := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { hits++; fmt.Fprint(w, `{}`) }))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/away":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case "/near":
			http.Redirect(w, r, "/here", http.StatusFound)
		case "/here":
			fmt.Fprint(w, `{"mcpServers":{}}`)
		case "/large":
			fmt.Fprint(w, strings.Repeat(" ", foreign.MaxBytes+10))
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	if b, err := get(t.Context(), s.URL+"/near"); err != nil || len(b) == 0 { // the control
		t.Errorf("%s %v", b, err)
	}
	for _, link := range []string{s.URL + "/away", s.URL + "/large", s.URL + "/gone", "http://mcp.example/x.json", "ftp://x.example/", "https://", "http://127.0.0.1:1/"} {
		if _, err := get(t.Context(), link); sallyport.CodeOf(err) != sallyport.Invalid && sallyport.CodeOf(err) != sallyport.Unavailable {
			t.Errorf("%s: %v", link, err)
		}
	}
	if hits != 0 {
		t.Error("it followed to another address")
	}
}
