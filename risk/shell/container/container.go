// Package container reads the command lines that run a command in a container:
// docker exec, docker compose exec, kubectl exec.
package container

import (
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// An Exec is a command that runs in a container, with what its environment is
// given.
type Exec struct {
	Argv []word.Word
	Sets []word.Word // NAME=VALUE
}

var (
	docker  = word.ParseOptions(`-i -t -u= -w= -e= --interactive --tty --user= --workdir= --env=`)
	compose = word.ParseOptions(`-T -u= -w= -e= --no-TTY --user= --workdir= --env= --index=`)
	project = word.ParseOptions(`-f= -p= --file= --project-name= --profile= --ansi= --no-ansi`)
	kubectl = word.ParseOptions(`-i -t -q -n= -c= --stdin --tty --quiet --namespace= --container= --context= --pod-running-timeout= --request-timeout=`)
)

// Read finds the command that runs in a container. It reports false for what it
// cannot read to the end, and for whatever is none.
func Read(program string, args []word.Word) (Exec, bool) {
	switch program {
	case "kubectl", "oc":
		return ofPod(args)
	case "docker-compose", "podman-compose":
		return ofService(args)
	case "docker", "podman", "nerdctl":
		switch {
		case len(args) > 0 && args[0].Is("compose"):
			return ofService(args[1:])
		case len(args) > 0 && args[0].Is("container"):
			args = args[1:]
		}
		if len(args) > 0 && args[0].Is("exec") {
			return within(docker, args[1:])
		}
	}
	return Exec{}, false
}

func ofService(args []word.Word) (Exec, bool) {
	r := project.Read(args, true)
	elsewhere := func(g word.Given) bool { return strings.Contains(g.Value.Text, ":") || !g.Value.Known }
	if r.Bad != "" || len(r.Rest) == 0 || !r.Rest[0].Is("exec") || slices.ContainsFunc(r.Given, elsewhere) {
		return Exec{}, false
	}
	return within(compose, r.Rest[1:])
}

// within reads: options, the container, the command.
func within(options word.Options, args []word.Word) (Exec, bool) {
	r := options.Read(args, true)
	if r.Bad != "" || len(r.Rest) < 2 || r.Rest[0].Loose {
		return Exec{}, false
	}
	e := Exec{Argv: r.Rest[1:]}
	for _, g := range r.Given {
		if g.Name == "-e" || g.Name == "--env" {
			e.Sets = append(e.Sets, g.Value)
		}
	}
	return e, true
}

// ofPod reads: options and the pod, two hyphens, the command.
func ofPod(args []word.Word) (Exec, bool) {
	end := slices.IndexFunc(args, func(a word.Word) bool { return a.Is("--") })
	if end < 0 || end+1 == len(args) {
		return Exec{}, false
	}
	r := kubectl.Read(args[:end], false)
	if r.Bad != "" || len(r.Rest) != 2 || !r.Rest[0].Is("exec") || strings.HasPrefix(r.Rest[1].Text, "-") {
		return Exec{}, false
	}
	return Exec{Argv: args[end+1:]}, true
}
