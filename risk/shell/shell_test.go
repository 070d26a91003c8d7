package shell_test

import (
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/shell"
)

// No text makes the judge fail or hang, and a harmless one before it hides no
// rm. The corpus's own fuzz tests go through the whole engine; this one is fast.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{
		"ls", "rm x", "a=$(mktemp); echo >$a", "set -C; > f", "sed -n 's/a/b/w x' f", "awk '{print > \"x\"}'", "tar xzf a", "git -c a.b=c log", "find . -exec rm {} \\;", "xargs -a f sort", "{a,b}", "$'\\x72m'",
		"env -S 'a b'", "bash -c 'x'", "strace a b", "cd a; cat b", "curl -o x h", "cat <<E\nx\nE", "f() { x; }; f", "a[$(x)]=1", "docker exec a rm b", "sudo -u x y", "dd of=x", "cp -t a b", "tar cf - . | x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		start := time.Now()
		r, parsed := shell.Judge{}.Judge(text)
		if took := time.Since(start); took > time.Minute {
			t.Fatalf("%d bytes take %s", len(text), took)
		}
		if len(r.Reasons) == 0 || r.Irreversible && r.Level != sallyport.Critical || !parsed && r.Level != sallyport.Critical || parsed && r.Mutating() && len(r.Parts) == 0 {
			t.Fatalf("%q: %+v, parsed %v", text, r, parsed)
		}
		if r.Level == sallyport.Critical || strings.HasSuffix(text, "\\") || strings.Contains(text, "<<") {
			return // the next line may belong to this one
		}
		if r, _ := (shell.Judge{}).Judge(text + "\nrm -rf x"); r.Level != sallyport.Critical {
			t.Fatalf("%q, then rm: %s", text, r.Level)
		}
	})
}

// What a container is told to run stands among the words, and is judged.
func TestCommandsOfContainers(t *testing.T) {
	for text, lost := range map[string]bool{
		"docker exec web rm -rf /data":                   true,
		"podman exec web sh -c 'rm -rf /data'":           true,
		"docker-compose run web rm -rf /data":            true,
		"kubectl exec web -- psql -c 'DROP TABLE o'":     false, // opaque, and a human decides in any case
		"kubectl exec -n a web -- rm -rf /data":          true,
		"docker exec web ls /data":                       false,
		"kubectl get pods":                               false,
		"docker run --rm -v /:/host alpine rm -rf /host": true,
	} {
		if r, _ := (shell.Judge{}).Judge(text); r.Irreversible != lost || strings.Contains(text, "rm -") && r.Level != sallyport.Critical {
			t.Errorf("%s: %s, irreversible %v; want %v", text, r.Level, r.Irreversible, lost)
		}
	}
}
