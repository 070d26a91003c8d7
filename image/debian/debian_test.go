package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport/hashed"
)

func TestParseURIs(t *testing.T) {
	sum := strings.Repeat("0a", 32)
	good := "'http://x/pool/attr_2.5.deb' libattr1_1%3a2.5.1-4_amd64.deb 22164 SHA256:" + sum + "\n"
	got, err := parseURIs(strings.NewReader(good), "/d")
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	want := Archive{Package: Package{"libattr1", "1:2.5.1-4", "amd64", sum}, File: "/d/libattr1_1%3a2.5.1-4_amd64.deb", Size: 22164}
	if got[0] != want {
		t.Errorf("got %+v, want %+v", got[0], want)
	}
	for _, bad := range []string{
		"'http://x/a.deb' a_1_all.deb 1 MD5Sum:" + sum,
		"'http://x/a.deb' ../a_1_all.deb 1 SHA256:" + sum,
		"'http://x/a.deb' a_1_all.deb 1 ",
		"'http://x/a.deb' a_1_all.deb -1 SHA256:" + sum,
		"E: Unable to locate package a",
	} {
		if got, err := parseURIs(strings.NewReader(bad), "/d"); err == nil {
			t.Errorf("parseURIs(%q) = %+v", bad, got)
		}
	}
}

// A .deb that is not the one of the signed list is refused.
func TestArchiveCheck(t *testing.T) {
	f := filepath.Join(t.TempDir(), "a_1_all.deb")
	if err := os.WriteFile(f, []byte("not what was signed"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := hashed.File(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := (Archive{Package: Package{SHA256: sum}, File: f}).Check(); err != nil {
		t.Error(err)
	}
	if err := (Archive{Package: Package{SHA256: strings.Repeat("0", 64)}, File: f}).Check(); err == nil {
		t.Error("a wrong hash was accepted")
	}
}
