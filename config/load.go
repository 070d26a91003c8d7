package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"sallyport.dev/sallyport"
)

// maxFile bounds the file; a real one has a few kilobytes.
const maxFile = 1 << 20

// Load reads a file. Errors are *sallyport.Error, several of them joined;
// NotFound if there is no file.
func Load(path string) (*Config, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, unreadable(path, err)
	}
	data, err := os.ReadFile(abs)
	if err != nil {
		return nil, unreadable(path, err)
	}
	c, err := Parse(abs, data)
	if err != nil {
		return nil, err
	}
	if err := private(abs, c); err != nil {
		return nil, err
	}
	return c, nil
}

func unreadable(path string, err error) error {
	e := &sallyport.Error{Code: sallyport.Unavailable, Step: step, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Code, e.Message, e.Hint = sallyport.NotFound, path+": there is no such file", "run sallyport init, or give --config FILE"
	case errors.Is(err, fs.ErrPermission):
		e.Message, e.Hint = path+": may not be read", "give the user that runs sallyport the right to read it"
	default:
		e.Message, e.Hint = path+": cannot be read", "it must be a readable file"
	}
	return e
}

// Parse reads the text of a file. Relative paths in it belong to the folder of
// file, which need not exist.
func Parse(file string, data []byte) (*Config, error) {
	c := Default()
	d := &decoder{places: map[string]pos{}}
	root, p := tree(data)
	if p != nil {
		return nil, problems(file, []problem{*p})
	}
	d.value(root, reflect.ValueOf(c).Elem(), "", false)
	if len(d.found) == 0 {
		c.File, c.places = file, d.places
		d.check(c, filepath.Dir(file))
	}
	if len(d.found) > 0 {
		return nil, problems(file, d.found)
	}
	return c, nil
}

// ParseServer reads one server, as YAML or JSON, by the rules of the file. A
// relative command with a slash in it is refused.
func ParseServer(name string, data []byte) (Server, error) {
	s := defaultServer()
	d := &decoder{places: map[string]pos{}}
	root, p := tree(data)
	if p != nil {
		return s, problems("server "+name, []problem{*p})
	}
	d.value(root, reflect.ValueOf(&s).Elem(), "", false)
	if len(d.found) == 0 {
		d.name("", "server", name, serverName, serverNameHint)
		d.server("", &s, "")
	}
	if len(d.found) > 0 {
		return s, problems("server "+name, d.found)
	}
	return s, nil
}

// tree parses YAML to its one document.
func tree(data []byte) (root ast.Node, bad *problem) {
	if bad := readable(data); bad != nil {
		return nil, bad
	}
	file, err := parse(data)
	if err != nil {
		return nil, syntax(err)
	}
	var docs []*ast.DocumentNode
	for _, doc := range file.Docs {
		if doc.Body != nil {
			docs = append(docs, doc)
		}
	}
	switch len(docs) {
	case 0:
		return nil, &problem{text: "holds no settings", hint: "write at least one key, or remove the file to run with the defaults"}
	case 1:
	default:
		return nil, &problem{at(docs[1].Body.GetToken()), "a second document", "remove the line ---"}
	}
	body := docs[0].Body
	switch body.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return body, nil
	}
	return nil, &problem{at(body.GetToken()), "the file must be a block of keys", "write key: value, for example listen: 127.0.0.1:7450"}
}

func readable(data []byte) *problem {
	if len(bytes.TrimSpace(data)) == 0 {
		return &problem{text: "the file is empty", hint: "restore it, run sallyport init, or remove it to run with the defaults"}
	}
	if len(data) > maxFile {
		return &problem{text: fmt.Sprintf("the file has %d bytes, more than %d", len(data), maxFile), hint: "is it the right file?"}
	}
	line, column := 1, 1
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		switch {
		case r == utf8.RuneError && size <= 1:
			return &problem{pos{line, column}, "a byte that is not UTF-8", "save the file as UTF-8"}
		case r < ' ' && r != '\n' && r != '\t' && r != '\r', r == 0x7f, r >= 0x80 && r < 0xa0, r == 0xfeff:
			return &problem{pos{line, column}, fmt.Sprintf("a control character, %U", r), `write it as an escape in double quotes, for example "\x1b"`}
		}
		if column++; r == '\n' {
			line, column = line+1, 1
		}
		i += size
	}
	return nil
}

// parse keeps a bug in the parser from ending the program: a file is never
// worth that.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("cannot be parsed")
		}
	}()
	return parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
}

func syntax(err error) *problem {
	p := &problem{text: "is not YAML", hint: "check indentation (spaces, no tabs), quotes and colons near that line"}
	var y yaml.Error
	if errors.As(err, &y) {
		// Of the message only the first line: what follows it quotes the file.
		first, _, _ := strings.Cut(y.GetMessage(), "\n")
		p.pos, p.text = at(y.GetToken()), first
	}
	return p
}
