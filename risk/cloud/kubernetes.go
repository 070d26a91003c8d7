package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// A Request is one request to a cluster, as its API knows it.
type Request struct {
	Verb      string // get, list, watch, create, update, patch, delete, deletecollection, …
	Resource  string // pods, deployments.apps, pods/exec, Secret
	Namespace string
	Name      string
}

// apiVerbs are the verbs of Kubernetes' authorization, and what people and
// tools call them. (kubernetes.io: API access control, request verbs)
var apiVerbs = map[string]class{
	"get": reads, "list": reads, "watch": reads, "describe": reads, "logs": reads, "log": reads, "top": reads, "explain": reads, "read": reads, "head": reads,
	"create": writes, "update": writes, "patch": writes, "apply": writes, "post": writes, "put": writes, "scale": writes, "rollout": writes, "restart": writes,
	"label": writes, "annotate": writes, "cordon": writes, "uncordon": writes, "expose": writes, "replace": loses, "edit": writes, "set": writes,
	"delete": loses, "deletecollection": loses, "delete_collection": loses, "remove": loses, "drain": loses, "evict": loses,
	"exec": runs, "attach": runs, "portforward": runs, "port-forward": runs, "proxy": runs, "debug": runs, "cp": runs, "connect": runs,
	"impersonate": privileges, "bind": privileges, "escalate": privileges, "approve": privileges, "sign": privileges,
}

// Ask judges one request to a cluster.
func Ask(r Request) sallyport.Risk {
	var l finding.List
	kind, sub := resource(r.Resource)
	what := strings.TrimSpace(strings.ToLower(r.Verb) + " " + r.Resource + " " + r.Name)
	for _, o := range []string{r.Namespace, r.Resource, r.Name} {
		l.Object(o)
	}
	c, ok := apiVerbs[strings.ToLower(strings.TrimSpace(r.Verb))]
	if !ok {
		c = unknown
	}
	switch sub {
	case "exec", "attach", "portforward", "proxy", "ephemeralcontainers":
		c = runs
	case "eviction":
		c = loses
	case "token":
		c = secrets
	}
	if c == reads && kind == "secret" {
		c = secrets
	}
	judge(&l, c, what, []string{kind})
	if c == writes && rights[kind] {
		judge(&l, privileges, what, nil)
	}
	return l.Risk()
}

// rights are the kinds that say who may do what, or stand in every request's way.
var rights = words(`role rolebinding clusterrole clusterrolebinding serviceaccount certificatesigningrequest mutatingwebhookconfiguration
	validatingwebhookconfiguration validatingadmissionpolicy validatingadmissionpolicybinding mutatingadmissionpolicy apiservice podsecuritypolicy
	securitycontextconstraints networkpolicy`)

var shortKinds = map[string]string{"ns": "namespace", "po": "pod", "deploy": "deployment", "sa": "serviceaccount", "csr": "certificatesigningrequest",
	"pv": "persistentvolume", "pvc": "persistentvolumeclaim", "crd": "customresourcedefinition", "sts": "statefulset", "netpol": "networkpolicy"}

// resource brings pods, Pod, pods/exec and deployments.apps/v1 into one form.
func resource(s string) (kind, sub string) {
	s = strings.ToLower(strings.TrimSpace(s))
	s, sub, _ = strings.Cut(s, "/")
	kind, _, _ = strings.Cut(s, ".")
	if long, ok := shortKinds[kind]; ok {
		return long, sub
	}
	switch {
	case strings.HasSuffix(kind, "policies"):
		kind = strings.TrimSuffix(kind, "ies") + "y"
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss") && kind != "all":
		kind = strings.TrimSuffix(kind, "s")
	}
	return kind, sub
}

const (
	maxDocuments = 64
	maxManifest  = 256 << 10
	maxAliases   = 32 // of YAML, or anything else written with a star
)

