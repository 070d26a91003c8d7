// Package cloud judges what is asked of clouds and clusters: actions such as
// ec2:TerminateInstances, the command lines of aws, gcloud, az, kubectl, helm,
// terraform, docker and systemctl, and Kubernetes manifests.
//
// Verbs decide, by the tables of verbs.txt, which names its sources. A verb that
// is not there is critical: what it does is unknown.
package cloud

import (
	_ "embed"
	"strings"
	"sync"
	"unicode"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

//go:embed verbs.txt
var verbsText string

// A class is what a verb does.
type class string

const (
	reads      class = "read"
	secrets    class = "secret"
	writes     class = "write"
	privileges class = "privileges"
	tells      class = "message"
	runs       class = "run"
	loses      class = "lost"
	unknown    class = ""
)

// A table is what verbs.txt says about one program.
type table struct {
	verbs        map[string]class
	longest      int // words of the longest verb
	valued, flag map[string]bool
}

var tables = sync.OnceValue(func() map[string]table { return parseTables(verbsText) })

func parseTables(text string) map[string]table {
	out := map[string]table{}
	for line := range strings.SplitSeq(text, "\n") {
		head, list, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		program, kind, _ := strings.Cut(head, " ")
		t, ok := out[program]
		if !ok {
			t = table{verbs: map[string]class{}, valued: map[string]bool{}, flag: map[string]bool{}}
		}
		for _, word := range strings.Fields(list) {
			switch kind {
			case "value":
				t.valued[word] = true
			case "flag":
				t.flag[word] = true
			default:
				t.verbs[word] = class(kind)
				t.longest = max(t.longest, strings.Count(word, "-")+1)
			}
		}
		out[program] = t
	}
	return out
}

// class finds the longest verb that the words begin with. An option-like or
// unknown word begins none.
func (t table) class(words []string) (c class, n int) {
	for n := min(len(words), t.longest); n > 0; n-- {
		if c, ok := t.verbs[strings.Join(words[:n], "-")]; ok {
			return c, n
		}
	}
	return unknown, 0
}

// Words cuts a name at hyphens, underscores, dots, spaces and where a capital
// begins: TerminateInstances, terminate_instances and terminate-instances are
// the same.
func Words(name string) []string {
	var out []string
	var b strings.Builder
	flush := func() {
		if b.Len() > 0 {
			out = append(out, strings.ToLower(b.String()))
			b.Reset()
		}
	}
	rs := []rune(name)
	for i, r := range rs {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			flush()
			continue
		case i > 0 && unicode.IsUpper(r) && (unicode.IsLower(rs[i-1]) || unicode.IsDigit(rs[i-1]) ||
			unicode.IsUpper(rs[i-1]) && i+1 < len(rs) && unicode.IsLower(rs[i+1])):
			flush()
		}
		b.WriteRune(r)
	}
	flush()
	return out
}

// containers are words of what holds data: removing one destroys all in it.
var containers = words(`bucket buckets table tables database databases cluster clusters volume volumes disk disks namespace namespaces ns project projects
	stack stacks key keys vault vaults instance instances vm filesystem account accounts domain zone group nodegroup snapshot snapshots repository repo repositories
	topic stream queue index pvc pv persistentvolume persistentvolumeclaim persistentvolumeclaims persistentvolumes crd customresourcedefinition customresourcedefinitions
	node nodes backup backups subscription tenant organization release keyring dataset collection statefulset statefulsets sts all`)

func words(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}

// judge says what a verb of a class does. what names the request for people,
// objects are the words of what it is about.
func judge(l *finding.List, c class, what string, objects []string) {
	l.Effect(sallyport.EffectNetwork)
	switch c {
	case reads:
		l.Effect(sallyport.EffectRead)
		l.Add(sallyport.Low, "%s reads and changes nothing", what)
	case secrets:
		l.Effect(sallyport.EffectRead)
		l.Add(sallyport.Medium, "%s reads secrets", what)
	case writes:
		l.Effect(sallyport.EffectWrite)
		l.Add(sallyport.High, "%s changes something", what)
	case privileges:
		l.Effect(sallyport.EffectPrivileges)
		l.Add(sallyport.Critical, "%s changes who may do what", what)
	case tells:
		l.Effect(sallyport.EffectMessage)
		l.Lost("%s sends a message: it cannot be called back", what)
	case runs:
		l.Effect(sallyport.EffectExecute)
		l.Add(sallyport.Critical, "%s runs a program or code", what)
	case loses:
		effect := sallyport.EffectDelete
		for _, o := range objects {
			if containers[o] {
				effect = sallyport.EffectDestroy
			}
		}
		l.Effect(effect)
		l.Lost("%s takes something away: it cannot be brought back", what)
	default:
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "%s is not known to be harmless", what)
	}
	if c != reads {
		l.Part("", "operation", what)
	}
}
