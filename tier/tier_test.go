package tier

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/payload"
)

func TestCheck(t *testing.T) {
	ok := Request{Argv: []string{"true"}, Limits: sallyport.DefaultLimits()}
	if err := ok.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Request){
		"no program":       func(r *Request) { r.Argv = nil },
		"empty program":    func(r *Request) { r.Argv = []string{""} },
		"NUL in argument":  func(r *Request) { r.Argv = []string{"a", "b\x00"} },
		"NUL in variable":  func(r *Request) { r.Env = []string{"A=\x00"} },
		"variable":         func(r *Request) { r.Env = []string{"A"} },
		"variable's name":  func(r *Request) { r.Env = []string{"1A=x"} },
		"too much argv":    func(r *Request) { r.Argv = []string{"a", strings.Repeat("x", maxArgv)} },
		"too much stdin":   func(r *Request) { r.Stdin = make([]byte, maxStdin+1) },
		"no time":          func(r *Request) { r.Limits.Timeout = 0 },
		"negative time":    func(r *Request) { r.Limits.Timeout = -time.Second },
		"no memory":        func(r *Request) { r.Limits.Memory = 0 },
		"no processes":     func(r *Request) { r.Limits.Processes = 0 },
		"many processes":   func(r *Request) { r.Limits.Processes = 1 << 20 },
		"no disk":          func(r *Request) { r.Limits.Disk = 0 },
		"no output":        func(r *Request) { r.Limits.Output = 0 },
		"no CPU":           func(r *Request) { r.Limits.CPUs = 0 },
		"CPUs not numbers": func(r *Request) { r.Limits.CPUs *= 0; r.Limits.CPUs /= r.Limits.CPUs },
		"too many files":   func(r *Request) { r.Files = make([]File, maxFiles+1) },
	} {
		r := ok
		change(&r)
		if err := r.Check(); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	env := Environment([]string{"TZ=Asia/Tokyo", "X=1"}, false)
	if !slices.Contains(env, "TZ=Asia/Tokyo") || slices.Contains(env, "TZ=UTC") || !slices.Contains(env, "LANG=C.UTF-8") || env[len(env)-1] != "X=1" {
		t.Errorf("%q", env)
	}
}

// Whatever the names, a request that passes its check stays in its folder, and
// what is encoded is what was asked.
func FuzzFiles(f *testing.F) {
	for _, s := range []string{"a", "a/b", "../x", "/x", "a/../b", "a//b", "a/.", "\x00", "ü"} {
		f.Add(s, []byte("content"))
	}
	f.Fuzz(func(t *testing.T, name string, content []byte) {
		r := Request{Argv: []string{"true"}, Limits: sallyport.DefaultLimits(), Files: []File{{name, content}}}
		if r.Check() != nil {
			return
		}
		if p := path.Join("/w", name); !strings.HasPrefix(p, "/w/") || p != "/w/"+name {
			t.Fatalf("%q leads to %q", name, p)
		}
		var got []byte
		var names []string
		for b := r.AppendProgram(nil, nil); len(b) > 0; {
			k, n, err := payload.Header(b)
			if err != nil {
				t.Fatal(err)
			}
			data := b[payload.HeaderSize:][:n]
			b = b[payload.HeaderSize+n:]
			switch k {
			case payload.File:
				names = append(names, string(data))
			case payload.Data:
				got = append(got, data...)
			}
		}
		if !slices.Equal(names, []string{name}) || !bytes.Equal(got, content) {
			t.Fatalf("%q, %q became %q, %q", name, content, names, got)
		}
	})
}
