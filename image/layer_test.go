package image_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/image"
)

// layersOf are layers as bytes.
func layersOf(t testing.TB, layers ...[]byte) image.Layers {
	t.Helper()
	return image.Layers{
		Name: "test", From: "a test", ID: fmt.Sprintf("%x", slices.Concat(layers...)), Count: len(layers),
		Open: func(_ context.Context, n int) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(layers[n])), nil
		},
	}
}

func buildLayers(t testing.TB, cache string, l image.Layers) (image.Image, error) {
	t.Helper()
	return image.NewStore(cache).BuildLayers(context.Background(), l, func(string) {})
}

// tellTree says what is in an image, but for what every image has.
func tellTree(t testing.TB, root fs.FS) string {
	t.Helper()
	var out []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		for _, own := range []string{".", "dev", "proc", "sys", "tmp", "run", "home", "root", "srv", "etc"} {
			if p == own || strings.HasPrefix(p, "etc/") && p != "etc/own" {
				return nil
			}
		}
		switch {
		case d.IsDir():
			out = append(out, p+"/")
		case d.Type()&fs.ModeSymlink != 0:
			target, err := fs.ReadLink(root, p)
			out = append(out, p+"->"+target)
			return err
		default:
			b, err := fs.ReadFile(root, p)
			out = append(out, p+"="+string(b))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, " ")
}

