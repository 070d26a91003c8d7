package oci_test

import (
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/image"
	"sallyport.dev/sallyport/image/oci"
)

// serve puts a layout into a registry on loopback, through its own API. alter may
// stand in front of it.
func serve(t *testing.T, b blobs, index object, alter func(http.Handler) http.Handler) (host string) {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	put := func(method, path, mediaType string, body []byte) {
		r := httptest.NewRequest(method, path, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", mediaType)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code >= 300 {
			t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
		}
	}
	for p, content := range b {
		if digest, ok := strings.CutPrefix(p, "blobs/sha256/"); ok {
			put("POST", "/v2/team/app/blobs/uploads/?digest=sha256:"+digest, "application/octet-stream", content)
		}
	}
	for _, d := range append(index["manifests"].([]object), index) {
		content := b["blobs/sha256/"+d["digest"].(string)[7:]]
		put("PUT", "/v2/team/app/manifests/"+d["digest"].(string), d["mediaType"].(string), content)
	}
	put("PUT", "/v2/team/app/manifests/v1", typeIndex, b["blobs/sha256/"+index["digest"].(string)[7:]])
	if alter != nil {
		h = alter(h)
	}
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// multi is an index for two processors.
func multi() (blobs, object) {
	b := blobs{}
	all := []object{standard(other()).manifest(b), standard(runtime.GOARCH).manifest(b)}
	d := b.descriptor(typeIndex, encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": all}))
	d["manifests"] = all
	return b, d
}

func pull(t *testing.T, ref string, takeTag bool) (image.Image, error) {
	t.Helper()
	return build(t, func() (*oci.Image, error) { return oci.Pull(context.Background(), ref, takeTag) })
}

// An image is pulled by digest, of the index or of one processor's manifest. What
// a tag means is told, and taken only where that is asked for.
func TestPull(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	b, index := multi()
	host := serve(t, b, index, nil)
	repo := host + "/team/app"
	want, err := fromFile(t, b.index(index["manifests"].([]object)[1]).folder(t), "")
	if err != nil {
		t.Fatal(err)
	}
	digest := index["digest"].(string)
	mine := index["manifests"].([]object)[1]["digest"].(string)
	theirs := index["manifests"].([]object)[0]["digest"].(string)
	for _, ref := range []string{repo + "@" + digest, repo + "@" + mine, repo + ":gone@" + digest} {
		img, err := pull(t, ref, false)
		if err != nil {
			t.Fatal(err)
		}
		contents(t, img)
		if img.Digest != want.Digest || !strings.Contains(img.From, "@sha256:") {
			t.Errorf("%s from %s; the layout gave %s", img.Digest, img.From, want.Digest)
		}
	}
	if _, err := pull(t, repo+"@"+theirs, false); err == nil || !strings.Contains(err.Error(), "this machine is") {
		t.Errorf("another processor's: %v", err)
	}
	_, err = pull(t, repo+":v1", false)
	e, ok := err.(*sallyport.Error)
	if !ok || e.Code != sallyport.Invalid || !strings.Contains(e.Message, digest) || !strings.Contains(e.Hint, repo+"@"+digest) {
		t.Errorf("a tag: %+v", err)
	}
	if img, err := pull(t, repo+":v1", true); err != nil || img.Digest != want.Digest {
		t.Errorf("a tag that is to be taken: %v", err)
	}
	for _, bad := range []string{"", "app@sha256:00", "app@md5:" + strings.Repeat("0", 32), repo + "@", "UPPER/case@" + digest, "a b@" + digest, "http://" + repo + "@" + digest} {
		if _, err := pull(t, bad, true); sallyport.CodeOf(err) != sallyport.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := pull(t, repo+"@sha256:"+strings.Repeat("0", 64), false); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("an unknown digest: %v", err)
	}
}

// A registry that gives other bytes than were asked for, more of them, or leads
// elsewhere without TLS, is found out.
func TestPullHostileRegistry(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	b, index := multi()
	m := standard(runtime.GOARCH)
	digest := index["digest"].(string)
	mine := index["manifests"].([]object)[1]["digest"].(string)
	answer := func(path string, body []byte) func(http.Handler) http.Handler {
		return func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, path) {
					w.Header().Set("Content-Type", typeIndex)
					w.Header().Set("Docker-Content-Digest", digest)
					_, _ = w.Write(body)
					return
				}
				h.ServeHTTP(w, r)
			})
		}
	}
	for _, tt := range []struct {
		name  string
		alter func(http.Handler) http.Handler
		want  string
	}{
		{"another index", answer("/manifests/"+digest, encode(object{"manifests": []object{}})), "does not match"},
		{"another manifest", answer("/manifests/"+mine, encode(object{"layers": []object{}})), "does not match"},
		{"an endless manifest", answer("/manifests/"+digest, make([]byte, 64<<20)), ""},
		{"another configuration", answer("/blobs/"+sum(encodeConfig(m)), []byte("{}")), "configuration"},
		{"another layer", answer("/blobs/"+sum(m.stored[1]), gzipOf(tarOf("a", "evil"))), "layer 2"},
		{"a longer layer", answer("/blobs/"+sum(m.stored[2]), append(m.stored[2], make([]byte, 1<<20)...)), "layer 3"},
		{"a redirect to plain HTTP elsewhere", func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, "/blobs/") {
					http.Redirect(w, r, "http://mirror.test/blob", http.StatusFound)
					return
				}
				h.ServeHTTP(w, r)
			})
		}, "plain HTTP"},
		{"nothing wrong", func(h http.Handler) http.Handler { return h }, "control"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			host := serve(t, b, index, tt.alter)
			_, err := pull(t, host+"/team/app@"+digest, false)
			if tt.want == "control" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want an error with %q", err, tt.want)
			}
		})
	}
}

