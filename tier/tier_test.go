package tier

import (
	"bytes"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// Whatever signal ended a program, it has a name: without one, it would have exited.
func TestFO51_EverySignalHasAName(t *testing.T) {
	names := map[string]bool{}
	for s := 1; s <= 64; s++ {
		code, name := ExitOf(unix.WaitStatus(s))
		if code != 128+s || !strings.HasPrefix(name, "SIG") || names[name] {
			t.Errorf("signal %d: %d %q", s, code, name)
		}
		names[name] = true
	}
	if !names["SIGRTMIN"] || !names["SIGRTMIN+30"] {
		t.Errorf("%v", names)
	}
}

func TestEnvironment(t *testing.T) {
	env := Environment([]string{"TZ=Asia/Tokyo", "X=1"}, false, 512<<20)
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

// What was asked for is told as rules say it, whatever the client made of it.
func TestFO57_DenialsNameHostAndPort(t *testing.T) {
	for asked, want := range map[string]string{
		"http://a.test/x?key=secret": "a.test:80", "http://user:word@a.test:81/": "a.test:81", "https://a.test": "a.test:443", "http://[::1]/": "[::1]:80",
		"a.test:443": "a.test:443", "/": "/", "*": "*", "http://%zz/": "%zz",
		"/x?key=secret": "/", "http://user:word@[a.test/?key=secret": "[a.test", "user:word@a.test:443": "a.test:443", "a.test:443?key=secret": "a.test:443",
	} {
		if d := Denials([]string{asked, asked}); len(d) != 1 || d[0].Target != want || d[0].Count != 2 {
			t.Errorf("%q: %+v, want %q", asked, d, want)
		}
	}
}
