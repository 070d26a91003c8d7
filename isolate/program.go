package isolate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"sallyport.dev/sallyport/tier"
)

// check says why a request is none for isolates.
func check(r tier.Request) error {
	switch {
	case r.Module == nil:
		return tier.Invalid("use tier gvisor or microvm", "an isolate runs modules of JavaScript or Wasm, not programs")
	case r.Module.Language != javascript && r.Module.Language != wasm:
		return tier.Invalid("use javascript or wasm, or another tier", "an isolate does not run %.40q", r.Module.Language)
	case r.Module.Language == javascript && !utf8.Valid(r.Module.Code):
		return tier.Invalid("send text", "the program is not UTF-8")
	case r.GPU:
		return tier.Invalid("use tier gvisor", "an isolate has no GPU")
	case r.Talk != nil:
		return tier.Invalid("use tier gvisor", "a program in an isolate cannot call tools")
	case r.Image != "" && r.Image != "default":
		return tier.Invalid("leave the image out, or use tier gvisor", "an isolate has no image")
	}
	if err := r.Check(); err != nil {
		return err
	}
	if strings.HasPrefix(r.Argv[0], "sallyport:") || !utf8.ValidString(r.Argv[0]) {
		return tier.Invalid("use a name such as main.js", "the program's name %.80q cannot be used", r.Argv[0])
	}
	return nil
}

const (
	javascript = "javascript"
	wasm       = "wasm"
)

// The two forms of JavaScript; see host.js.
const (
	script = "script"
	module = "module"
)

// looksLikeModule finds code that is one by its first words. It only says what to
// try first.
var looksLikeModule = regexp.MustCompile(`(?m)^[ \t]*(?:import[ \t]*[\w{*"']|export[ \t]+[\w{*])`)

// lingers finds code of which something may go on when its last line was executed:
// what does not say so is over then. A program that hides it from this look is cut
// off there, which harms nobody but itself.
var lingers = regexp.MustCompile(`\b(?:setTimeout|setInterval|scheduler|fetch|then|async|await|import|Atomics|globalThis|self|crypto|navigator|addEventListener|queueMicrotask|Reflect|Web\w+|Event\w*|\w*Stream|\w*Channel|Promise)\b|\\u`)

// needs finds code that uses what it is given, or that must be told about.
var needs = regexp.MustCompile(`\b(?:stdin|argv|files|bytes|process|console)\b`)

// imports finds code that may import files.
var imports = regexp.MustCompile(`\bimport\b`)

type hostHead struct {
	Name    string        `json:"name"`
	Forms   []string      `json:"forms"`
	Code    int           `json:"code"`
	Modules []hostModules `json:"modules"`
	Reach   bool          `json:"reach"`
	Plain   bool          `json:"plain"` // it can be loaded before it has its input
}

type hostModules struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	Size int    `json:"size"`
}

type guestHead struct {
	Word    string      `json:"word"`
	Argv    []string    `json:"argv"`
	Env     [][2]string `json:"env"`
	Stdin   int         `json:"stdin"`
	Files   []guestFile `json:"files"`
	Lingers bool        `json:"lingers"`
}

type guestFile struct {
	Path string `json:"path"`
	Size int    `json:"size"`
}

// encode makes the body of a call, as host.js and guest.js read it: for each of
// them the size of a head, the head, and then the bytes that it tells of. source is
// what an isolate is made of, input what the program is given.
func encode(r tier.Request, word string) (source, input []byte, err error) {
	h := hostHead{Name: r.Argv[0], Forms: []string{wasm}, Code: len(r.Module.Code), Modules: []hostModules{}, Reach: len(r.Way.Reach) > 0}
	g := guestHead{Word: word, Argv: r.Argv, Env: [][2]string{}, Stdin: len(r.Stdin), Files: []guestFile{}}
	if r.Module.Language == javascript {
		h.Forms = []string{script, module}
		if looksLikeModule.Match(r.Module.Code) {
			h.Forms = []string{module, script}
		}
		g.Lingers = lingers.Match(r.Module.Code)
		h.Plain = !g.Lingers && !needs.Match(r.Module.Code)
	}
	for _, e := range r.Env {
		name, value, _ := strings.Cut(e, "=")
		g.Env = append(g.Env, [2]string{name, value})
	}
	code := append([]byte{}, r.Module.Code...)
	load := r.Module.Language == javascript && imports.Match(r.Module.Code)
	for _, f := range r.Files {
		g.Files = append(g.Files, guestFile{f.Path, len(f.Content)})
		if kind := kindOf(f.Path); load && kind != "" {
			h.Modules = append(h.Modules, hostModules{f.Path, kind, len(f.Content)})
			code = append(code, f.Content...)
		}
	}
	if source, err = appendHead(nil, h); err == nil {
		input, err = appendHead(nil, g)
	}
	input = append(input, r.Stdin...)
	for _, f := range r.Files {
		input = append(input, f.Content...)
	}
	return append(source, code...), input, err
}

func appendHead(b []byte, head any) ([]byte, error) {
	j, err := json.Marshal(head)
	if err != nil {
		return nil, fmt.Errorf("encoding a call: %w", err)
	}
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(j))), j...), nil
}

// kindOf is what a file is as a module, "" for none.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".js", ".mjs":
		return "js"
	case ".json":
		return "json"
	case ".wasm":
		return "wasm"
	}
	return ""
}
