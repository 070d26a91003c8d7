package cloud

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// takes finds statements of query services that are no question.
var takes = regexp.MustCompile(`(?i)^(--[\w-]+=)?[\s;(]*((drop|alter|truncate)\s+(table|database|schema|view|materialized|external|user|role|index|function|procedure|keyspace)\b|` +
	`delete\s+from|merge\s+into|update\s+\S+\s+set\b|insert\s+overwrite|replace\s+into|vacuum\b|unload\s*\()`)

// special sees what the verb alone does not tell.
func (c command) special(l *finding.List, found class, what string, rest []string) {
	switch c.program {
	case "kubectl":
		c.kubectl(l, found, what, rest)
	case "aws":
		c.awsOptions(l, found, what)
	case "az":
		if slices.ContainsFunc(c.options, func(o string) bool { return strings.EqualFold(o, "complete") }) && found == writes {
			l.Effect(sallyport.EffectDestroy)
			l.Lost("%s in complete mode removes what the template does not name", what)
		}
	case "docker", "docker-compose":
		if has(c.options, "--privileged", "--cap-add", "--pid=host", "--security-opt") {
			l.Add(sallyport.Critical, "%s takes the container's walls down", what)
		}
		if (strings.HasSuffix(what, "save") || strings.HasSuffix(what, "export")) && has(c.options, "-o", "--output") {
			l.Lost("%s writes over a file: if it exists, what it held cannot be brought back", what)
		}
		if scaledToNothing(c.options) || slices.ContainsFunc(rest, func(w string) bool { return strings.HasSuffix(w, "=0") }) && strings.Contains(what, "scale") {
			l.Add(sallyport.Critical, "%s ends every copy", what)
		}
	case "terraform":
		if c.words[0] == "apply" {
			l.Effect(sallyport.EffectDestroy)
			l.Lost("%s destroys what the configuration no longer names", what)
		}
	case "helm":
		if found == writes && has(c.options, "--force") {
			l.Effect(sallyport.EffectDelete)
			l.Lost("%s deletes and makes anew what it cannot change", what)
		}
	case "gcloud":
		if found == writes && has(c.options, "--delete", "--delete-unmatched-destination-objects", "--remove") {
			l.Effect(sallyport.EffectDelete)
			l.Lost("%s deletes what its source does not have", what)
		}
	}
	for _, o := range append(slices.Clone(c.options), rest...) {
		if found == writes && takes.MatchString(o) {
			l.Effect(sallyport.EffectDelete)
			l.Lost("%s is given a statement that takes something away", what)
		}
		_, file, ok := strings.Cut(o, "://")
		if ok && (strings.HasPrefix(o, "file") || strings.Contains(o, "=file")) && finding.SecretPath(file) || !ok && finding.SecretPath(strings.TrimPrefix(o, "@")) && strings.Contains(o, "/") {
			l.Add(sallyport.Medium, "touches %s, which holds secrets", o)
			if found != reads && found != secrets {
				l.Add(sallyport.Critical, "sends %s, which holds secrets, to the cloud", o)
			}
		}
	}
}

func (c command) awsOptions(l *finding.List, found class, what string) {
	switch {
	case len(c.words) > 1 && c.words[0] == "s3" && c.words[1] == "sync" && found != reads && has(c.options, "--delete"):
		l.Effect(sallyport.EffectDelete)
		l.Lost("%s deletes what its source does not have", what)
	case len(c.words) > 1 && c.words[0] == "s3api" && c.words[1] == "get-object":
		l.Effect(sallyport.EffectWrite)
		l.Lost("%s writes over a file: if it exists, what it held cannot be brought back", what)
	}
	if has(c.options, "--acl", "--grants") && slices.ContainsFunc(c.options, func(o string) bool { return strings.Contains(o, "public") }) {
		l.Effect(sallyport.EffectPrivileges)
		l.Add(sallyport.Critical, "%s lets everybody read", what)
	}
}

func (c command) kubectl(l *finding.List, found class, what string, rest []string) {
	if found == reads {
		if raw := c.raw(); strings.Contains(raw, "secret") {
			l.Add(sallyport.Critical, "%s reads secrets of the cluster past its kinds", what)
		} else if strings.Contains(raw, "/proxy") || strings.Contains(raw, "/exec") || strings.Contains(raw, "/attach") || strings.Contains(raw, "/portforward") {
			l.Add(sallyport.Critical, "%s asks something in the cluster by an address: it may act", what)
		}
		for _, w := range rest {
			for kind := range strings.SplitSeq(strings.ToLower(w), ",") {
				kind, _, _ = strings.Cut(kind, "/")
				kind, _, _ = strings.Cut(kind, ".")
				if kind == "secret" || kind == "secrets" {
					l.Add(sallyport.Medium, "%s reads secrets of the cluster", what)
				}
			}
		}
		if strings.HasSuffix(what, "config view") && has(c.options, "--raw") {
			l.Add(sallyport.Medium, "%s shows the cluster's credentials", what)
		}
		return
	}
	if found != writes {
		return
	}
	if scaledToNothing(c.options) {
		l.Effect(sallyport.EffectDelete)
		l.Add(sallyport.Critical, "%s ends every pod of it", what)
	}
	if has(c.options, "--prune", "--force") {
		l.Effect(sallyport.EffectDelete)
		l.Lost("%s deletes what its files do not name", what)
	}
	if has(c.options, "--privileged", "--overrides") {
		l.Add(sallyport.Critical, "%s can give a pod the machine's privileges", what)
	}
	for _, o := range c.options {
		if strings.Contains(o, "://") || o == Unseen {
			l.Add(sallyport.Critical, "%s applies what is not seen here: %s", what, strings.ReplaceAll(o, Unseen, "…"))
		}
	}
}

// raw is the address that kubectl get --raw asks for, in small letters.
func (c command) raw() string {
	if !has(c.options, "--raw") || c.words[0] != "get" {
		return ""
	}
	return strings.ToLower(strings.Join(append(slices.Clone(c.options), c.words...), " "))
}

func has(options []string, names ...string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		name, _, _ := strings.Cut(o, "=")
		return slices.Contains(names, name) || slices.Contains(names, o)
	})
}

// scaledToNothing sees --replicas=0 and --replicas 0.
func scaledToNothing(options []string) bool {
	for i, o := range options {
		name, value, joined := strings.Cut(o, "=")
		if name != "--replicas" {
			continue
		}
		if !joined && i+1 < len(options) {
			value = options[i+1]
		}
		if value == "0" || value == Unseen {
			return true
		}
	}
	return false
}

// shown are uses that only read and whose answer holds passwords and keys: the
// values of a release, the environment of a project, the state of machines.
var shown = map[string][]string{
	"helm":           {"get values", "get all", "get manifest", "get hooks", "env"},
	"docker":         {"compose config", "compose convert", "inspect", "container inspect"},
	"docker-compose": {"config", "convert"},
	"terraform":      {"output", "show", "state show", "state pull"},
	"vault":          {"token lookup", "print token"},
	"doctl":          {"databases get", "databases list", "databases connection", "databases user"},
}

// showsSecrets tells a use whose answer holds secrets.
func (c command) showsSecrets() bool {
	line := strings.Join(c.words, " ") + " "
	return slices.ContainsFunc(shown[c.program], func(use string) bool { return strings.HasPrefix(line, use+" ") }) ||
		c.program == "helm" && strings.HasPrefix(line, "status ") && slices.ContainsFunc(c.options, func(o string) bool { return strings.HasPrefix(o, "-o") || strings.HasPrefix(o, "--output") })
}
