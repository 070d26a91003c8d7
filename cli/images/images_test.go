package images_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/cobra"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/cli/images"
)

// sandbox runs `sallyport sandbox ARG…` on the data folder.
func sandbox(t *testing.T, data string, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	app := &cli.App{Data: data, Out: &stdout, Err: &stderr, JSON: args[0] == "--json"}
	root := &cobra.Command{Use: "sandbox", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(images.Commands(app)...)
	if app.JSON {
		args = args[1:]
	}
	root.SetArgs(args)
	err = root.ExecuteContext(t.Context())
	return stdout.String() + stderr.String(), err
}

// What other people's tools write, as they write it, becomes the same image by
// each way: pulled, from a layout, from an archive.
func TestOtherPeoplesImages(t *testing.T) {
	t.Setenv("SALLYPORT_CACHE", t.TempDir())
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	tag, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/team/their-app:v1")
	if err != nil {
		t.Fatal(err)
	}
	img, err := random.Image(10_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "saved.tar")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{remote.Write(tag, img), path.AppendImage(img), tarball.WriteToFile(file, tag, img)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	data := t.TempDir()
	_, err = sandbox(t, data, "pull", tag.String())
	if sallyport.CodeOf(err) != sallyport.Invalid || !strings.Contains(err.Error(), digest.String()) {
		t.Fatalf("a tag: %v", err)
	}
	var digests []string
	for _, args := range [][]string{
		{"pull", tag.Context().Digest(digest.String()).String()}, {"pull", tag.String(), "--resolve", "--name", "resolved"},
		{"build", "--oci", dir, "--name", "layout"}, {"build", "--oci", file},
	} {
		out, err := sandbox(t, data, append([]string{"--json"}, args...)...)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
		var made struct{ Name, Digest, From string }
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):strings.LastIndex(out, "}")+1]), &made); err != nil || !strings.Contains(made.From, "sha256:") {
			t.Fatalf("%v: %s, %v", args, out, err)
		}
		digests = append(digests, made.Name+" "+made.Digest)
	}
	want := digests[0][strings.Index(digests[0], " "):]
	for i, n := range []string{"their-app", "resolved", "layout", "saved"} {
		if digests[i] != n+want {
			t.Errorf("image %d is %s, want %s%s", i, digests[i], n, want)
		}
	}
	// A manifest that cannot be read might name any of them.
	if err := os.MkdirAll(filepath.Join(data, "tools"), 0o700); err != nil {
		t.Fatal(err)
	}
	manifest := filepath.Join(data, "tools", "t.yaml")
	write := func(text string) {
		if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("image: [")
	for _, args := range [][]string{{"images", "prune", "--all"}, {"images", "rm", "layout"}} {
		if _, err := sandbox(t, data, args...); err == nil {
			t.Errorf("%v went on without the manifests", args)
		}
	}
	write("name: t\nlanguage: shell\ncode: x\nimage: layout\n")
	if _, err := sandbox(t, data, "images", "rm", "layout"); sallyport.CodeOf(err) != sallyport.Conflict {
		t.Errorf("rm of what a manifest names: %v", err)
	}
	if out, err := sandbox(t, data, "images", "rm", "saved", "resolved"); err != nil || !strings.Contains(out, "removed saved") {
		t.Errorf("rm: %s, %v", out, err)
	}
	if _, err := sandbox(t, data, "images", "prune", "--all"); err != nil {
		t.Error(err)
	}
	if out, err := sandbox(t, data, "images"); err != nil || !strings.Contains(out, "layout ") || strings.Contains(out, "saved ") || strings.Count(out, "MiB  never  "+filepath.Base(dir)+" sha256:") != 1 || strings.Contains(out, "their-app  sha256-") && !strings.Contains(out, "their-app@sha256:") {
		t.Errorf("what is left: %s, %v", out, err)
	}
}