// Layers over each other give what a container would see, whatever the order of
// entries in them.
func TestLayersMerge(t *testing.T) {
	type layer = []tar.Header
	sym := func(name, target string) tar.Header { return link(tar.TypeSymlink, name, target) }
	hard := func(name, target string) tar.Header { return link(tar.TypeLink, name, target) }
	f := func(name, text string) tar.Header { return file(name, text, 0o644) }
	for _, tt := range []struct {
		name   string
		layers []layer
		want   string
	}{
		{"later wins", []layer{{f("a", "1"), f("b", "1")}, {f("a", "2")}}, "a=2 b=1"},
		{"later wins within a layer", []layer{{f("a", "1"), f("a", "2")}}, "a=2"},
		{"a folder keeps what it had", []layer{{dir("d"), f("d/a", "1")}, {dir("d"), f("d/b", "2")}}, "d/ d/a=1 d/b=2"},
		{"a file takes a folder's place", []layer{{f("d/a", "1")}, {f("d", "2")}}, "d=2"},
		{"a folder takes a file's place", []layer{{f("d", "1")}, {dir("d"), f("d/a", "2")}}, "d/ d/a=2"},
		{"a folder takes a link's place", []layer{{f("x/a", "1"), sym("d", "x")}, {dir("d")}}, "d/ x/ x/a=1"},
		{"whiteout", []layer{{f("a", "1"), f("b", "1")}, {f(".wh.a", "")}}, "b=1"},
		{"whiteout of a folder", []layer{{f("d/e/a", "1"), f("b", "1")}, {f(".wh.d", "")}}, "b=1"},
		{"whiteout of nothing", []layer{{f("a", "1")}, {f(".wh.b", ""), f("c/.wh.d", "")}}, "a=1"},
		{"whiteout before its replacement", []layer{{f("d/a", "1")}, {f(".wh.d", ""), f("d/b", "2")}}, "d/ d/b=2"},
		{"whiteout after its replacement", []layer{{f("d/a", "1")}, {f("d/b", "2"), f(".wh.d", "")}}, "d/ d/b=2"},
		{"whiteout hides nothing of its own layer", []layer{{f("a", "1")}, {f("a", "2"), f(".wh.a", "")}}, "a=2"},
		{"whiteout in the first layer", []layer{{f("a", "1"), f(".wh.a", "")}}, "a=1"},
		{"back after a whiteout", []layer{{f("a", "1")}, {f(".wh.a", "")}, {f("a", "3")}}, "a=3"},
		{"opaque", []layer{{f("d/a", "1"), f("d/e/b", "1"), f("c", "1")}, {dir("d"), f("d/.wh..wh..opq", ""), f("d/n", "2")}}, "c=1 d/ d/n=2"},
		{"opaque after its layer's files", []layer{{f("d/a", "1"), f("d/e/b", "1")}, {f("d/e/n", "2"), f("d/.wh..wh..opq", "")}}, "d/ d/e/ d/e/n=2"},
		{"opaque root", []layer{{f("a", "1"), f("d/b", "1")}, {f(".wh..wh..opq", ""), f("c", "2")}}, "c=2"},
		{"opaque deep below a kept folder", []layer{{f("d/e/f/a", "1"), f("d/e/b", "1")}, {f("d/e/f/n", "2"), f("d/e/f/.wh..wh..opq", "")}}, "d/ d/e/ d/e/b=1 d/e/f/ d/e/f/n=2"},
		{"notes of aufs", []layer{{f("a", "1"), f(".wh..wh.plnk", ""), f(".wh..wh.aufs", "")}}, "a=1"},
		{"hard link", []layer{{f("a", "1"), hard("b", "a")}}, "a=1 b=1"},
		{"hard link to a lower layer", []layer{{f("d/a", "1")}, {hard("b", "/d/a"), hard("c", "./b")}}, "b=1 c=1 d/ d/a=1"},
		{"hard link outlives its first name", []layer{{f("a", "1")}, {hard("b", "a"), f(".wh.a", "")}, {f("a", "3")}}, "a=3 b=1"},
		{"hard link to a link", []layer{{sym("a", "x"), hard("b", "a")}}, "a->x b->x"},
		{"through a relative link", []layer{{f("usr/lib/a", "1"), sym("lib", "usr/lib")}, {f("lib/b", "2")}}, "lib->usr/lib usr/ usr/lib/ usr/lib/a=1 usr/lib/b=2"},
		{"through an absolute link", []layer{{sym("lib", "/usr/lib"), dir("usr"), dir("usr/lib")}, {f("lib/b", "2"), f("lib/.wh.b", "")}}, "lib->/usr/lib usr/ usr/lib/ usr/lib/b=2"},
		{"through links that go up", []layer{{sym("a/b/l", "../c/./"), sym("top", "../../../a"), f("a/c/x", "1")}, {f("a/b/l/y", "2"), f("top/z", "3")}}, "a/ a/b/ a/b/l->../c/./ a/c/ a/c/x=1 a/c/y=2 a/z=3 top->../../../a"},
		{"whiteout through a link", []layer{{f("usr/lib/a", "1"), sym("lib", "usr/lib")}, {f("lib/.wh.a", "")}}, "lib->usr/lib usr/ usr/lib/"},
		{"absolute names", []layer{{f("/a", "1"), f("//b/c", "1"), dir("/")}}, "a=1 b/ b/c=1"},
		{"devices", []layer{{{Name: "d/null", Typeflag: tar.TypeChar}, {Name: "d/sda", Typeflag: tar.TypeBlock}, {Name: "d/p", Typeflag: tar.TypeFifo}, f("d/a", "1")}}, "d/ d/a=1"},
		{"a device takes a file's place", []layer{{f("a", "1")}, {{Name: "a", Typeflag: tar.TypeChar}}}, ""},
		{"a global header", []layer{{{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "x"}}, f("a", "1")}}, "a=1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var layers [][]byte
			for _, l := range tt.layers {
				layers = append(layers, tarOf(t, l...))
			}
			img, err := buildLayers(t, t.TempDir(), layersOf(t, layers...))
			if err != nil {
				t.Fatal(err)
			}
			if got := tellTree(t, open(t, img)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// An image that was not made for sandboxes gets what they need, and keeps its own
// users.
func TestLayersAreAdapted(t *testing.T) {
	own := "root:x:0:0::/root:/bin/ash\nnode:x:1001:1001::/home/node:/bin/sh\n"
	img, err := buildLayers(t, t.TempDir(), layersOf(t, tarOf(t, file("etc/passwd", own, 0o644), link(tar.TypeSymlink, "tmp", "var/tmp"), file("proc", "x", 0o644))))
	if err != nil {
		t.Fatal(err)
	}
	root := open(t, img)
	if b, err := fs.ReadFile(root, "etc/passwd"); err != nil || string(b) != own+"agent:x:1000:1000:agent:/home/agent:/bin/bash\n" {
		t.Errorf("/etc/passwd = %q, %v", b, err)
	}
	for _, p := range []string{"dev", "proc", "tmp", "run", "home"} {
		if info, err := fs.Lstat(root, p); err != nil || !info.IsDir() {
			t.Errorf("/%s is not a folder: %v", p, err)
		}
	}
	if b, err := fs.ReadFile(root, "etc/hosts"); err != nil || !bytes.Contains(b, []byte("localhost")) {
		t.Errorf("/etc/hosts = %q, %v", b, err)
	}
}

// Equal layers give equal images; what is in the cache is not unpacked again; a
// layer whose check fails at its end counts for nothing.
func TestLayersReproducible(t *testing.T) {
	l := layersOf(t, tarOf(t, file("a", "1", 0o755), dir("d")), tarOf(t, file("d/b", "2", 0o644)))
	cache := t.TempDir()
	first, err := buildLayers(t, cache, l)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := buildLayers(t, t.TempDir(), l); err != nil || again.Digest != first.Digest {
		t.Errorf("the second build is %s, %v; the first %s", again.Digest, err, first.Digest)
	}
	l.Open = func(context.Context, int) (io.ReadCloser, error) { return nil, errors.New("opened again") }
	l.Name = "other"
	if again, err := buildLayers(t, cache, l); err != nil || again.Digest != first.Digest {
		t.Errorf("from the cache: %v", err)
	}
	l.ID = "something else"
	if _, err := buildLayers(t, cache, l); err == nil || !strings.Contains(err.Error(), "opened again") {
		t.Errorf("another ID was served from the cache: %v", err)
	}
	bad := layersOf(t, tarOf(t, file("a", "1", 0o755)))
	whole := bad.Open
	bad.Open = func(ctx context.Context, n int) (io.ReadCloser, error) {
		r, err := whole(ctx, n)
		return failing{r}, err
	}
	if _, err := buildLayers(t, t.TempDir(), bad); err == nil || !strings.Contains(err.Error(), "not what was named") {
		t.Errorf("a layer that fails its check: %v", err)
	}
	for _, name := range []string{image.DefaultName, image.DataName} {
		l.Name = name
		if _, err := buildLayers(t, cache, l); err == nil || !strings.Contains(err.Error(), "Debian's packages") {
			t.Errorf("layers took the name %s: %v", name, err)
		}
	}
}

type failing struct{ io.Reader }

func (failing) Close() error { return errors.New("not what was named") }
