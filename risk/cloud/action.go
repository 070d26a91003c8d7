package cloud

import (
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Action judges the name of a cloud's action, with or without its service:
// ec2:TerminateInstances, terminate_instances, compute.instances.delete,
// Microsoft.Compute/virtualMachines/delete. A whole command line is judged as
// one.
func Action(text string) sallyport.Risk {
	var l finding.List
	text = strings.TrimSpace(text)
	l.Object(text)
	if fields := strings.Fields(text); len(fields) > 1 {
		if r, ok := Command(fields); ok {
			return r
		}
	}
	if strings.ContainsAny(text, "*?") {
		l.Effect(sallyport.EffectOpaque)
		l.Add(sallyport.Critical, "the action %q stands for more than one", text)
		return l.Risk()
	}
	c, about := classOf(text)
	judge(&l, c, text, about)
	return l.Risk()
}

// classOf tells what an action does, by the shape of its name.
func classOf(text string) (c class, about []string) {
	service, name, ok := strings.Cut(text, ":")
	switch {
	case ok: // AWS
		ws := Words(name)
		if service == "s3" && len(ws) > 1 && ws[0] == "delete" {
			return loses, ws
		}
		c, _ := tables()["aws"].class(ws)
		return c, ws
	case strings.Contains(text, "/"): // Azure: PROVIDER/TYPE/VERB, or PROVIDER/TYPE/VERB/action
		parts := strings.Split(strings.TrimSuffix(strings.ToLower(text), "/action"), "/")
		return azure(Words(lastPart(text, parts))), Words(text)
	case strings.Contains(text, "."): // GCP: SERVICE.TYPE.VERB
		verb := text[strings.LastIndexByte(text, '.')+1:]
		c, _ := tables()["gcloud"].class(Words(verb))
		return c, Words(text)
	}
	ws := Words(text)
	var worst class
	for i, program := range []string{"aws", "gcloud", "az", "kubectl"} {
		found, _ := tables()[program].class(ws)
		if i == 0 || rank[found] > rank[worst] && found != unknown || worst == unknown {
			worst = found
		}
	}
	return worst, ws
}

// lastPart is the last of parts as it is written in text, without /action.
func lastPart(text string, parts []string) string {
	text = text[:min(len(text), len(strings.Join(parts, "/")))]
	return text[strings.LastIndexByte(text, '/')+1:]
}

func azure(ws []string) class {
	if len(ws) == 0 {
		return unknown
	}
	if ws[0] == "write" {
		return writes
	}
	if ws[0] == "read" {
		return reads
	}
	c, _ := tables()["az"].class(ws)
	return c
}

// rank orders classes by how dangerous they are.
var rank = map[class]int{reads: 0, secrets: 1, writes: 2, privileges: 3, runs: 4, tells: 5, loses: 6}
