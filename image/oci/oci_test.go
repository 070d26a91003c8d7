package oci_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// A layout and a docker-save archive, in every form, give the same bytes.
func TestOpenForms(t *testing.T) {
	b := blobs{}
	single := b.index(standard(runtime.GOARCH).manifest(b))
	many := blobs{}
	inner := many.descriptor(typeIndex, encode(object{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []object{
		standard(other()).manifest(many), standard(runtime.GOARCH).manifest(many),
		{"mediaType": typeManifest, "digest": sum(nil), "size": 1, "platform": object{"os": "unknown", "architecture": "unknown"}},
	}}))
	many.index(inner)
	named := blobs{}
	one, two := standard(other()).manifest(named), standard(runtime.GOARCH).manifest(named)
	one["annotations"], two["annotations"] = object{"org.opencontainers.image.ref.name": "theirs"}, object{"org.opencontainers.image.ref.name": "ours"}
	named.index(one, two)
	saved := savedOf(standard(runtime.GOARCH))
	var digests []string
	for _, tt := range []struct{ name, file, ref string }{
		{"layout", single.folder(t), ""}, {"layout as tar", single.archive(t), ""},
		{"index of processors", many.folder(t), ""}, {"index as tar", many.archive(t), ""},
		{"named", named.folder(t), "ours"}, {"by digest", named.archive(t), two["digest"].(string)},
		{"docker save", saved.archive(t), ""}, {"docker save, unpacked", saved.folder(t), "repo:tag"},
	} {
		img, err := fromFile(t, tt.file, tt.ref)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		contents(t, img)
		digests = append(digests, img.Digest)
	}
	for _, d := range digests {
		if d != digests[0] {
			t.Fatalf("they differ: %v", digests)
		}
	}
}

// savedOf is what `docker save` writes.
func savedOf(m made) blobs {
	b := blobs{}
	d := m.manifest(b)
	var manifest struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err := json.Unmarshal(b["blobs/sha256/"+d["digest"].(string)[7:]], &manifest); err != nil {
		panic(err)
	}
	out := blobs{}
	name := manifest.Config.Digest[7:]
	out[name+".json"] = b["blobs/sha256/"+name]
	entry := object{"Config": name + ".json", "RepoTags": []string{"repo:tag"}}
	var layers []string
	for i, l := range manifest.Layers {
		member := fmt.Sprintf("%d/layer.tar", i)
		out[member] = b["blobs/sha256/"+l.Digest[7:]]
		layers = append(layers, member)
	}
	entry["Layers"] = layers
	out["manifest.json"] = encode([]object{entry})
	return out
}

