// Package apidoc is what `servers add` takes for an HTTP API that an OpenAPI
// document describes.
package apidoc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
)

// maxText bounds the document that is handed to the gateway with the request.
const maxText = 4 << 20

// Flags are the flags of an API.
type Flags struct {
	Source   string // of the document: a file or a URL
	base     string
	tokenURL string
	secrets  []string
}

// Add declares the flags.
func (f *Flags) Add(to *pflag.FlagSet) {
	to.StringVar(&f.Source, "openapi", "", "FILE or URL of the OpenAPI 3 document of an HTTP API: each operation is a tool")
	to.StringVar(&f.base, "base", "", "URL that the API's calls go to (default: what the document says)")
	to.StringVar(&f.tokenURL, "token-url", "", "URL where tokens of OAuth are fetched, if not at the API's own origin")
	to.StringArrayVar(&f.secrets, "secret", nil, "SCHEME=NAME: a stored secret as the credential of a security scheme of the document")
}

// Config adds the API to a server's settings; a file is read, for the gateway may
// not. args are what else says where a server is.
func (f *Flags) Config(config map[string]any, link string, argv []string) error {
	switch {
	case f.Source == "" && f.base+f.tokenURL+strings.Join(f.secrets, "") != "":
		return errors.New("--base, --token-url and --secret go with --openapi")
	case f.Source == "":
		return nil
	case link != "" || len(argv) > 0:
		return errors.New("give either --openapi, --url or -- COMMAND")
	}
	config["openapi"] = f.Source
	if !strings.Contains(f.Source, "://") {
		text, err := read(f.Source)
		if err != nil {
			return err
		}
		config["openapi"], config["document"] = filepath.Base(f.Source), text
	}
	for key, v := range map[string]string{"base": f.base, "token_url": f.tokenURL} {
		if v != "" {
			config[key] = v
		}
	}
	auth := map[string]string{}
	for _, s := range f.secrets {
		scheme, name, ok := strings.Cut(s, "=")
		if !ok || scheme == "" || name == "" {
			return fmt.Errorf("%q is not SCHEME=NAME", s)
		}
		auth[scheme] = "${secret:" + name + "}"
	}
	if len(auth) > 0 {
		config["auth"] = auth
	}
	return nil
}

func read(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err == nil && len(text) > maxText {
		err = fmt.Errorf("%s has more than %d bytes: name it in sallyport.yaml (servers: NAME: {openapi: FILE}), or add it by URL", path, maxText)
	}
	return string(text), err
}
