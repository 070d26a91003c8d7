package tier_test

import (
	"fmt"
	"strings"
	"testing"

	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
)

// What is told of a file that is not kept does not become another one's.
func TestTO50_ContentStaysWithItsFile(t *testing.T) {
	named := func(name string) []byte { return append(payload.AppendUint64(nil, 1), name...) }
	var a tier.Artifacts
	a.Note(payload.Artifact, named("first"))
	a.Note(payload.Data, []byte("its own"))
	for _, other := range []string{"", strings.Repeat("x", payload.MaxPath+1)} {
		if a.Note(payload.Artifact, named(other)) || a.Note(payload.Data, []byte(", another's")) || string(a.Files[0].Content) != "its own" {
			t.Errorf("after one whose name has %d bytes: %q", len(other), a.Files[0].Content)
		}
	}
}

// Whoever tells of the output folder may be the program: no more is kept than a
// result may hold, however much is told.
func TestArtifactsAreBounded(t *testing.T) {
	named := func(name string) []byte { return append(payload.AppendUint64(nil, 1), name...) }
	var a tier.Artifacts
	if !a.Note(payload.Artifact, named("first")) || !a.Note(payload.Data, make([]byte, payload.MaxArtifactBytes)) || !a.Note(payload.LeftOut, named("left")) {
		t.Fatal("what is within the bounds is not kept")
	}
	if a.Note(payload.Data, []byte("x")) {
		t.Error("a byte beyond the bounds is kept")
	}
	if a.Note(payload.Artifact, named(strings.Repeat("x", 1<<20))) || a.Note(payload.LeftOut, named(strings.Repeat("x", 1<<20))) {
		t.Error("a name of a megabyte is kept")
	}
	for i := range 3 * payload.MaxEntries {
		a.Note(payload.Artifact, named(fmt.Sprint(i)))
		a.Note(payload.LeftOut, named(fmt.Sprint(i)))
	}
	if len(a.Files) != payload.MaxArtifacts || len(a.LeftOut) != payload.MaxEntries || len(a.Files[0].Content) != payload.MaxArtifactBytes {
		t.Errorf("%d files, %d left out, %d bytes", len(a.Files), len(a.LeftOut), len(a.Files[0].Content))
	}
}
