package secret_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit/audittest"
	"sallyport.dev/sallyport/secret"
	"sallyport.dev/sallyport/store/sqlite"
)

func newVault(t *testing.T) (*secret.Vault, *sqlite.Store, string) {
	t.Helper()
	dir := t.TempDir()
	s, err := sqlite.Open(filepath.Join(dir, "db"), audittest.Sealer(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := secret.CreateKey(dir); err != nil {
		t.Fatal(err)
	}
	v, err := secret.Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	return v, s, dir
}

func TestVault(t *testing.T) {
	v, _, dir := newVault(t)
	value := []byte("postgres://canary:pw@host/db")
	if err := v.Set(t.Context(), "t", "db", value, "ada"); err != nil {
		t.Fatal(err)
	}
	got, err := v.Resolve(t.Context(), "t", "db")
	if err != nil || !bytes.Equal(got, value) {
		t.Errorf("Resolve = %q, %v", got, err)
	}
	names, err := v.List(t.Context(), "t")
	if err != nil || len(names) != 1 || names[0].Name != "db" {
		t.Errorf("List = %v, %v", names, err)
	}
	if _, err := v.Resolve(t.Context(), "u", "db"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("another tenant: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || bytes.Contains(b, []byte("canary")) {
			t.Errorf("the value lies in %s (%v)", f, err)
		}
	}
	if err := v.Remove(t.Context(), "t", "db", "ada"); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Resolve(t.Context(), "t", "db"); sallyport.CodeOf(err) != sallyport.NotFound {
		t.Errorf("after Remove: %v", err)
	}
}

func TestSetRefuses(t *testing.T) {
	v, _, _ := newVault(t)
	for name, value := range map[string]string{"": "x", "a b": "x", "../x": "x", "-x": "x", "a\x1b": "x", strings.Repeat("a", 65): "x", "empty": "",
		"large": strings.Repeat("x", secret.MaxValue+1)} {
		if err := v.Set(t.Context(), "t", name, []byte(value), "ada"); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("Set(%.20q, %d bytes) = %v", name, len(value), err)
		}
	}
}

// A ciphertext holds for its own tenant and name, and for its key.
func TestCiphertextIsBound(t *testing.T) {
	v, s, dir := newVault(t)
	if err := v.Set(t.Context(), "t", "a", []byte("value of a"), "ada"); err != nil {
		t.Fatal(err)
	}
	box, err := s.Secret(t.Context(), "t", "a")
	if err != nil {
		t.Fatal(err)
	}
	e := sallyport.Entry{Tenant: "t", Kind: sallyport.EntryAdmin, Payload: []byte("{}")}
	flipped := bytes.Clone(box)
	flipped[len(flipped)-1] ^= 1
	for name, b := range map[string][]byte{"moved": box, "flipped": flipped, "short": box[:10], "empty": {}, "version": append([]byte{9}, box[1:]...)} {
		if err := s.PutSecret(t.Context(), "t", name, b, e); err != nil {
			t.Fatal(err)
		}
		if got, err := v.Resolve(t.Context(), "t", name); sallyport.CodeOf(err) != sallyport.Unavailable || got != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if err := s.PutSecret(t.Context(), "u", "a", box, e); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Resolve(t.Context(), "u", "a"); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("under another tenant: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, secret.KeyFile)); err != nil {
		t.Fatal(err)
	}
	if err := secret.CreateKey(dir); err != nil {
		t.Fatal(err)
	}
	other, err := secret.Open(dir, s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Resolve(t.Context(), "t", "a"); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("with another key: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	_, s, dir := newVault(t)
	path := filepath.Join(dir, secret.KeyFile)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if err := secret.CreateKey(dir); err == nil {
		t.Error("a key was overwritten")
	}
	refused := func(what, want string) {
		t.Helper()
		_, err := secret.Open(dir, s)
		if e, ok := errors.AsType[*sallyport.Error](err); !ok || e.Code != sallyport.Unavailable || !strings.Contains(e.Message+": "+e.Hint, want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	refused("readable by others", "chmod 600")
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("sallyport-secrets-v1:AAAA\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("short", "malformed")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("missing", "sallyport init")
}

// FO-26: a value that was replaced or removed is still recognised, and the one that took
// its place is at once.
func TestFO26_EarlierValuesAreRecognised(t *testing.T) {
	v, _, _ := newVault(t)
	values := v.Values("t", func(err error) { t.Error(err) })
	set := func(value string) {
		t.Helper()
		if err := v.Set(t.Context(), "t", "db", []byte(value), "ada"); err != nil {
			t.Fatal(err)
		}
		values.Forget()
	}
	all := func() (all string) {
		for _, v := range values.All() {
			all += v.Name + "=" + v.Value + " "
		}
		return all
	}
	for i, want := range []string{"db=v0 ", "db=v1 db=v0 ", "db=v2 db=v1 db=v0 "} {
		if set(fmt.Sprint("v", i)); all() != want {
			t.Errorf("%q, want %q", all(), want)
		}
	}
	if set("v0"); all() != "db=v0 db=v2 db=v1 " {
		t.Errorf("an earlier one again: %q", all())
	}
	if err := v.Remove(t.Context(), "t", "db", "ada"); err != nil {
		t.Fatal(err)
	}
	if values.Forget(); all() != "db=v0 db=v2 db=v1 " {
		t.Errorf("after its removal: %q", all())
	}
	for i := range 100 {
		set(fmt.Sprint("w", i))
		values.All()
	}
	if got := values.All(); len(got) != 65 || got[0].Value != "w99" || got[64].Value != "w35" {
		t.Errorf("%d values, %+v", len(got), got)
	}
}
