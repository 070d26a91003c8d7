package oci_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"sallyport.dev/sallyport/image/oci"
)

const wasmBytes = "\x00asm\x01\x00\x00\x00"

// artifact is one that clients push: a configuration and layers.
func artifact(b blobs, config, layer string, layers ...string) object {
	all := []object{}
	for _, l := range layers {
		all = append(all, b.descriptor(layer, []byte(l)))
	}
	return b.descriptor(typeManifest, encode(object{"schemaVersion": 2, "mediaType": typeManifest, "config": b.descriptor(config, []byte("{}")), "layers": all}))
}

// Modules are pulled by digest, in the layouts that registries have of them.
func TestPullModule(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	b := blobs{}
	images, index := multi()
	for name, content := range images {
		b[name] = content
	}
	list := index["manifests"].([]object)
	for name, c := range map[string]struct {
		d    object
		want string // in the error; "" for the module
	}{
		"CNCF":             {artifact(b, "application/vnd.wasm.config.v0+json", "application/wasm", wasmBytes), ""},
		"wasm-to-oci":      {artifact(b, "application/vnd.wasm.config.v1+json", "application/vnd.wasm.content.layer.v1+wasm", wasmBytes), ""},
		"a generic client": {artifact(b, "application/vnd.oci.empty.v1+json", "application/wasm", wasmBytes), ""},
		"two layers":       {artifact(b, "application/vnd.wasm.config.v0+json", "application/wasm", wasmBytes, "x"), "2 layers"},
		"another layer":    {artifact(b, "application/vnd.wasm.config.v0+json", "application/zip", wasmBytes), "application/zip"},
		"another artifact": {artifact(b, "application/vnd.cncf.helm.config.v1+json", "application/wasm", wasmBytes), "without --module"},
		"an image":         {list[0], "without --module"},
		"an index":         {index, "no manifest"},
	} {
		t.Run(name, func(t *testing.T) {
			all := object{}
			for k, v := range index {
				all[k] = v
			}
			all["manifests"] = append(append([]object{}, list...), c.d) // an index comes after what it lists
			repo := serve(t, b, all, nil) + "/team/app"
			ref := repo + "@" + c.d["digest"].(string)
			m, err := oci.PullModule(context.Background(), ref, false)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil || string(m.Code) != wasmBytes || m.Ref != ref {
				t.Fatalf("%q, %q, %v", m.Ref, m.Code, err)
			}
			if _, err := oci.PullModule(context.Background(), repo+":v1", false); err == nil || !strings.Contains(err.Error(), "is a tag") {
				t.Errorf("a tag was taken: %v", err)
			}
		})
	}
}

// What a registry sends is held against the digest.
func TestPullModuleDamaged(t *testing.T) {
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	b, index := multi()
	list := index["manifests"].([]object)
	layer := b.descriptor("application/wasm", []byte(wasmBytes))
	d := artifact(b, "application/vnd.wasm.config.v0+json", "application/wasm", wasmBytes)
	index["manifests"] = append(list, d)
	host := serve(t, b, index, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/blobs/"+layer["digest"].(string)) {
				_, _ = w.Write([]byte("\x00asm\x01\x00\x00\x01"))
				return
			}
			h.ServeHTTP(w, r)
		})
	})
	if _, err := oci.PullModule(context.Background(), host+"/team/app@"+d["digest"].(string), false); err == nil {
		t.Error("another module was taken for it")
	}
}
