package demo

import (
	"testing"

	"sallyport.dev/sallyport/catalog"
	"sallyport.dev/sallyport/catalog/lint"
)

// The demo's manifests load, and are as well described as they should be.
func TestManifests(t *testing.T) {
	var all []catalog.Manifest
	for name, text := range map[string]string{"report": reportTool, "orders": ordersTool, "info": infoTool} {
		m, err := catalog.ParseManifest(name+".yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, m); m.Language == "" {
			continue
		}
		for _, p := range lint.Check(m.Described()) {
			t.Errorf("%s: %s: %s", name, p.Path, p.What)
		}
	}
	if _, err := catalog.New(catalog.Options{Manifests: all}); err != nil {
		t.Error(err)
	}
}