// A manifest that says where else a layer may be had leads nowhere: a client that
// follows it would ask whatever address a stranger wrote there.
func TestPullFollowsNoAddresses(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	asked := 0
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked++ }))
	t.Cleanup(trap.Close)
	m := standard(runtime.GOARCH)
	m.change = func(manifest object) {
		l := manifest["layers"].([]object)[1]
		l["mediaType"], l["urls"] = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", []string{trap.URL + "/layer"}
	}
	b := blobs{}
	d := m.manifest(b)
	index := b.descriptor(typeIndex, encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{d}}))
	index["manifests"] = []object{d}
	host := serve(t, b, index, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/blobs/"+sum(m.stored[1])) {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	ref := host + "/team/app@" + d["digest"].(string)
	if _, err := pull(t, ref, false); err == nil || !strings.Contains(err.Error(), "layer 2") || asked > 0 {
		t.Errorf("got %v; the trap was asked %d times", err, asked)
	}
	text := b["blobs/sha256/"+d["digest"].(string)[7:]]
	address := regexp.MustCompile(`http://[^"]*/layer`).Find(text)
	if r, err := http.Get(string(address)); err != nil || r.Body.Close() != nil || asked != 1 {
		t.Errorf("control: a client that follows %q asks the trap %d times: %v", address, asked, err)
	}
}

func encodeConfig(m made) []byte {
	b := blobs{}
	m.manifest(b)
	for _, c := range b {
		if strings.Contains(string(c), `"diff_ids"`) {
			return c
		}
	}
	return nil
}

// Credentials of `docker login` are used, and go to that registry only.
func TestPullWithCredentials(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DOCKER_CONFIG", dir)
	b, index := multi()
	host := serve(t, b, index, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if u, p, _ := r.BasicAuth(); u != "ann" || p != "s3cret-of-ann" {
				w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	ref := host + "/team/app@" + index["digest"].(string)
	if _, err := pull(t, ref, false); sallyport.CodeOf(err) != sallyport.Unavailable {
		t.Errorf("control: without credentials: %v", err)
	}
	config := encode(object{"auths": object{host: object{"auth": "YW5uOnMzY3JldC1vZi1hbm4="}}})
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	if img, err := pull(t, ref, false); err != nil {
		t.Errorf("with credentials: %v", err)
	} else if strings.Contains(img.From, "s3cret") {
		t.Errorf("a credential is kept: %s", img.From)
	}
}

func TestName(t *testing.T) {
	for ref, want := range map[string]string{
		"python@sha256:00": "python", "docker.io/library/python:3.12": "python", "localhost:5000/a/b-c:1@sha256:00": "b-c", "localhost:5000/x": "x",
	} {
		if got := oci.Name(ref); got != want {
			t.Errorf("Name(%q) = %q, want %q", ref, got, want)
		}
	}
}

// Whatever a reference is, it is taken with a sha256 or refused with words.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"a", "a:b", "a@sha256:" + strings.Repeat("0", 64), "x.test:5000/a/b:c@sha256:" + strings.Repeat("f", 64), "a@b@c", "://", "a/../b"} {
		f.Add(s)
	}
	f.Setenv("DOCKER_CONFIG", f.TempDir())
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing is asked of anybody
	f.Fuzz(func(t *testing.T, ref string) {
		_, err := oci.Pull(ctx, ref, false)
		if err == nil || sallyport.CodeOf(err) == "" {
			t.Errorf("Pull(%q) = %v", ref, err)
		}
		_ = oci.Name(ref)
	})
}
