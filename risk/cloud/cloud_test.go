package cloud_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/cloud"
)

func verdict(r sallyport.Risk) string {
	if r.Irreversible {
		return "irreversible"
	}
	return r.Level.String()
}

func TestKubernetesRequests(t *testing.T) {
	for _, tt := range []struct {
		r            cloud.Request
		want, effect string
	}{
		{cloud.Request{Verb: "get", Resource: "pods"}, "low", "read"},
		{cloud.Request{Verb: "LIST", Resource: "deployments.apps"}, "low", "read"},
		{cloud.Request{Verb: "get", Resource: "secrets", Name: "db"}, "medium", "read"},
		{cloud.Request{Verb: "watch", Resource: "Secret"}, "medium", "read"},
		{cloud.Request{Verb: "create", Resource: "serviceaccounts/token"}, "medium", "read"},
		{cloud.Request{Verb: "patch", Resource: "deployments"}, "high", "write"},
		{cloud.Request{Verb: "create", Resource: "rolebindings"}, "critical", "privileges"},
		{cloud.Request{Verb: "create", Resource: "pods/exec"}, "critical", "execute"},
		{cloud.Request{Verb: "get", Resource: "pods/exec"}, "critical", "execute"},
		{cloud.Request{Verb: "create", Resource: "pods/eviction"}, "irreversible", "delete"},
		{cloud.Request{Verb: "delete", Resource: "pods", Name: "x"}, "irreversible", "delete"},
		{cloud.Request{Verb: "delete", Resource: "ns", Name: "prod"}, "irreversible", "destroy"},
		{cloud.Request{Verb: "deletecollection", Resource: "persistentvolumeclaims"}, "irreversible", "destroy"},
		{cloud.Request{Verb: "frobnicate", Resource: "pods"}, "critical", "opaque"},
		{cloud.Request{Resource: "pods"}, "critical", "opaque"},
	} {
		r := cloud.Ask(tt.r)
		if got := verdict(r); got != tt.want || !strings.Contains(strings.Join(r.Effects, " "), tt.effect) {
			t.Errorf("%+v is %s %v, want %s with %s: %q", tt.r, got, r.Effects, tt.want, tt.effect, r.Reasons)
		}
	}
}

func TestManifests(t *testing.T) {
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: prod}\nspec:\n  containers:\n  - name: web\n    image: nginx\n"
	for _, tt := range []struct{ name, text, want, reason string }{
		{"a pod", pod, "high", "apply Pod web"},
		{"privileged", pod + "    securityContext: {privileged: true}\n", "critical", "root on the machine"},
		{"host path", pod + "  volumes:\n  - name: h\n    hostPath: {path: /}\n", "critical", "folder of the machine"},
		{"host network", pod + "  hostNetwork: true\n", "critical", "Network"},
		{"capabilities", pod + "    securityContext: {capabilities: {add: [SYS_ADMIN]}}\n", "critical", "capabilities"},
		{"privileged in a kind of its own", "apiVersion: x/v1\nkind: Thing\nmetadata: {name: t}\nspec: {a: {b: {template: {spec: {hostPID: true}}}}}\n", "critical", "PID"},
		{"the second document", pod + "---\n" + pod + "  hostIPC: true\n", "critical", "IPC"},
		{"a list", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: rbac/v1, kind: ClusterRoleBinding, metadata: {name: a}}\n", "critical", "who may do what"},
		{"scaled to nothing", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0}\n", "critical", "ends every pod"},
		{"as JSON", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"hostPID":true}}`, "critical", "PID"},
		{"no YAML", "{a: [", "critical", "cannot be read"},
		{"no object", "just text", "critical", "no Kubernetes object"},
		{"nothing", "", "critical", "cannot be read"},
		{"YAML's own yes by an anchor", "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\na: &t true\nspec: {hostPID: *t}\n", "critical", "PID"},
	} {
		r := cloud.Manifest(tt.text)
		if got := verdict(r); got != tt.want || !strings.Contains(strings.Join(r.Reasons, "; "), tt.reason) {
			t.Errorf("%s is %s, want %s and %q: %q", tt.name, got, tt.want, tt.reason, r.Reasons)
		}
	}
}

// Each verb of the tables has one meaning in its program, and every class is one
// that is known.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range cloud.Verbs() {
		if seen[v] {
			t.Errorf("%s stands twice in verbs.txt", v)
		}
		seen[v] = true
	}
	if len(seen) < 500 {
		t.Errorf("only %d verbs: the table is not read", len(seen))
	}
}

func TestCommandIsNotForOthers(t *testing.T) {
	for _, argv := range [][]string{nil, {"ls"}, {"aws-s3", "rm"}, {""}} {
		if r, ok := cloud.Command(argv); ok {
			t.Errorf("%q: %v, want no verdict", argv, r)
		}
	}
}

func FuzzAction(f *testing.F) {
	for _, s := range []string{"ec2:TerminateInstances", "compute.instances.delete", "Microsoft.Compute/virtualMachines/delete", "aws s3 rm x", ":", "/", "."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r := cloud.Action(s); len(r.Reasons) == 0 || r.Objects == nil {
			t.Fatalf("%q: %v", s, r)
		}
	})
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{"kind: Pod", "a: &a [*a]", "---\n---\n", "{", "kind: List\nitems: [1]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hang := time.AfterFunc(time.Minute, func() { panic(fmt.Sprintf("%q is not judged in a minute", s)) })
		defer hang.Stop()
		if r := cloud.Manifest(s); len(r.Reasons) == 0 || r.Level < sallyport.High {
			t.Fatalf("%q: %v", s, r)
		}
	})
}