// Whatever does not have the digest that led to it is refused, and so is what
// could be read in two ways.
func TestOpenRefuses(t *testing.T) {
	layout := func(m made, alter func(blobs, object)) blobs {
		b := blobs{}
		d := m.manifest(b)
		if alter != nil {
			alter(b, d)
		}
		return b.index(d)
	}
	mine := standard(runtime.GOARCH)
	// swap puts other bytes of the same length where a blob is.
	swap := func(b blobs, digest string) {
		c := bytes.Clone(b["blobs/sha256/"+digest[7:]])
		c[len(c)-1] ^= 1
		b["blobs/sha256/"+digest[7:]] = c
	}
	changed := func(change func(object)) made { m := mine; m.change = change; return m }
	layers := func(o object) []object { return o["layers"].([]object) }
	lied := mine
	lied.config = object{"rootfs": object{"type": "layers", "diff_ids": []string{sum([]byte("x")), sum([]byte("x")), sum([]byte("x"))}}}
	theirs := mine
	theirs.config = object{"architecture": other()}
	windows := mine
	windows.config = object{"os": "windows"}
	extra := mine
	extra.stored = [][]byte{mine.stored[0], append(bytes.Clone(mine.stored[1]), "junk"...), mine.stored[2]}
	twice := blobs{"index.json": []byte("{}")}.archive(t)
	if raw, err := os.ReadFile(twice); err != nil || os.WriteFile(twice, append(raw[:1024:1024], raw...), 0o600) != nil {
		t.Fatal(err)
	}
	outside := layout(mine, nil).folder(t)
	for p := range layout(mine, nil) {
		if strings.HasPrefix(p, "blobs/") { // all blobs lie elsewhere, behind a link
			elsewhere := t.TempDir()
			if err := os.Rename(filepath.Join(outside, "blobs"), filepath.Join(elsewhere, "blobs")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(elsewhere, "blobs"), filepath.Join(outside, "blobs")); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	saved := savedOf(mine)
	swapped := savedOf(mine)
	swapped["1/layer.tar"] = gzipOf(tarOf("a", "evil"))
	for name := range saved {
		if strings.HasSuffix(name, ".json") && name != "manifest.json" {
			saved[name] = append(saved[name], ' ')
		}
	}
	for _, tt := range []struct{ name, file, want string }{
		{"manifest altered", layout(mine, func(b blobs, d object) { swap(b, d["digest"].(string)) }).folder(t), "what is stored as"},
		{"manifest longer", layout(mine, func(b blobs, d object) { d["size"] = 10 }).folder(t), "should have 10"},
		{"config altered", layout(changed(nil), func(b blobs, _ object) {
			for p, c := range b {
				if bytes.Contains(c, []byte(`"diff_ids"`)) {
					swap(b, "sha256:"+filepath.Base(p))
				}
			}
		}).folder(t), "configuration"},
		{"plain layer altered", layout(mine, func(b blobs, _ object) {
			p := "blobs/sha256/" + sum(mine.stored[0])[7:]
			b[p] = bytes.Clone(b[p])
			b[p][512] ^= 1 // the contents of the first file
		}).folder(t), "unpacks to"},
		{"packed layer altered", layout(mine, func(b blobs, _ object) { swap(b, sum(mine.stored[1])) }).archive(t), "layer 2"},
		{"packed otherwise", layout(mine, func(b blobs, _ object) {
			p := "blobs/sha256/" + sum(mine.stored[1])[7:]
			b[p] = bytes.Clone(b[p])
			b[p][9] ^= 1 // gzip's note of the system: what comes out is the same
		}).folder(t), "but the manifest says"},
		{"layer missing", layout(mine, func(b blobs, _ object) { delete(b, "blobs/sha256/"+sum(mine.stored[2])[7:]) }).folder(t), "layer 3"},
		{"layer shorter than it says", layout(changed(func(o object) { layers(o)[1]["size"] = 10 }), nil).folder(t), "should have 10"},
		{"junk after a packed layer", layout(extra, nil).folder(t), "layer 2"},
		{"it unpacks to something else", layout(lied, nil).folder(t), "unpacks to"},
		{"too few layers", layout(changed(func(o object) { o["layers"] = layers(o)[:2] }), nil).folder(t), "2 layers"},
		{"no layers", layout(changed(func(o object) { o["layers"] = []object{} }), nil).folder(t), "0 layers"},
		{"both manifest and index", layout(changed(func(o object) { o["manifests"] = []object{} }), nil).folder(t), "or both"},
		{"an index that says manifest", layout(mine, func(_ blobs, d object) { d["mediaType"] = typeIndex }).folder(t), "what led to it"},
		{"config of a chart", layout(changed(func(o object) {
			o["config"].(object)["mediaType"] = "application/vnd.cncf.helm.config.v1+json"
		}), nil).folder(t), "not the configuration"},
		{"layer of another kind", layout(changed(func(o object) { layers(o)[0]["mediaType"] = "application/wasm" }), nil).folder(t), "not known"},
		{"sha512", layout(changed(func(o object) { layers(o)[0]["digest"] = "sha512:" + strings.Repeat("0", 128) }), nil).folder(t), "sha"},
		{"a digest with a path", layout(changed(func(o object) { layers(o)[0]["digest"] = "sha256:../../../etc/passwd" }), nil).folder(t), ""},
		{"other processor", layout(theirs, nil).folder(t), "this machine is linux/" + runtime.GOARCH},
		{"other system", layout(windows, nil).folder(t), "windows"},
		{"links out of the layout", outside, "escapes"},
		{"a member twice", twice, "twice"},
		{"not an archive", filepath.Join(outside, "index.json"), "tar"},
		{"compressed", write(t, gzipOf(layout(mine, nil)["index.json"])), "compressed"},
		{"empty folder", t.TempDir(), "neither index.json"},
		{"empty archive", write(t, tarOf()), "neither index.json"},
		{"a device", "/dev/zero", "neither a folder nor a file"},
		{"nothing", filepath.Join(outside, "none"), "no such file"},
		{"docker save: config altered", saved.archive(t), "the configuration"},
		{"docker save: layer altered", swapped.archive(t), "unpacks to"},
		{"two images", blobs{}.index(object{"digest": sum(nil)}, object{"digest": sum([]byte("x"))}).folder(t), "--ref"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if img, err := fromFile(t, tt.file, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want an error with %q", img.Digest, err, tt.want)
			}
		})
	}
	if _, err := fromFile(t, layout(mine, nil).folder(t), "other"); err == nil || !strings.Contains(err.Error(), `no image "other"`) {
		t.Errorf("an unknown ref: %v", err)
	}
}

func write(t *testing.T, b []byte) string {
	t.Helper()
	f := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(f, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// Layers that unpack to much more than they are stop at the bound, in both
// compressions, and soon.
func TestTO50_LayersPackedBombs(t *testing.T) {
	for name, pack := range map[string]func([]byte) []byte{"gzip": gzipOf, "zstd": zstdOf} {
		m := made{arch: runtime.GOARCH, plain: [][]byte{tarOf("bomb", strings.Repeat("\x00", 80<<20))}}
		m.stored = [][]byte{pack(m.plain[0])}
		if len(m.stored[0]) > 1<<19 {
			t.Fatalf("control: %s packs it to %d", name, len(m.stored[0]))
		}
		b := blobs{}
		dir := b.index(m.manifest(b)).folder(t)
		if _, err := fromFile(t, dir, ""); err == nil || !strings.Contains(err.Error(), "larger than") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
