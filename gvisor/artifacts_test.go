package gvisor_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport/gvisor/gvisortest"
	"sallyport.dev/sallyport/tier"
	"sallyport.dev/sallyport/tier/payload"
	"sallyport.dev/sallyport/tier/realtest"
)

func paths(files []tier.File) (out []string) {
	for _, f := range files {
		out = append(out, f.Path)
	}
	slices.Sort(out)
	return out
}

// Files that a program leaves in the output folder come back, within bounds;
// nothing else does, and nothing hangs.
func TestOutputFolder(t *testing.T) {
	h := gvisortest.Open(t)
	res := run(t, h, sh(`cd $SALLYPORT_OUTPUT || exit 1; pwd; printf 'a\0b' > plain; mkdir -p d/e; echo deep > d/e/f; printf x > "$(printf 'odd\nname')"
ln -s /etc/passwd link; ln -s plain inside; mkfifo pipe; mkdir up; ln -s /etc up/etc; : > empty; exit 3`))
	if got := paths(res.Output.Files); res.ExitCode != 3 || string(res.Stdout) != "/home/output\n" || !slices.Equal(got, []string{"d/e/f", "empty", "odd\nname", "plain"}) {
		t.Errorf("%q, %d, %s", got, res.ExitCode, res.Stdout)
	}
	for _, f := range res.Output.Files {
		if want := map[string]string{"plain": "a\x00b", "d/e/f": "deep\n", "empty": "", "odd\nname": "x"}[f.Path]; string(f.Content) != want {
			t.Errorf("%s: %q", f.Path, f.Content)
		}
	}
	res = run(t, h, sh(fmt.Sprintf(`cd $SALLYPORT_OUTPUT; for i in $(seq 20); do echo $i > n$i; done; head -c %d /dev/zero > big`, payload.MaxArtifactBytes+1)))
	if len(res.Output.Files) != payload.MaxArtifacts || len(res.Output.LeftOut) != 21-payload.MaxArtifacts || !slices.Contains(res.Output.LeftOut, "big") {
		t.Errorf("%d files, left out %q", len(res.Output.Files), res.Output.LeftOut)
	}
	res = run(t, h, sh(`ls -A . $SALLYPORT_OUTPUT; rmdir /home/output || ln -s /etc /home/output/link; ln -s /etc output`))
	if string(res.Stdout) != ".:\n\n/home/output:\n" || len(res.Output.Files) != 0 {
		t.Errorf("links: %q, %q", res.Stdout, paths(res.Output.Files))
	}
}

// fakeMatplotlib has what the backend for figures needs; the real one is in
// another image.
var fakeMatplotlib = []tier.File{
	{Path: "matplotlib/__init__.py"}, {Path: "matplotlib/backends/__init__.py"},
	{Path: "matplotlib/_pylab_helpers.py", Content: []byte("class Gcf:\n    figs = []\n    get_all_fig_managers = classmethod(lambda c: list(c.figs))\n    destroy_all = classmethod(lambda c: c.figs.clear())\n")},
	{Path: "matplotlib/backend_bases.py", Content: []byte("class FigureManagerBase: pass\n")},
	{Path: "matplotlib/backends/backend_agg.py", Content: []byte("class FigureCanvasAgg: pass\n")},
}

const plot = `
import importlib, os, types
from matplotlib._pylab_helpers import Gcf
backend = importlib.import_module(os.environ["MPLBACKEND"].removeprefix("module://"))
def figure(text):
    fig = types.SimpleNamespace(savefig=lambda p: open(p, "w").write(text))
    Gcf.figs.append(types.SimpleNamespace(canvas=types.SimpleNamespace(figure=fig)))
`

// Figures are in the output folder when they are shown, and at the end.
func TestFigures(t *testing.T) {
	h := gvisortest.Open(t)
	r := py(plot + "figure('one'); figure('two'); backend.show(); figure('open')")
	r.Files = fakeMatplotlib
	res := run(t, h, r)
	if got := paths(res.Output.Files); !slices.Equal(got, []string{"figure-1.png", "figure-2.png", "figure-3.png"}) || len(res.Stderr) > 0 {
		t.Errorf("%q, %s", got, res.Stderr)
	}
	var all []string
	for _, f := range res.Output.Files {
		all = append(all, string(f.Content))
	}
	if slices.Sort(all); strings.Join(all, " ") != "one open two" {
		t.Errorf("%q", all)
	}
}

// The same with the real matplotlib, where its image is there.
func TestFiguresOfMatplotlib(t *testing.T) {
	if _, err := realtest.Images(t).Find("data"); err != nil {
		t.Skipf("skipped: no image with matplotlib: %v", err)
	}
	h := gvisortest.Open(t)
	r := py("import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.show()\nplt.figure(); plt.plot([1, 2])")
	r.Image = "data"
	res := run(t, h, r)
	if got := paths(res.Output.Files); !slices.Equal(got, []string{"figure-1.png", "figure-2.png"}) {
		t.Fatalf("%q, %s", got, res.Stderr)
	}
	for _, f := range res.Output.Files {
		if !strings.HasPrefix(string(f.Content), "\x89PNG\r\n") {
			t.Errorf("%s: %.8q", f.Path, f.Content)
		}
	}
}
