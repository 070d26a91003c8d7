package cedar

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed starter/*.cedar
var starter embed.FS

// WriteStarter writes the starter policies into dir, which it creates. A file
// that is there already is left as it is. It returns the names of those written.
func WriteStarter(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the folder of policies: %w", err)
	}
	entries, err := fs.ReadDir(starter, "starter")
	if err != nil {
		return nil, err
	}
	var written []string
	for _, entry := range entries {
		text, err := fs.ReadFile(starter, "starter/"+entry.Name())
		if err != nil {
			return written, err
		}
		path := filepath.Join(dir, entry.Name())
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return written, err
		}
		_, err = f.Write(text)
		if err := errors.Join(err, f.Close()); err != nil {
			return written, err
		}
		written = append(written, path)
	}
	return written, nil
}
