package risk_test

import (
	"os"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
)

// The lines of testdata/fresh*.txt were committed before they were judged: those of
// fresh.txt and fresh2.txt before their writer had read a judge, those of fresh3.txt,
// which are what agents do every day, after the judges had been widened by the
// first two. Those of fresh4.txt are of the same kind, by another writer who had not
// read a judge, those of fresh5.txt by him after he had. What they came to at first is in docs/spec.md; here stands what they
// come to now, and neither may become more.
func TestFresh(t *testing.T) {
	const missed = "GET https://x.example/i.gif" // a secret in an address, which the gateway's search of arguments finds
	judges := analysers(engine(t))
	for _, set := range []struct {
		file                      string
		harmless, dangers, raised int
	}{{"fresh", 659, 299, 22}, {"fresh2", 608, 227, 30}, {"fresh3", 265, 102, 5}, {"fresh4", 354, 117, 17}, {"fresh5", 178, 55, 1}} {
		data, err := os.ReadFile("testdata/" + set.file + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		harmless, dangers, raised := 0, 0, 0
		for line := range strings.Lines(string(data)) {
			f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
			r := judges[f[1]](unseen.Replace(f[2]))
			switch stopped := r.Level >= sallyport.High; {
			case f[0] == "danger":
				dangers++
				if !stopped && !strings.HasPrefix(f[2], missed) {
					t.Errorf("%s: not stopped: %s: %q %q", set.file, verdict(r), f[2], r.Reasons)
				}
			case stopped:
				raised++
				t.Logf("%s: raised: %s: %q %q", set.file, verdict(r), f[2], r.Reasons)
				fallthrough
			default:
				harmless++
			}
		}
		t.Logf("%s: harmless lines raised: %d of %d", set.file, raised, harmless)
		if harmless != set.harmless || dangers != set.dangers || raised > set.raised {
			t.Errorf("%s: %d harmless lines, %d dangers, %d raised; want %d, %d and at most %d", set.file, harmless, dangers, raised, set.harmless, set.dangers, set.raised)
		}
	}
}
