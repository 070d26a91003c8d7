package whole

import (
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"sallyport.dev/sallyport"
)

// Programs looks at the programs beside one: each must be there, and static. A
// sandbox has nothing that another kind could be linked with, so in one its
// program dies before it can say why.
func Programs(dir string, names ...string) (said string, err error) {
	var linked, missing []string
	for _, name := range names {
		is, err := dynamic(filepath.Join(dir, name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			missing = append(missing, name)
		case err != nil:
			return "", err
		case is:
			linked = append(linked, name)
		}
	}
	if len(linked) > 0 {
		return "", &sallyport.Error{
			Message: strings.Join(linked, ", ") + ": built with cgo, so sandboxes die without a word",
			Hint:    "build with CGO_ENABLED=0, as `make build` does",
		}
	}
	if len(missing) > 0 {
		return "", &sallyport.Error{Message: "not in " + dir + ": " + strings.Join(missing, ", "), Hint: "`make build` leaves all programs beside each other"}
	}
	return dir + ", all static", nil
}

// dynamic tells whether a program needs a loader.
func dynamic(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return true, nil
		}
	}
	return false, nil
}
