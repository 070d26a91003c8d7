package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// A folder with something in it is refused; nobody is told to remove one that is in use.
func TestEmpty(t *testing.T) {
	dir := t.TempDir()
	if err := Empty(filepath.Join(dir, "new")); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"sallyport.yaml": "is a data folder already", "notes.txt": "is not empty"} {
		data := t.TempDir()
		if err := os.WriteFile(filepath.Join(data, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err := Empty(data)
		if sallyport.CodeOf(err) != sallyport.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
