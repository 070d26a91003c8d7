package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A registry serves the packages that `make npm` installed to an npm that is
// told of it: an installation as it is, without a network.
type registry struct {
	t       *testing.T
	URL     string
	folders map[string]map[string]string // name → version → folder

	mu       sync.Mutex
	archives map[string][]byte // by path
	asked    []string          // names of packages, in order
}

func newRegistry(t *testing.T, modules string) *registry {
	r := &registry{t: t, folders: map[string]map[string]string{}, archives: map[string][]byte{}}
	err := filepath.WalkDir(modules, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "package.json" && strings.Contains(filepath.ToSlash(p), "node_modules/") {
			r.add(filepath.Dir(p))
		}
		return nil //nolint:nilerr // what cannot be read is not served
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(s.Close)
	r.URL = s.URL
	return r
}

func (r *registry) add(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	var m struct{ Name, Version string }
	if err != nil || json.Unmarshal(b, &m) != nil || m.Version == "" || !strings.HasSuffix(filepath.ToSlash(dir), "node_modules/"+m.Name) {
		return
	}
	if r.folders[m.Name] == nil {
		r.folders[m.Name] = map[string]string{}
	}
	r.folders[m.Name][m.Version] = dir
}

// env tells npm where packages come from.
func (r *registry) env() string { return "npm_config_registry=" + r.URL + "/" }

func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if b, ok := r.archives[req.URL.Path]; ok {
		_, _ = w.Write(b)
		return
	}
	name, err := url.PathUnescape(strings.TrimPrefix(req.URL.EscapedPath(), "/"))
	versions := r.folders[name]
	if err != nil || versions == nil {
		http.NotFound(w, req)
		return
	}
	r.asked = append(r.asked, name)
	all, newest := map[string]any{}, ""
	for v, dir := range versions {
		var m map[string]any
		b, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if err != nil || json.Unmarshal(b, &m) != nil {
			continue
		}
		path := "/-/" + strings.ReplaceAll(name, "/", "+") + "-" + v + ".tgz"
		if r.archives[path] == nil {
			r.archives[path] = archive(r.t, dir)
		}
		sum := sha512.Sum512(r.archives[path])
		m["dist"] = map[string]string{"tarball": r.URL + path, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:])}
		all[v] = m
		newest = max(newest, v)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": newest}, "versions": all})
}

// archive is a folder as npm publishes it.
func archive(t *testing.T, dir string) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Error(err)
		return nil
	}
	w := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "node_modules" && p != dir {
			return fs.SkipDir
		}
		if !d.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Name: "package/" + filepath.ToSlash(rel), Mode: 0o644, Size: int64(len(content))}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	if err != nil {
		t.Errorf("%s: %v", dir, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := z.Close(); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}