// Manifest judges Kubernetes objects, as YAML documents or JSON, that are to be
// applied.
func Manifest(text string) (r sallyport.Risk) {
	var l finding.List
	defer func() {
		if p := recover(); p != nil { // the YAML parser's
			l.Add(sallyport.Critical, "the manifest broke its parser, so what it does is unknown")
			r = l.Risk()
		}
	}()
	if len(text) > maxManifest || strings.Count(text, "*") > maxAliases {
		l.Add(sallyport.Critical, "the manifest is too large to judge")
		return l.Risk()
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	for n := 0; ; n++ {
		var doc any
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && !l.Empty():
			return l.Risk()
		case err != nil:
			l.Effect(sallyport.EffectOpaque)
			l.Add(sallyport.Critical, "the manifest cannot be read, so what it does is unknown")
			return l.Risk()
		case n == maxDocuments:
			l.Add(sallyport.Critical, "the manifest holds more than %d objects", maxDocuments)
			return l.Risk()
		case doc != nil:
			object(&l, doc, 0)
		}
	}
}

// Object judges one decoded object that is to be applied.
func Object(doc any) sallyport.Risk {
	var l finding.List
	object(&l, doc, 0)
	return l.Risk()
}

// IsManifest tells whether a text looks like Kubernetes objects.
func IsManifest(text string) bool {
	return strings.Contains(text, "apiVersion") && strings.Contains(text, "kind")
}

func object(l *finding.List, doc any, depth int) {
	m, ok := doc.(map[string]any)
	kindName, named := m["kind"].(string)
	if !ok || !named || depth > 4 {
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the manifest is no Kubernetes object, so what it does is unknown")
		return
	}
	if items, ok := m["items"].([]any); ok && strings.HasSuffix(kindName, "List") {
		for _, item := range items {
			object(l, item, depth+1)
		}
		return
	}
	meta, _ := m["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	kind, _ := resource(kindName)
	what := strings.TrimSpace("apply " + kindName + " " + name)
	l.Object(namespace)
	l.Object(strings.TrimSpace(kindName + " " + name))
	judge(l, writes, what, nil)
	if rights[kind] {
		judge(l, privileges, what, nil)
	}
	spec, _ := m["spec"].(map[string]any)
	if n, ok := spec["replicas"]; ok && fmt.Sprint(n) == "0" {
		l.Effect(sallyport.EffectDelete)
		l.Add(sallyport.Critical, "%s ends every pod of it: replicas is 0", what)
	}
	pods(l, m, what, 0)
}

// pods looks for a pod's specification at any depth, so that kinds which nobody
// has heard of are seen through.
func pods(l *finding.List, v any, what string, depth int) {
	if depth > sallyport.MaxDepth {
		l.Add(sallyport.Critical, "%s is nested too deeply to judge", what)
		return
	}
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			pods(l, e, what, depth+1)
		}
	case map[string]any:
		for _, key := range sortedKeys(v) {
			privileged(l, key, v[key], what)
			pods(l, v[key], what, depth+1)
		}
	}
}

// privileged sees one member of a pod's specification that takes its walls down.
// (kubernetes.io: Pod Security Standards, baseline)
func privileged(l *finding.List, key string, v any, what string) {
	loud := func(why string) {
		l.Effect(sallyport.EffectPrivileges)
		l.Part("", "manifest", key+": "+short(v))
		l.Add(sallyport.Critical, "%s: %s", what, why)
	}
	yes := v == true
	switch {
	case key == "privileged" && yes:
		loud("a container is privileged, which makes it root on the machine")
	case (key == "hostNetwork" || key == "hostPID" || key == "hostIPC") && yes:
		loud("shares the machine's own " + strings.TrimPrefix(key, "host"))
	case key == "allowPrivilegeEscalation" && yes:
		loud("a container may gain privileges")
	case key == "hostPath" && v != nil:
		loud("mounts a folder of the machine")
	case key == "hostPort" && v != nil:
		loud("listens on a port of the machine")
	case key == "procMount" && v != "Default":
		loud("shows the machine's processes")
	case key == "add":
		if list, ok := v.([]any); ok && len(list) > 0 && slices.ContainsFunc(list, capability) {
			loud("adds capabilities")
		}
	case key == "cluster-admin":
		loud("speaks of cluster-admin")
	}
}

// capability tells whether v is one that the baseline forbids to add.
func capability(v any) bool {
	s, ok := v.(string)
	return ok && strings.ToUpper(s) == s && s != "NET_BIND_SERVICE" && s != ""
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func sortedKeys(m map[string]any) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
